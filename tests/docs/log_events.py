"""Finds the events that a router may log, with their levels, in the source of `sidecar`."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
"""The levels, ascending."""

_SOURCE: Final = ROOT / "sidecar"
_WITHOUT_LOG: Final = _SOURCE / "dev"
_EVENT: Final = re.compile(r"[a-z]+(_[a-z]+)*")

_MADE: Final[Mapping[str, Sequence[str]]] = {
    "engine/buckets/lifecycle.py": ("seal_failed", "merge_failed"),
    "kafka/reading/following.py": ("policies_failed", "staging_failed", "status_failed", "status_reading_failed"),
}
"""Events with a name that the code puts together, by the module that does so."""


def events() -> dict[str, Sequence[str]]:
    """Return the levels of each event, ascending, by its name; no level where a library sets it."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in sorted(_SOURCE.rglob("*.py")):
        if not path.is_relative_to(_WITHOUT_LOG):
            for event, levels in _of(path):
                found[event] |= levels
    return {event: sorted(found[event], key=LEVELS.index) for event in sorted(found)}


def _of(path: Path) -> Iterator[tuple[str, set[str]]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            # A line that does not come from the logger, since the logger has dropped others.
            plain = {_text(key): _text(value) for key, value in zip(node.keys, node.values, strict=True)}
            if "event" in plain and "level" in plain:
                yield plain["event"], {plain["level"]}
        elif isinstance(node, ast.Call) and (levels := _levels(node)) is not None:
            if node.args and isinstance(node.args[0], ast.JoinedStr):
                yield from ((name, levels) for name in _MADE[str(path.relative_to(_SOURCE))])
            for argument in node.args[:2]:
                if _EVENT.fullmatch(_text(argument)) and _text(argument) not in LEVELS:
                    yield _text(argument), levels
                    break


def _levels(call: ast.Call) -> set[str] | None:
    """Return the levels of a call that logs, or None for any other call."""
    called = call.func
    if isinstance(called, ast.IfExp):
        both = [_named(each) for each in (called.body, called.orelse)]
        return {*both} if {*both} <= {*LEVELS} else None
    if not isinstance(called, ast.Attribute):
        return None
    owner = ast.unparse(called.value)
    if called.attr == "tell" and owner.endswith("trouble"):
        return {_text(each.value) for each in call.keywords if each.arg == "level"} or {"warning"}
    if called.attr == "_tell" and len(call.args) > 1:
        return {_text(call.args[0])}
    if not re.search(r"\blog\b|_log\b|get_logger\(\)$", owner):
        return None
    if called.attr == "log":
        return set()
    level = _named(called)
    return {level} if level in LEVELS else None


def _named(called: ast.expr) -> str:
    name = called.attr if isinstance(called, ast.Attribute) else ""
    return "error" if name == "exception" else name


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""

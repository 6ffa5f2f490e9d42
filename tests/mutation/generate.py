"""Prints a sample of mutants as JSON lines; the Python of ``requirements-mutation.lock`` runs it, which has cosmic-ray.

``generate.py SEED NUMBER FILE...``. Every place that can be mutated has the same chance, however many operators can
replace the one that is there.
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

_LEFT_OUT: Final = ("core/StringReplacer", "core/NoOp")
"""Operators that change only texts, or nothing."""


class _Change(NamedTuple):
    """One operator at one of its places in a module."""

    operator: str
    occurrence: int


Places = dict[tuple[str, int, int], list[_Change]]
"""The changes that are possible at a place: path, line and column."""


def main(seed: int, number: int, paths: list[str]) -> None:
    """Print ``number`` mutants of these files."""
    places: Places = {}
    for path in paths:
        for line, column, change in _changes(Path(path).read_text(encoding="utf-8")):
            places.setdefault((path, line, column), []).append(change)
    rng = random.Random(seed)
    order = sorted(places)
    rng.shuffle(order)
    left = number
    for path, line, column in order:
        if not left:
            return
        change = rng.choice(places[path, line, column])
        source = _mutated(path, change)
        if source is not None:
            print(json.dumps({"path": path, "line": line, "operator": change.operator, "source": source}))
            left -= 1


def _changes(source: str) -> Iterator[tuple[int, int, _Change]]:
    tree = get_ast(source)
    for name in plugins.operator_names():
        operator_class = plugins.get_operator(name)
        if name in _LEFT_OUT or operator_class.arguments():
            continue
        operator = operator_class()
        occurrence = 0
        for node in ast_nodes(tree):
            for (line, column), _ in operator.mutation_positions(node):
                if not _is_unnoticeable(node):
                    yield line, column, _Change(name, occurrence)
                occurrence += 1


def _is_unnoticeable(node: Any) -> bool:
    """Say whether a node is part of a type, or an option of a dataclass such as ``slots``: no test can notice it."""
    while node.parent is not None:
        child, node = node, node.parent
        if node.type in ("tfpdef", "annassign") and child is not node.children[-1 if node.type == "annassign" else 0]:
            return True
        if node.type == "decorator" and node.get_code().lstrip().startswith("@dataclass("):
            return True
        if node.type == "funcdef" and child.get_previous_leaf() is not None and child.get_previous_leaf().value == "->":
            return True
    return False


def _mutated(path: str, change: _Change) -> str | None:
    """Return the source with the change; None where it is no Python any more."""
    operator = plugins.get_operator(change.operator)()
    source: str | None = mutate_code(Path(path).read_text(encoding="utf-8"), operator, change.occurrence)
    if source is None:
        return None
    try:
        compile(source, path, "exec")
    except SyntaxError:
        return None
    return source


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])

"""Renders log lines for a person at a terminal; all other readers get JSON."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

_PLAIN: Final = frozenset({"timestamp", "level", "event", "exception"})


def readable(_: object, __: str, event: Mapping[str, Any]) -> str:
    """Return an event as a line: local time, level unless it is info, event in words, then its key-values.

    Values are escaped as in JSON, so that text from outside can neither forge a line nor control the terminal.
    """
    moment = datetime.fromisoformat(event["timestamp"]).astimezone().strftime("%H:%M:%S")
    level = "" if event["level"] == "info" else f"{event['level']}: "
    facts = [f"{name}={_value(value)}" for name, value in event.items() if name not in _PLAIN]
    line = " ".join([f"{moment} {level}{str(event['event']).replace('_', ' ')}", *facts])
    exception = event.get("exception")
    # A traceback has several lines, and each may hold text from outside.
    return line if exception is None else "\n".join([line, *map(_value, str(exception).splitlines())])


def _value(value: object) -> str:
    text = json.dumps(value, default=repr, ensure_ascii=False)
    is_plain = isinstance(value, str) and value.isprintable() and text == f'"{value}"'
    return str(value) if is_plain else json.dumps(value, default=repr)

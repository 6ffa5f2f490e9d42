"""The columns of a table of schedules, and their types: checked before any row is read.

================  ==========================================================================================
column            types
================  ==========================================================================================
due               timestamp (rounded up to a millisecond), bigint or decimal(n,0) (epoch milliseconds), or string (as
                  header ``deliver-at``: epoch milliseconds or RFC 3339 with an offset)
target            string; null: the delay topic's default target
key, value        binary, or string (UTF-8); null stays null
headers           map of string to string or binary; array of struct<key:string, value:string or binary>,
                  where order and repetition are kept; or string, a JSON object or array of pairs
the id column     string, int, bigint or decimal(n,0)
================  ==========================================================================================

CSV, JSON and XML files give strings only. A column under another name is mapped, and a missing one has to be given up
explicitly: a misspelt ``key`` would otherwise scatter the records of a key over all partitions.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from index.errors import ConfigError

COLUMNS: Final = ("due", "target", "key", "value", "headers")
OPTIONAL: Final = ("target", "key", "headers")
"""Columns that a table may lack: no target means the default target, no key means any partition."""

ID: Final = "id"
DAMAGE: Final = "_damage"
"""Column in which Spark puts a line of CSV or JSON that does not fit the columns."""

_REMEDIES: Final[Mapping[str, str]] = {
    "due": "make it a timestamp, a bigint of epoch milliseconds, or a string in RFC 3339 with an offset",
    "target": "make it a string",
    "key": "say which bytes are meant: cast it to string or binary",
    "value": "say which bytes are meant: cast it to string or binary, or use to_json",
    "headers": "make it a map<string,string>, an array<struct<key:string,value:binary>> or a string of JSON",
    ID: "make it a string or bigint",
}
_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "due": frozenset({"timestamp", "bigint", "string"}),
    "target": frozenset({"string"}),
    "key": frozenset({"string", "binary"}),
    "value": frozenset({"string", "binary"}),
    "headers": frozenset(
        {
            "string",
            "map<string,string>",
            "map<string,binary>",
            "array<struct<key:string,value:string>>",
            "array<struct<key:string,value:binary>>",
        }
    ),
    ID: frozenset({"string", "int", "bigint"}),
}
_WHOLE: Final = re.compile(r"decimal\([0-9]+,0\)")
_HINTS: Final[Mapping[tuple[str, str], str]] = {
    ("due", "timestamp_ntz"): "it has no time zone, so it names no instant; convert it with to_utc_timestamp or a cast",
    ("due", "int"): "epoch milliseconds do not fit an int; if these are seconds, use timestamp_seconds(due)",
    ("due", "date"): "a day is not an instant; say at which time of it, in which zone",
}


def parse_mapping(given: Sequence[str]) -> dict[str, str]:
    """Read ``due=fire_at`` and so on, as name to column; raise ConfigError for anything else."""
    mapping = {name: name for name in COLUMNS}
    for each in given:
        name, equals, column = each.partition("=")
        if not equals or not column or name not in COLUMNS:
            raise ConfigError(f"--column {each!r}: written NAME=COLUMN, where NAME is one of {', '.join(COLUMNS)}")
        mapping[name] = column
    return mapping


def checked(
    types: Mapping[str, str], mapping: Mapping[str, str], without: Sequence[str], id_column: str | None
) -> dict[str, str]:
    """Return the columns to read, as name to column of the table; ``types`` are the column types as Spark writes them.

    ConfigError names the column that is missing or of a wrong type, and the remedy.
    """
    for name in without:
        if name not in OPTIONAL:
            raise ConfigError(f"--without {name}: only {', '.join(OPTIONAL)} can be done without")
        if mapping[name] != name:
            raise ConfigError(f"--without {name} and --column {name}={mapping[name]} contradict each other")
    wanted = {name: column for name, column in mapping.items() if name not in without}
    if id_column is not None:
        wanted[ID] = id_column
    for name, column in wanted.items():
        if column not in types:
            raise ConfigError(_missing(name, column, types))
        kind = types[column]
        # Databases use this type for whole numbers of any size.
        is_whole = name in ("due", ID) and _WHOLE.fullmatch(kind)
        if kind not in _TYPES[name] and not is_whole:
            remedy = _HINTS.get((name, kind), _REMEDIES[name])
            raise ConfigError(f"column {column!r} ({name}) is of type {kind}: {remedy}")
    return wanted


def _missing(name: str, column: str, types: Mapping[str, str]) -> str:
    has = ", ".join(sorted(types)) or "none"
    near = get_close_matches(column.lower(), {each.lower(): each for each in types}, n=1)
    meant = next((each for each in types if each.lower() in near), "")
    if name == ID:
        hint = f", did you mean {meant}?" if meant else ";"
        return f"--id {column}: the table has no such column{hint} it has: {has}"
    named = f"--column {name}={meant or '...'}"
    remedy = f"did you mean {meant}? Then {named}" if meant else f"name it with {named}"
    if name in OPTIONAL:
        remedy += f", or say --without {name}"
    return f"column {column!r} is missing; {remedy}. The table has: {has}"

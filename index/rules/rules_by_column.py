"""Decisions on many accepted records at once, where all of them have the same header names.

A segment holds records that were accepted when they were indexed: thousands of records that one producer wrote the same
way. Only their header values are left to read, and they are read by columns: the first header of every record, the
second of every record. Due times are not simply taken from the segment: they must agree with the headers.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import add
from typing import Any, Final

from index.protocol.headers import HeaderRole, Unit
from index.protocol.schedule import AT_ONCE, BY_KEY, KEEP_KEY, NO_EXPIRY, KeepKey, Schedule
from index.rules.rules import Rules

_Values = Sequence[bytes | None]

_SUPPORTED: Final = frozenset(
    {
        HeaderRole.AT,
        HeaderRole.AFTER,
        HeaderRole.TO,
        HeaderRole.KEY,
        HeaderRole.PARTITION,
        HeaderRole.ID,
        HeaderRole.EXPIRE,
    }
)
_PLAIN: Final = frozenset({Unit.NATIVE, Unit.MS})
_new_tuple = tuple.__new__


def decide_alike(
    rules: Rules, names: Sequence[str], columns: Sequence[_Values], timestamps_ms: Sequence[int], dues_ms: Sequence[int]
) -> list[Schedule] | None:
    """Return the schedules of records that ``rules`` have accepted as due at ``dues_ms``, as ``rules.decide`` would.

    ``columns`` has the header values of all records, by position; ``names`` has the name of each column. None means
    that the columns cannot show this, or contradict it: then each record has to be decided by itself.
    """
    if not rules.enabled or rules.spreads or rules.retry or AT_ONCE in dues_ms:
        # Records that a backfill has left to be rejected are at once as well.
        return None
    found: dict[HeaderRole, _Values] = {}
    to: list[_Values] = []
    for name, column in zip(names, columns, strict=True):
        alias = rules.controls.alias(name)
        if rules.controls.refuses(name) or rules.controls.is_read_apart(name):
            return None
        if alias is None:
            continue
        if alias.role == HeaderRole.TO:
            to.append(column)
            continue
        # A lateness in another unit would be read as another number, without notice.
        if (
            alias.role not in _SUPPORTED
            or alias.role in found
            or (alias.role == HeaderRole.EXPIRE and alias.unit not in _PLAIN)
        ):
            return None
        found[alias.role] = column
    targets = _targets(rules, to, len(dues_ms))
    try:
        due_as_told = _dues(found, timestamps_ms, rules.delay_ms)
        partitions = _numbers(found[HeaderRole.PARTITION]) if HeaderRole.PARTITION in found else repeat(BY_KEY)
        lateness = _numbers(found[HeaderRole.EXPIRE]) if HeaderRole.EXPIRE in found else repeat(NO_EXPIRY)
    except (ValueError, TypeError):
        return None
    if targets is None or due_as_told != dues_ms:
        return None
    keys: Iterable[bytes | KeepKey | None] = found.get(HeaderRole.KEY, repeat(KEEP_KEY))
    ids: Iterable[bytes | None] = found.get(HeaderRole.ID, repeat(None))
    both_times = repeat(HeaderRole.AT in found and HeaderRole.AFTER in found)
    # It avoids a Python call for each record: this runs for every record that is released.
    told = dues_ms, targets, partitions, keys, ids, both_times, lateness
    return list(map(_new_tuple, repeat(Schedule), zip(*told, repeat(0), repeat(None), strict=False)))


def _dues(found: dict[HeaderRole, _Values], timestamps_ms: Sequence[int], delay_ms: int) -> list[int]:
    if HeaderRole.AT in found:
        return _numbers(found[HeaderRole.AT])
    if HeaderRole.AFTER in found:
        return list(map(add, timestamps_ms, _numbers(found[HeaderRole.AFTER])))
    if delay_ms:
        return list(map(add, timestamps_ms, repeat(delay_ms)))
    return [AT_ONCE] * len(timestamps_ms)


def _numbers(column: _Values) -> list[int]:
    """Read plain numbers; another notation or unit raises ValueError or gives another number, which is noticed."""
    raw: Any = column
    return list(map(int, raw))


def _targets(rules: Rules, to: Sequence[_Values], count: int) -> Iterable[tuple[str, ...]] | None:
    if not to:
        return repeat((rules.default_target,), count) if rules.default_target else None
    routes = list(zip(*to, strict=True))
    known = {route: tuple((raw or b"").decode("ascii", "replace") for raw in route) for route in set(routes)}
    if not all(len(set(names)) == len(names) and all(map(rules.allowed, names)) for names in known.values()):
        return None
    return map(known.__getitem__, routes)

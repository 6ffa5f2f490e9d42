"""Recurring schedules found in a log: only the last record of each series can be pending."""

import pytest

from index.named.series_in_log import SeriesInLog, series_in_log
from index.named.transit import Transit
from index.pending.progress import Position
from index.protocol.headers import Alias, HeaderRole
from index.protocol.moving import moved_occurrence
from index.protocol.occurrences import record_of
from index.protocol.record import Record
from index.protocol.recurring import Occurrence, Recurrence, recurrence_of
from index.rules.rules import Rules

KEY = b"k" * 16
DECIDE = Rules("d", default_target="t", aliases=(Alias("x-id", HeaderRole.ID),), recurring=True).decide
EVERY = Record(b"k", b"v", [("deliver-every", b"1s")], 5)
NAMED = Record(b"k", b"v", [*EVERY.headers, ("deliver-id", b"a")], 5)
PLAIN = Record(b"k", b"v", [("deliver-after", b"1s")], 5)


def occurrence(first: int, number: int, key: bytes = KEY) -> Record:
    return record_of(EVERY, Occurrence(first, number, number * 1_000), f"d/0/{first}", key, 9)


def after(source: int, number: int, first: int = 10, record: Record = NAMED) -> Record:
    """Return the occurrence that follows the one at ``source``."""
    return record_of(record, Occurrence(first, number, number * 1_000), f"d/0/{source}", KEY, 9)


def moved(record: Record, offset: int, move: int) -> Record:
    recurrence = recurrence_of(record.headers)
    assert isinstance(recurrence, Recurrence)
    return moved_occurrence(record, recurrence, offset, f"d/0/{move}", 5_000, KEY, 9)


def control(*headers: tuple[str, bytes | None]) -> Record:
    return Record(None, None, headers, 5)


def gone(*log: tuple[int, Record]) -> list[int]:
    return [*series_in_log(log, KEY, 0, DECIDE).gone]


CANCEL = control(("Deliver-Cancel", b"a"))
REPLACE = control(("deliver-replace", b"true"), ("deliver-id", b"a"), ("deliver-after", b"1h"))
MOVE = control(("deliver-move", b"a"), ("deliver-at", b"5000"))
IF_DUE = ("deliver-if-due", b"3000")


LOG = [
    (10, EVERY),
    (11, PLAIN),
    (12, EVERY),
    (13, occurrence(10, 2)),
    (14, occurrence(7, 9)),
    (15, occurrence(10, 3)),
    (16, occurrence(11, 99, b"x" * 16)),
    (17, occurrence(7, 10)),
    # A moved occurrence has the same number once more.
    (18, occurrence(10, 3)),
    (19, occurrence(10, 4, b"x" * 16)),
]


def test_all_but_the_last_of_each_series_has_left() -> None:
    found = series_in_log(LOG, KEY, 10, DECIDE)
    # The first record of series 7 is gone from the log, and series 12 has only one record.
    assert list(found.gone) == [10, 13, 14, 15]
    # An occurrence without a valid signature replaces no other.
    assert (found.known, found.unknown) == (2, 1)


def test_without_the_key_nothing_is_known() -> None:
    for key in (b"", b"y" * 16):
        assert series_in_log(LOG, key, 10, DECIDE)[:] == (SeriesInLog().gone, 0, 3)


def test_the_mask_is_asked_about_all_that_has_left() -> None:
    found = series_in_log(LOG, KEY, 10, DECIDE)
    assert all(offset in found.mask for offset in found.gone)
    transit = Transit(found.transit(10))
    assert transit.reaches == 16
    assert transit.find(bytes(16), 0) == [Position(0, 15)]
    assert found.transit(16) == SeriesInLog().transit(0) == {}


@pytest.mark.parametrize("taking", [CANCEL, REPLACE])
def test_a_control_in_front_of_the_last_has_taken_it_in_transit(taking: Record) -> None:
    # It lies between the last occurrence and the one that has left.
    assert gone((10, NAMED), (11, after(10, 2)), (12, taking), (13, after(11, 3))) == [10, 11, 13]
    assert gone((10, NAMED), (11, taking), (12, CANCEL), (13, after(10, 2))) == [10, 13]
    # The first record of the series is gone from the log.
    assert gone((21, after(15, 2)), (22, taking), (23, after(21, 3))) == [10, 21, 23]
    # It lies in front of both, so it has found another one; or behind both, and the replay finds the last one pending.
    assert gone((9, taking), (10, NAMED), (13, after(10, 2)), (14, taking)) == [10]


def test_series_of_one_id_are_taken_together_and_others_are_not() -> None:
    other = Record(b"k", b"v", [*EVERY.headers, ("x-id", b"b")], 5)
    first = [(8, NAMED), (9, other), (10, NAMED), (11, EVERY)]
    last = [after(8, 2, 8), after(9, 2, 9, other), after(10, 2), after(11, 2, 11, EVERY)]
    assert gone(*first, (12, CANCEL), *enumerate(last, 13)) == [8, 9, 10, 11, 13, 15]
    # An alias names an id, too.
    cancelled = control(("deliver-cancel", b"b"))
    assert gone(*first, (12, cancelled), *enumerate(last, 13)) == [8, 9, 10, 11, 14]
    # A replacement begins a series of its own, which no control has taken.
    replacing = Record(b"k", b"v", [*NAMED.headers, ("deliver-replace", b"true")], 5)
    log = [(10, NAMED), (12, replacing), (13, after(10, 2)), (14, after(12, 2, 12, replacing))]
    assert gone(*log) == [10, 12, 13]


@pytest.mark.parametrize(
    "other",
    [
        control(("deliver-cancel", b"b")),
        # Read before the one in front of it had left, it has changed nothing.
        control(("deliver-cancel", b"a"), IF_DUE),
        control(*REPLACE.headers, IF_DUE),
        control(("deliver-cancel-where", b'id = "a"')),
        # Such a control is rejected.
        control(("deliver-cancel", b"a"), ("deliver-after", b"1s")),
        MOVE,
        Record(b"k", b"v", [("deliver-after", b"1s"), ("deliver-id", b"a")], 5),
    ],
)
def test_a_record_that_may_have_left_the_last_one_alone_ends_no_series(other: Record) -> None:
    assert gone((10, NAMED), (11, after(10, 2)), (12, other), (13, after(11, 3))) == [10, 11]


def test_a_moved_occurrence_is_taken_by_a_control_behind_its_move() -> None:
    second = after(10, 2)
    assert gone((10, NAMED), (11, second), (12, MOVE), (13, moved(second, 11, 12))) == [10, 11]
    assert gone((10, NAMED), (11, second), (12, MOVE), (13, CANCEL), (14, moved(second, 11, 12))) == [10, 11, 14]
    # It was in transit when it was moved, and in transit again when it was cancelled.
    assert gone((10, NAMED), (11, MOVE), (12, CANCEL), (13, second), (14, moved(second, 13, 11))) == [10, 13, 14]
    # The move was cancelled in transit, so nothing was written for it.
    assert gone((10, NAMED), (11, MOVE), (12, CANCEL), (13, second)) == [10, 13]
    assert gone((10, NAMED), (11, MOVE), (12, CANCEL), (13, moved(NAMED, 10, 11))) == [10, 13]

"""Recurring schedules found in a log: only the last record of each series can be pending."""

from index.named.series_in_log import SeriesInLog, series_in_log
from index.named.transit import Transit
from index.pending.progress import Position
from index.protocol.occurrences import record_of
from index.protocol.record import Record
from index.protocol.recurring import Occurrence

KEY = b"k" * 16
EVERY = Record(b"k", b"v", [("deliver-every", b"1s")], 5)
PLAIN = Record(b"k", b"v", [("deliver-after", b"1s")], 5)


def occurrence(first: int, number: int, key: bytes = KEY) -> Record:
    return record_of(EVERY, Occurrence(first, number, number * 1_000), f"d/0/{first}", key, 9)


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
    found = series_in_log(LOG, KEY, 10)
    # The first record of series 7 is gone from the log, and series 12 has only one record.
    assert list(found.gone) == [10, 13, 14, 15]
    # An occurrence without a valid signature replaces no other.
    assert (found.known, found.unknown) == (2, 1)


def test_without_the_key_nothing_is_known() -> None:
    for key in (b"", b"y" * 16):
        assert series_in_log(LOG, key, 10)[:] == (SeriesInLog().gone, 0, 3)


def test_the_mask_is_asked_about_all_that_has_left() -> None:
    found = series_in_log(LOG, KEY, 10)
    assert all(offset in found.mask for offset in found.gone)
    transit = Transit(found.transit(10))
    assert transit.reaches == 16
    assert transit.find(bytes(16), 0) == [Position(0, 15)]
    assert found.transit(16) == SeriesInLog().transit(0) == {}

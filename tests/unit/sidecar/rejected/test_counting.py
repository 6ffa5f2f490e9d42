"""Counts of rejected records by code, against what was put in."""

from random import Random

import pytest

from sidecar.rejected.counting import Counting, newest_of
from sidecar.rejected.records import Mark, Place, RejectedRecord


def record(partition: int, offset: int, code: str, topic: str = "d") -> RejectedRecord:
    place = Place(topic, 0, offset)
    return RejectedRecord(partition, offset, 100 + offset, place, code, "no", 0, None, "", b"k", b"v", [])


@pytest.mark.parametrize("seed", range(20))
def test_each_record_counts_once_and_a_mark_only_for_what_it_names(seed: int) -> None:
    rng = Random(seed)
    codes = ("EXPIRED", "UNREADABLE")
    records = [record(rng.randrange(2), offset, rng.choice(codes)) for offset in range(30)]
    driven = [each for each in records if rng.random() < 0.4]
    given: list[RejectedRecord | Mark | None] = [
        *records,
        *(Mark(each.partition, frozenset({each.offset})) for each in driven),
    ]
    # Of another delay topic, older than what is looked at, and nobody's.
    given += [record(0, 99, "EXPIRED", "e"), Mark(0, frozenset({1_000})), None]
    rng.shuffle(given)
    counting = Counting("d")
    for each in given:
        counting.add(each)
    found = counting.by_code()
    assert list(found) == sorted(found)
    for code in codes:
        of_code = [each for each in records if each.code == code]
        assert found[code].records == len(of_code)
        assert found[code].redriven == sum(each.code == code for each in driven)
        assert found[code].last_ms == max(each.rejected_ms for each in of_code)


def test_only_the_newest_are_read_however_many_there_are() -> None:
    offsets = {number: range(1_000_000) for number in range(7)}
    newest = newest_of(offsets, 20_000)
    assert sum(map(len, newest.values())) <= 20_000
    assert {each.stop for each in newest.values()} == {1_000_000}
    few = {0: range(5, 9), 1: range(0)}
    assert newest_of(few, 20_000) == few
    assert newest_of({}, 20_000) == {}

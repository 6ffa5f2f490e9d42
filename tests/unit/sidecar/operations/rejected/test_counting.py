"""Counts of rejected records by code, against the records that were put in."""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Self

import pytest

from sidecar.config.model import Config
from sidecar.operations.rejected import counting as module
from sidecar.operations.rejected.counting import Counting, Counts, newest_of
from sidecar.operations.rejected.records import Mark, RecordPosition, RejectedRecord


def record(partition: int, offset: int, code: str, topic: str = "d") -> RejectedRecord:
    place = RecordPosition(topic, 0, offset)
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
    # A record of another delay topic, a mark for a record that is not counted, and a message that is neither.
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


def test_a_rejected_topic_is_read_again_only_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    there, reads = {0: range(2), 1: range(3)}, []

    class Log:
        def __init__(self, *_: object) -> None:
            """Accept any topic."""

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            """Do nothing: there is nothing to close."""

        def committed(self) -> dict[int, range]:
            return dict(there)

        def scan(self, offsets: Mapping[int, range]) -> Iterator[Any]:
            reads.append(dict(offsets))
            yield from (record(number, offset, "EXPIRED") for number in offsets for offset in offsets[number])

    monkeypatch.setattr(module, "RejectedLog", Log)
    monkeypatch.setattr(module, "read", lambda message, _: message)
    config = Config.model_validate(
        {"kafka": {"bootstrap.servers": "x:1"}, "delay_topics": [{"name": "d", "default_target": "out"}]}
    )
    nobody: Any = None
    counts = Counts(config, nobody)
    (topic,) = config.delay_topics
    assert [counts.of(topic).codes["EXPIRED"].records for _ in range(3)] == [5, 5, 5]
    assert reads == [there]
    # Records are written, then removed by retention.
    for there[0] in (range(4), range(1, 4)):
        assert counts.of(topic).codes["EXPIRED"].records == len(there[0]) + 3
    assert len(reads) == 3

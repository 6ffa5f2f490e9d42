"""Counts of rejected records by code, against the records that were put in."""

import time
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Self

import pytest

from index.errors import DelayRouterError
from sidecar.config.delay_topic import DelayTopicConfig
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


class Rejected:
    """Rejected topics by name, in place of a cluster, and the topics that were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there: dict[str, dict[int, range]] = {}
        self.reads: list[str] = []
        self.fails: set[str] = set()
        monkeypatch.setattr(module, "RejectedLog", self.log)
        monkeypatch.setattr(module, "committed", lambda _, topics: {each: dict(self.there[each]) for each in topics})
        monkeypatch.setattr(module, "read", lambda message, _: message)

    def log(self, _config: Any, _admin: Any, topic: str, _until_s: float) -> "Log":
        self.reads.append(topic)
        if topic in self.fails:
            raise DelayRouterError("not readable")
        return Log(topic.removesuffix(".rejected"), self.there[topic])


class Log:
    def __init__(self, delay: str, there: dict[int, range]) -> None:
        self.delay = delay
        self.there = there

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is nothing to close."""

    def committed(self) -> dict[int, range]:
        return dict(self.there)

    def scan(self, offsets: Mapping[int, range]) -> Iterator[Any]:
        yield from (record(n, offset, "EXPIRED", self.delay) for n in offsets for offset in offsets[n])


def counts_of(*names: str) -> tuple[Counts, Sequence[DelayTopicConfig]]:
    topics = [{"name": name, "default_target": "out"} for name in names]
    config = Config.model_validate({"kafka": {"bootstrap.servers": "x:1"}, "delay_topics": topics})
    nobody: Any = None
    return Counts(config, nobody), config.delay_topics


def test_a_rejected_topic_is_read_again_only_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    rejected = Rejected(monkeypatch)
    there = rejected.there["d.rejected"] = {0: range(2), 1: range(3)}
    counts, (topic,) = counts_of("d")
    assert [counts.of(topic).codes["EXPIRED"].records for _ in range(3)] == [5, 5, 5]
    assert rejected.reads == ["d.rejected"]
    # Records are written, then removed by retention.
    for there[0] in (range(4), range(1, 4)):
        assert counts.of(topic).codes["EXPIRED"].records == len(there[0]) + 3
    assert len(rejected.reads) == 3


def test_all_topics_are_counted_and_only_what_has_changed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rejected = Rejected(monkeypatch)
    counts, topics = counts_of("d", "e", "f")
    rejected.there |= {each.rejected: {0: range(number)} for number, each in enumerate(topics, 1)}
    rejected.fails = {"e.rejected"}

    def told() -> dict[str, int]:
        return {name: each.codes["EXPIRED"].records for name, each in counts.of_each(topics).items()}

    assert told() == {"d": 1, "f": 3}, "one that cannot be read hides no other"
    rejected.fails = set()
    rejected.there["f.rejected"] = {0: range(9)}
    assert told() == {"d": 1, "e": 2, "f": 9}
    assert rejected.reads == ["d.rejected", "e.rejected", "f.rejected", "e.rejected", "f.rejected"]


def test_a_call_goes_on_where_the_one_before_had_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rejected = Rejected(monkeypatch)
    counts, topics = counts_of("d", "e")
    rejected.there |= {each.rejected: {0: range(1)} for each in topics}
    times = iter([0.0, 1.0, 9.0, 10.0, 11.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    assert list(counts.of_each(topics)) == ["d"]
    assert list(counts.of_each(topics)) == ["d", "e"]
    assert rejected.reads == ["d.rejected", "e.rejected"]

"""A search from the end of a topic back: how far it goes, and where it ends early."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sidecar.config.model import Config
from sidecar.engine.ports import Place
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import LogOffset
from sidecar.kafka.reading.scan import ScanError, Why
from sidecar.operations.status import searching
from sidecar.operations.status.searching import MOST_RECORDS, look_back

CONFIG = Config.model_validate({"kafka": {"bootstrap.servers": "b:1"}})
Script = dict[Place, list[int | Why]]


class Topic:
    """A topic with these offsets by partition, as a consumer describes it."""

    error = None

    def __init__(self, spans: dict[int, tuple[int, int]]) -> None:
        self.partitions = spans


def search(
    monkeypatch: pytest.MonkeyPatch, spans: dict[int, tuple[int, int]], script: Script, look: Callable[[Any], Any]
) -> tuple[list[Any], str]:
    """Search a topic with these spans of offsets, whose partitions hand over offsets, or fail."""

    class Consumer:
        def list_topics(self, *_: object) -> Any:
            return type("Found", (), {"topics": {"t": Topic(spans)}})

        def close(self) -> None:
            """Do nothing."""

    class Scan:
        def __init__(self, _: Any, ranges: dict[Place, range]) -> None:
            self.left = {place: each.stop for place, each in ranges.items() if each}
            self.ranges = ranges

        def records(self, _: float) -> Iterator[int]:
            for place in list(self.left):
                for each in script.pop(place, []):
                    if isinstance(each, Why):
                        raise ScanError(each, place, KafkaError(KafkaError._TIMED_OUT))
                    assert each in self.ranges[place]
                    yield each
                self.leave(place)

        def leave(self, place: Place) -> None:
            self.left.pop(place)

    def offsets(_: Any, wanted: dict[Place, Any], __: Any) -> dict[Place, LogOffset]:
        which = next(asked)
        return {place: LogOffset(spans[place[1]][which], None) for place in wanted}

    asked = iter((0, 1))
    monkeypatch.setattr(searching, "offsets", offsets)
    monkeypatch.setattr(searching, "PartitionScan", Scan)
    monkeypatch.setattr(clients, "bulk_reader", lambda _: Consumer())
    admin: Any = None
    return look_back(CONFIG, admin, "t", look, until_s=0)


def even(offset: int) -> int | None:
    return offset if offset % 2 == 0 else None


def test_a_small_topic_is_looked_through_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    script: Script = {("t", 0): [3, 4], ("t", 1): [8]}
    assert search(monkeypatch, {0: (3, 5), 1: (0, 9), 2: (7, 7)}, script, even) == ([4, 8], "")


def test_of_a_large_one_each_partition_gives_its_newest_records(monkeypatch: pytest.MonkeyPatch) -> None:
    end = 10 * MOST_RECORDS
    script: Script = {("t", 0): [end - MOST_RECORDS // 2]}
    found, unread = search(monkeypatch, {0: (0, end), 1: (0, 5)}, script, even)
    assert (found, unread) == ([end - MOST_RECORDS // 2], "of t only the newest 50,000 records were looked through")


def test_records_that_cannot_be_read_end_the_search_in_their_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    script: Script = {("t", 0): [2, Why.UNREADABLE], ("t", 1): [4]}
    found, unread = search(monkeypatch, {0: (0, 9), 1: (0, 9)}, script, even)
    assert (found, unread) == ([2, 4], "t/0 was not read to its end: the client cannot read a batch")


def test_the_time_ends_the_search_and_a_failure_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    found, unread = search(monkeypatch, {0: (0, 9)}, {("t", 0): [2, Why.OUT_OF_TIME]}, even)
    assert (found, unread) == ([2], "t was not read to its end: the time of one answer is over")
    with pytest.raises(ScanError):
        search(monkeypatch, {0: (0, 9)}, {("t", 0): [Why.SILENT]}, even)

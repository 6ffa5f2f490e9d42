"""Stored segments: the next page does not read again the segment in which a page ended, and topics are kept apart."""

from typing import cast

from index.bucket import Placement, SegmentRef
from index.progress import Position
from index.record import Record
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.finding.kafka_stored import KafkaStored, KnownSegments
from sidecar.finding.kept_readers import About, Readers
from sidecar.finding.known_pages import KnownPages
from snapshots.segment import encode_segment

REF = SegmentRef(Position(5, 1), Position(5, 1), 1, 9, 3, Placement.POINTER)
VALUE = encode_segment(Placement.POINTER, [(5, 1, None)])
TOPIC = DelayTopicConfig(name="d", default_target="out")


class Log:
    """Readers of one record, which count their calls."""

    def __init__(self, value: bytes | None) -> None:
        self.records = self
        self.asked = 0
        self._value = value

    def read_large(self, topic: str, partition: int, offsets: list[int]) -> dict[int, Record | None]:
        assert (topic, partition, offsets) == ("d.delay-snapshots", 0, [3])
        self.asked += 1
        return {3: None if self._value is None else Record(None, self._value, [], 0)}


def stored(log: Log, segments: KnownSegments, topic_id: str = "id") -> KafkaStored:
    about = About("d", topic_id, "that of its state")
    return KafkaStored(cast("Readers", log), TOPIC, about, 0, KnownPages(), segments)


def test_it_is_read_once_for_each_topic_of_that_name() -> None:
    log, segments = Log(VALUE), KnownSegments(10)
    assert [stored(log, segments).segment(REF) for _ in range(3)] == [[(5, 1, None)]] * 3
    assert log.asked == 1
    stored(log, segments, "id of another").segment(REF)
    assert log.asked == 2


def test_one_that_is_gone_is_looked_for_again() -> None:
    log, segments = Log(None), KnownSegments(10)
    assert [stored(log, segments).segment(REF) for _ in range(2)] == [None, None]
    assert log.asked == 2

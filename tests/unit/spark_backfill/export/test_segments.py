"""Segments are read by their places, and a missing one is never passed over: export.segments."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from index.pending.progress import BEFORE_ALL
from spark_backfill.errors import GoneError
from spark_backfill.export.segments import SEEK_BEYOND, Segment, _values


class Message:
    """A record of the snapshots topic, or an error in the place of one."""

    def __init__(self, offset: int, value: bytes | None, code: int | None = None) -> None:
        self._offset = offset
        self._value = value
        self._error = None if code is None else KafkaError(code)

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> KafkaError | None:
        return self._error


class Consumer:
    """Reads a log of partition 0 from where it is assigned; its end is an event."""

    def __init__(self, log: dict[int, bytes | None], start: int = 0) -> None:
        self._log = log
        self._start = start
        self._at = 0
        self.assigned: list[int] = []

    def assign(self, places: list[TopicPartition]) -> None:
        (place,) = places
        self.assigned.append(place.offset)
        self._at = place.offset

    def poll(self, timeout_s: float) -> Message:
        del timeout_s
        if self._at < self._start:
            return Message(-1, None, KafkaError._AUTO_OFFSET_RESET)
        left = sorted(offset for offset in self._log if offset >= self._at)
        if not left:
            return Message(-1, None, KafkaError._PARTITION_EOF)
        self._at = left[0] + 1
        return Message(left[0], self._log[left[0]])


def values(consumer: Any, *offsets: int) -> list[bytes]:
    segments = [Segment(0, offset, range(10), BEFORE_ALL) for offset in offsets]
    return [value for _, value in _values(consumer, "d.delay-snapshots", segments)]


def test_neighbours_are_read_on_and_others_looked_up() -> None:
    log: dict[int, bytes | None] = {offset: b"%d" % offset for offset in range(60) if offset % 5 != 1}
    consumer = Consumer(log)
    far = 5 + SEEK_BEYOND + 7
    assert values(consumer, 3, 5, far, far + 2) == [b"3", b"5", b"%d" % far, b"%d" % (far + 2)]
    assert consumer.assigned == [3, far]


@pytest.mark.parametrize(
    ("log", "start"),
    [({7: b"x"}, 0), ({3: None}, 0), ({1: b"x"}, 0), ({7: b"x"}, 7)],
    ids=["compacted", "removed", "at the end", "trimmed"],
)
def test_a_segment_that_is_gone_ends_the_attempt(log: dict[int, bytes | None], start: int) -> None:
    with pytest.raises(GoneError, match=r"d\.delay-snapshots/0: the segment at offset 3 is not there any more"):
        values(Consumer(log, start), 3)


class Denied(Consumer):
    """A consumer without the right to read."""

    def poll(self, timeout_s: float) -> Message:
        del timeout_s
        return Message(-1, None, KafkaError.TOPIC_AUTHORIZATION_FAILED)


def test_other_errors_are_told_as_they_are() -> None:
    with pytest.raises(KafkaException):
        values(Denied({}), 3)

"""Reads partitions from an offset on, up to their present ends or following them.

Other modules read with this scan; the table in its test names the few that read by themselves, with the reasons.

A partition is at its end when the position has reached the given end. The end-of-partition event tells the position
too, for partitions whose last offsets hold no record: compaction, control records and aborted records leave gaps. An
event in front of the given end ends nothing, for the broker may have become the leader a moment ago.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from index.errors import NotYetError, RefusedError, changed_on_disk
from sidecar.config.model import Config
from sidecar.engine.ports import Place, Stored
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import REQUEST_TIMEOUT_S, log_range, uncommitted_end
from sidecar.kafka.client.errors import error_of, is_partition_end, is_removed, is_unreadable

NO_END: Final = 1 << 62
"""End of a range that is followed: an offset behind every real one."""

POLL_S: Final = 0.1
SILENT_FOR_S: Final = 30.0
"""Brokers that deliver nothing for so long count as away."""

AT_ONCE: Final = 1_000


class Why(Enum):
    """Reason why a scan stopped in front of an end."""

    OUT_OF_TIME = "the time of the caller is over"
    SILENT = "the brokers hand over nothing"
    REMOVED = "the offset is gone: retention or an operator removed it"
    UNREADABLE = "the client cannot read a batch"
    FAILED = "any other error of the client or the brokers"


class ScanError(KafkaException):
    """A scan stopped at ``place`` in front of its end.

    The next call continues with all partitions, including this one unless the caller leaves it.
    """

    def __init__(self, why: Why, place: Place, error: KafkaError) -> None:
        super().__init__(error)
        self.why = why
        self.place = place


class PartitionScan:
    """Assigns ranges of offsets to a consumer and reads them; one thread uses the scan and its consumer.

    ``left`` holds the end of each partition that has not reached it yet, ``next_offset`` the position of each
    partition, and ``at_end`` the partitions whose end the client has reported since the last fetch.
    """

    def __init__(
        self,
        consumer: Consumer,
        ranges: Mapping[Place, range],
        *,
        at_once: int = AT_ONCE,
        running_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to read; ``at_once`` limits the number of records that one fetch takes from the client."""
        self.left = {place: each.stop for place, each in ranges.items() if each}
        self.next_offset = {place: each.start for place, each in ranges.items()}
        self.at_end: set[Place] = set()
        self._consumer = consumer
        self._at_once = at_once
        self._running_s = running_s
        self._fetched: deque[Message] = deque()
        consumer.assign([TopicPartition(*place, ranges[place].start) for place in self.left])

    def records(self, until_s: float = math.inf, silent_for_s: float = SILENT_FOR_S) -> Iterator[Message]:
        """Yield the records of the ranges, in order within a partition, until all partitions are at their ends.

        Raise ScanError at ``until_s`` of the clock, after ``silent_for_s`` without an answer, and when a partition
        fails.
        """
        yield from self.taken()
        heard_s = self._running_s()
        while self.left:
            if self._running_s() > until_s:
                raise self.stopped(Why.OUT_OF_TIME)
            if self.fetch(POLL_S):
                yield from self.taken()
                heard_s = self._running_s()
            elif self._running_s() - heard_s > silent_for_s:
                raise self.stopped(Why.SILENT)

    def fetch(self, wait_s: float) -> int:
        """Wait for a message, fetch it and those behind it, and return their number; ``taken`` yields the records."""
        self.at_end.clear()
        first = self._consumer.poll(wait_s)
        if first is None:
            return 0
        self._fetched.append(first)
        if self._at_once > 1:
            # consume(n, t) returns early only when it has n messages, so it must not wait here.
            self._fetched.extend(self._consumer.consume(self._at_once - 1, 0))
        return len(self._fetched)

    def taken(self) -> Iterator[Message]:
        """Yield the fetched records that lie in the ranges; raise ScanError when a partition fails."""
        while self._fetched:
            message = self._fetched.popleft()
            place, offset, error = place_of(message), message.offset() or 0, message.error()
            if place not in self.left:
                # The partition is finished or left, or the client reports an error that concerns no partition.
                if error is not None and place not in self.next_offset:
                    raise ScanError(_why(error), place, error)
            elif error is None:
                is_within = offset < self.left[place]
                self.at_end.discard(place)
                self._move(place, offset + 1)
                if is_within:
                    yield message
            elif is_partition_end(error):
                self.at_end.add(place)
                self._move(place, offset)
            else:
                raise ScanError(_why(error), place, error)

    def leave(self, place: Place) -> None:
        """Stop reading a partition."""
        if self.left.pop(place, None) is not None:
            self._consumer.pause([TopicPartition(*place)])

    def stopped(self, why: Why) -> ScanError:
        """Return the error that names the position of the scan, for a caller that waits by itself and raises it."""
        place = next(iter(self.left))
        text = f"{place[0]}/{place[1]}: offset {self.next_offset[place]} was not read in time"
        return ScanError(why, place, KafkaError(KafkaError._TIMED_OUT, text))

    def _move(self, place: Place, to_offset: int) -> None:
        self.next_offset[place] = max(self.next_offset[place], to_offset)
        if to_offset >= self.left[place]:
            del self.left[place]


def learn_leaders(consumer: Consumer, topic: str) -> None:
    """Fetch the leaders of a topic, because a client without them waits half a second before it looks up an offset."""
    consumer.list_topics(topic, REQUEST_TIMEOUT_S)


def range_of(consumer: Consumer, place: Place) -> range:
    """Return the offsets of a partition up to its present end.

    For a ``read_committed`` consumer that is the end of the committed records.
    """
    return range(*consumer.get_watermark_offsets(TopicPartition(*place), REQUEST_TIMEOUT_S))


def place_of(message: Message) -> Place:
    """Return the partition of a message."""
    return message.topic() or "", message.partition() or 0


def read_compacted(config: Config, name: str, partition: int, admin: AdminClient) -> list[Stored]:
    """Return every committed record.

    Raise NotYetError while an open transaction hides some of them, and KafkaException on an error.
    """
    start, settled = log_range(admin, name, partition)
    if settled != uncommitted_end(admin, name, partition):
        raise NotYetError(
            f"an open transaction hides the end of {name}/{partition}; should it last longer than transactions may:"
            " RUNBOOK, 'A transaction that nobody ends'"
        )
    return _read(config, name, partition, start, settled)


def read_settled(config: Config, name: str, partition: int, admin: AdminClient) -> list[Stored]:
    """Return every committed record in front of the first open transaction; these are consistent with each other."""
    return _read(config, name, partition, *log_range(admin, name, partition))


def read_part(consumer: Consumer, name: str, partition: int, start: int, end: int) -> list[Stored]:
    """Return the records that ``each_of_part`` yields."""
    return list(each_of_part(consumer, name, partition, start, end))


def each_of_part(consumer: Consumer, name: str, partition: int, start: int, end: int) -> Iterator[Stored]:
    """Yield every committed record of [start, end), and leave the consumer without an assignment.

    Raise RefusedError when a batch is damaged, ScanError when the scan does not reach the end.
    """
    try:
        scan = PartitionScan(consumer, {(name, partition): range(start, end)})
        for each in scan.records():
            yield Stored(each.offset() or 0, each.key(), each.value())
    except ScanError as error:
        if error.why is not Why.UNREADABLE:
            raise
        raise RefusedError(
            f"{changed_on_disk(f'{name}/{partition}', error_of(error).str())}, or restore {name}; see RUNBOOK,"
            " DelayRouterPartitionRefused, 'state damaged'"
        ) from error
    finally:
        consumer.unassign()


def _read(config: Config, name: str, partition: int, start: int, end: int) -> list[Stored]:
    if start >= end:
        return []
    consumer = clients.state_reader(config)
    try:
        return read_part(consumer, name, partition, start, end)
    finally:
        consumer.close()


def _why(error: KafkaError) -> Why:
    if is_removed(error):
        return Why.REMOVED
    return Why.UNREADABLE if is_unreadable(error) else Why.FAILED

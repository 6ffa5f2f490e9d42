"""Reads segments within a task, by their places in the snapshots topic, and passes their entries on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from index.buckets.bucket import Placement
from index.pending.progress import Position
from index.protocol.record import Record
from snapshots.segments.segment import StoredEntry
from snapshots.state.pending import StoredPending
from spark_backfill import cluster, kernel
from spark_backfill.buckets.collector import no_collector
from spark_backfill.errors import GoneError
from spark_backfill.export.rows import ExportRow, PendingRows, as_arrow

SEGMENT_SCHEMA: Final = (
    "partition int, record_offset bigint, from_offset bigint, to_offset bigint,"
    " after_due_ms bigint, after_offset bigint"
)
SEEK_BEYOND: Final = 8
"""Most records to read and drop before a new fetch pays, which costs a round trip."""

READ_TIMEOUT_S: Final = 60.0
_READING: Final = {
    # A segment is below 1 MB. The records fetched ahead are mostly wanted, and must fit a worker's memory.
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 0,
}
_OUT_OF_LOG: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._PARTITION_EOF)


class Segment(NamedTuple):
    """A segment to read: its place, the offsets of its bucket, and the watermark of the bucket."""

    partition: int
    record_offset: int
    offsets: range
    after: Position

    def row(self) -> tuple[int, ...]:
        """Return the segment as a row of SEGMENT_SCHEMA."""
        return (self.partition, self.record_offset, self.offsets.start, self.offsets.stop, *self.after)

    @classmethod
    def of(cls, row: Mapping[str, int]) -> "Segment":
        """Read a row of SEGMENT_SCHEMA."""
        partition, record_offset, start, stop, due_ms, offset = row.values()
        return cls(partition, record_offset, range(start, stop), Position(due_ms, offset))


class ChosenSegments(NamedTuple):
    """Segments with records in them, and segments in which at least some entries only name records of the delay topic.

    An inline segment of a bucket that needs the delay topic is in both.
    """

    inline: list[Segment]
    pointing: list[Segment]


def chosen(pending: Mapping[int, StoredPending]) -> ChosenSegments:
    """Return the segments that hold pending entries, in the order of their places."""
    found = ChosenSegments([], [])
    for partition, each in pending.items():
        for bucket, ref in each.segments():
            after = each.state.progress.watermark_of(bucket.bucket_id)
            segment = Segment(partition, ref.record_offset, range(bucket.from_offset, bucket.to_offset), after)
            if ref.placement is Placement.INLINE:
                found.inline.append(segment)
            if bucket.needs_from is not None:
                found.pointing.append(segment)
    return ChosenSegments(sorted(found.inline, key=_place), sorted(found.pointing, key=_place))


def _place(segment: Segment) -> tuple[int, int]:
    return segment.partition, segment.record_offset


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads segments; ``kafka`` are librdkafka's keys in a form that works on any machine.

    ``kernel`` is the driver's choice of a kernel (:mod:`spark_backfill.kernel`).
    """

    kafka: Mapping[str, str]
    group_id: str
    snapshots: str
    pending: Mapping[int, StoredPending]
    kernel: str

    def entries(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, list[StoredEntry]]]:
        """Yield partition and entries of each segment; the entries are pending by the state, unless a decision differs.

        Raises GoneError for a segment that is not there any more.
        """
        consumer = Consumer({**cluster.reading(self.kafka, self.group_id), **_READING})
        decode_columns = kernel.chosen(self.kernel).codec.decode_columns
        try:
            with no_collector():
                for batch in batches:
                    segments = [Segment.of(row) for row in batch.to_pylist()]
                    for segment, value in _values(consumer, self.snapshots, segments):
                        entries = decode_columns(value).entries()
                        pending = self.pending[segment.partition]
                        yield segment.partition, pending.entries(segment.offsets, segment.after, entries)
        finally:
            consumer.close()


@dataclass(frozen=True, slots=True)
class Decoding:
    """Function for mapInArrow over rows of SEGMENT_SCHEMA: yields rows of ROW_SCHEMA for records inside segments."""

    reading: Reading
    deciding: PendingRows

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of rows."""
        for partition, entries in self.reading.entries(batches):
            yield as_arrow(self._rows(partition, entries))

    def _rows(self, partition: int, entries: Sequence[StoredEntry]) -> Iterator[ExportRow]:
        pending = self.reading.pending[partition]
        for due_ms, offset, record in entries:
            if isinstance(record, Record):
                yield from self.deciding.row(pending, partition, offset, due_ms, record)


@dataclass(frozen=True, slots=True)
class Absent:
    """Function for mapInArrow over rows of SEGMENT_SCHEMA: yields rows of ABSENT_SCHEMA for named records."""

    reading: Reading

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of rows."""
        for partition, entries in self.reading.entries(batches):
            places = [(offset, due_ms) for due_ms, offset, record in entries if record is None]
            offsets, dues_ms = zip(*places, strict=True) if places else ((), ())
            arrays: list[Any] = [
                pa.array([partition] * len(places), pa.int32()),
                pa.array(offsets, pa.int64()),
                pa.array(dues_ms, pa.int64()),
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=["partition", "offset", "due_ms"])


def _values(consumer: Consumer, topic: str, segments: Iterable[Segment]) -> Iterator[tuple[Segment, bytes]]:
    """Yield segments with the values of their records, in the order given."""
    partition, at = -1, 0
    for segment in segments:
        ahead = segment.record_offset - at
        if segment.partition != partition or not 0 <= ahead <= SEEK_BEYOND:
            consumer.assign([TopicPartition(topic, segment.partition, segment.record_offset)])
        value = _read(consumer, topic, segment)
        partition, at = segment.partition, segment.record_offset + 1
        yield segment, value


def _read(consumer: Consumer, topic: str, segment: Segment) -> bytes:
    while True:
        message = consumer.poll(READ_TIMEOUT_S)
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{topic}/{segment.partition} was not read in time"))
        error = message.error()
        if error is not None and error.code() not in _OUT_OF_LOG:
            raise KafkaException(error)
        offset = message.offset()
        if error is None and offset is not None and offset < segment.record_offset:
            continue
        value = message.value() if error is None and offset == segment.record_offset else None
        if value is None:
            raise GoneError(
                f"{topic}/{segment.partition}: the segment at offset {segment.record_offset} is not there any more"
            )
        return value

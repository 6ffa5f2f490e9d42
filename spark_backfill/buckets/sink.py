"""A Spark data source for writing segments: tasks write them, and the driver's commit stages their buckets.

Spark calls ``write`` in each task and gives ``commit`` the message of one attempt of each. A task that fails and is
tried again, or runs twice at once (speculation), leaves segments that no manifest names. They are tombstoned where the
attempt still can, and else go when the topic is trimmed. A job that is killed before its commit has staged nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from index.buckets.bucket import SegmentRef
from index.buckets.due_marks import thinned
from index.named.id_pages import IdPageRef
from snapshots.segments.id_pages import EncodedPage
from snapshots.segments.manifest import MAX_SEGMENTS
from snapshots.segments.writing import Encoded
from snapshots.state.staged import staged_page_key, staged_segment_key
from spark_backfill.buckets.collector import no_collector
from spark_backfill.buckets.cutting import Cutter
from spark_backfill.buckets.job import Job
from spark_backfill.buckets.runs import in_order
from spark_backfill.buckets.staging import outcome_is_open, stage, too_many_segments
from spark_backfill.kernel import chosen, told

FORMAT: Final = "delay-router-segments"
DELIVERY_TIMEOUT_S: Final = 300.0

MARKS_A_TASK: Final = 2_048
"""Most due marks that a task reports for its segments: the driver has the marks of all tasks in memory, and a manifest
has room for the marks of eight tasks."""

_producers: dict[str, Producer] = {}


@dataclass
class TaskOutput(WriterCommitMessage):
    """The output of one attempt of a task: segments and pages of ids by number of their bucket, and its kernels."""

    segments: list[tuple[int, SegmentRef]] = field(default_factory=list)
    id_pages: list[tuple[int, IdPageRef]] = field(default_factory=list)
    keys: list[tuple[int, bytes]] = field(default_factory=list)
    needs_from: dict[int, int] = field(default_factory=dict)
    kernels: list[str] = field(default_factory=list)


def data_source(job: Job) -> type[DataSource]:
    """Return the data source of one job. Its settings travel in the class, because Spark shows options.

    The class has no name in a module, so that it is sent whole.
    """

    class Segments(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002 -- Spark's
            return SegmentsWriter(job)

    return Segments


class SegmentsWriter(DataSourceArrowWriter):
    """Writes the segments of all tasks, and stages them."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutput:
        """Sort, cut, encode and write the records in the runs of one task."""
        context = TaskContext.get()
        attempt = f"{self._job.run}.{context.taskAttemptId() if context else 0}"
        return write_segments(self._job, attempt, in_order(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Stage the buckets, all in one transaction."""
        written = [message for message in messages if isinstance(message, TaskOutput)]
        segments = [each for message in written for each in message.segments]
        id_pages = [each for message in written for each in message.id_pages]
        needs_from: dict[int, int] = {}
        for message in written:
            for bucket, offset in message.needs_from.items():
                needs_from[bucket] = min(offset, needs_from.get(bucket, offset))
        kernel = told([each for message in written for each in message.kernels])
        stage(self._job, segments, id_pages, needs_from, kernel)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tombstone the segments of tasks that got through, unless they may be staged already."""
        if outcome_is_open(self._job):
            return
        keys = [key for message in messages if isinstance(message, TaskOutput) for key in message.keys]
        _tombstone(self._job, keys)


def write_segments(job: Job, attempt: str, batches: Iterator[pa.RecordBatch]) -> TaskOutput:
    """Write the segments of sorted batches and wait for all acknowledgements; raise KafkaException otherwise."""
    writing = _AttemptWriting(job, attempt)
    try:
        with no_collector():
            writing.write(batches)
    except BaseException:
        writing.give_up()
        raise
    return writing.written


class _AttemptWriting:
    """One attempt of a task."""

    def __init__(self, job: Job, attempt: str) -> None:
        self.written = TaskOutput()
        self._job = job
        self._attempt = attempt
        self._producer = _producer_of(job)
        self._errors: list[KafkaError] = []
        self._numbers: Counter[int] = Counter()
        self._page_numbers: Counter[int] = Counter()

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Write all segments and pages."""
        kernel = chosen(self._job.kernel)
        self.written.kernels = [kernel.name]
        cutter = Cutter(self._job.slots.buckets, self._job.seal_rules, kernel.codec)
        for bucket, encoded in cutter.segments(batches):
            self._send(bucket, encoded)
            self._raise_first()
        for bucket, page in cutter.pages():
            self._send_page(bucket, page)
            self._raise_first()
        if left := self._producer.flush(DELIVERY_TIMEOUT_S):
            self._errors.append(KafkaError(KafkaError._TIMED_OUT, f"{left} segments were not acknowledged"))
        self._raise_first()
        written = self.written.segments
        refs = thinned([ref for _, ref in written], MARKS_A_TASK)
        self.written.segments = [(bucket, ref) for (bucket, _), ref in zip(written, refs, strict=True)]
        self.written.needs_from = cutter.needs_from

    def give_up(self) -> None:
        """Drop unsent records, and tombstone the sent ones."""
        _producers.clear()
        self._producer.purge()
        _tombstone(self._job, self.written.keys)

    def _send(self, bucket: int, encoded: Encoded) -> None:
        if self._numbers[bucket] == MAX_SEGMENTS:
            raise too_many_segments(self._job, bucket)
        key = staged_segment_key(self._job.name, self._start(bucket), self._numbers[bucket], self._attempt)
        self._numbers[bucket] += 1

        def note(offset: int) -> None:
            self.written.segments.append((bucket, encoded.ref._replace(record_offset=offset)))

        self._produce(bucket, key, encoded.value, note)

    def _send_page(self, bucket: int, page: EncodedPage) -> None:
        key = staged_page_key(self._job.name, self._start(bucket), self._page_numbers[bucket], self._attempt)
        self._page_numbers[bucket] += 1

        def note(offset: int) -> None:
            self.written.id_pages.append((bucket, page.ref._replace(record_offset=offset)))

        self._produce(bucket, key, page.value, note)

    def _start(self, bucket: int) -> int:
        return self._job.slots.buckets[bucket].from_offset

    def _produce(self, bucket: int, key: bytes, value: bytes, note: Callable[[int], None]) -> None:
        partition = self._job.slots.buckets[bucket].partition
        self.written.keys.append((partition, key))
        _produce(self._producer, self._job.snapshots, key, value, partition, partial(self._delivered, note))

    def _delivered(self, note: Callable[[int], None], error: KafkaError | None, sent: Message) -> None:
        offset = sent.offset()
        if error is not None or offset is None:
            self._errors.append(error or KafkaError(KafkaError.UNKNOWN, "a record was written at no offset"))
        else:
            note(offset)

    def _raise_first(self) -> None:
        if self._errors:
            raise KafkaException(self._errors[0])


def _producer_of(job: Job) -> Producer:
    """Return this process's producer for a run. Starting one takes a second: most of the time of a small task."""
    if job.run not in _producers:
        _producers.clear()
        _producers[job.run] = Producer(job.producer())
    return _producers[job.run]


def _produce(producer: Producer, topic: str, key: bytes, value: bytes | None, partition: int, report: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, key, partition, on_delivery=report)
        except BufferError:
            producer.poll(0.5)
        else:
            producer.poll(0)
            return


def _tombstone(job: Job, keys: list[tuple[int, bytes]]) -> None:
    """Tombstone keys as far as possible: no manifest names a segment that stays, and it goes with the next trim."""
    producer = Producer(job.producer())
    for partition, key in keys:
        _produce(producer, job.snapshots, key, None, partition, None)
    producer.flush(10.0)

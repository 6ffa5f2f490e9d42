"""A sample of the records of large buckets: the spread of their due times, and their sizes.

The driver reads a few hundred records of each bucket.

Rejected: Spark's own range partitioning, which samples by running everything before it, so that each record would be
read and decided twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.schedule import Rejection, due_ms_of
from index.rules.rules import Rules
from snapshots.segments.manifest import MAX_SEGMENTS
from snapshots.segments.writing import record_size
from spark_backfill import cluster
from spark_backfill.buckets.plan import BucketRange, slot_count

RECORDS_A_PLACE: Final = 32
BYTES_A_PLACE: Final = 262_144
"""Bytes to read at a place, which are enough of large records."""

SCATTERED: Final = {
    "queued.min.messages": RECORDS_A_PLACE,
    "fetch.message.max.bytes": 65_536,
    "fetch.wait.max.ms": 10,
    # By default a reader that is ahead pauses for a second, which would happen at every place.
    "fetch.queue.backoff.ms": 0,
}
PLACES_A_SLOT: Final = 4
MOST_PLACES: Final = 64
READ_TIMEOUT_S: Final = 10.0


class Sampled(NamedTuple):
    """A sampled record: its place in the order of release, and its approximate size in a segment."""

    position: Position
    size_bytes: int


def sample(
    settings: cluster.Connection, rules: Rules, buckets: Sequence[BucketRange], slot_records: int
) -> Mapping[BucketRange, list[Sampled]]:
    """Sample each bucket that has more than one slot, or might have more segments than a manifest takes."""
    large = [bucket for bucket in buckets if slot_count(bucket, slot_records) > 1 or bucket.span > MAX_SEGMENTS]
    if not large:
        return {}
    consumer = Consumer({**cluster.reading(settings.kafka, settings.group_id), **SCATTERED})
    try:
        return {bucket: list(_of_bucket(consumer, rules, bucket, slot_records)) for bucket in large}
    finally:
        consumer.close()


def places(bucket: BucketRange, slot_records: int) -> list[int]:
    """Return the offsets to sample, spread evenly."""
    count = min(MOST_PLACES, PLACES_A_SLOT * slot_count(bucket, slot_records), bucket.span)
    return [bucket.from_offset + bucket.span * number // count for number in range(count)]


def _of_bucket(consumer: Consumer, rules: Rules, bucket: BucketRange, slot_records: int) -> Iterator[Sampled]:
    for offset in places(bucket, slot_records):
        consumer.assign([TopicPartition(rules.topic, bucket.partition, offset)])
        read_bytes = 0
        for _ in range(RECORDS_A_PLACE):
            if read_bytes > BYTES_A_PLACE:
                break
            message = consumer.poll(READ_TIMEOUT_S)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"offset {offset} was not read in time"))
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                break
            # The stubs also allow types that only a producer takes; headers that were read are a list of pairs.
            headers: Any = message.headers() or ()
            timestamp_ms = message.timestamp()[1]
            at = message.offset() or 0
            decision = rules.placed(rules.decide(headers, timestamp_ms), timestamp_ms, at)
            size_bytes = record_size(Record(message.key(), message.value(), headers, timestamp_ms))
            read_bytes += size_bytes
            is_rejected = isinstance(decision, Rejection)
            yield Sampled(Position(due_ms_of(decision), at), record_size(None) if is_rejected else size_bytes)

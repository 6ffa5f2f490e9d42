"""A glance at the records of large buckets, to see how their due times are spread: a few hundred each, on the driver.

Rejected: Spark's own range partitioning, which samples by running everything before it, so that each record would be
read and decided twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from index.progress import Position
from index.rules import Rules
from index.schedule import AT_ONCE, Rejection
from spark_backfill import cluster
from spark_backfill.plan import BucketRange, slot_count

RECORDS_A_PLACE: Final = 32
SCATTERED: Final = {
    "queued.min.messages": RECORDS_A_PLACE,
    "fetch.message.max.bytes": 65_536,
    "fetch.wait.max.ms": 10,
    # By default a reader that is ahead looks again after a second: at every place.
    "fetch.queue.backoff.ms": 0,
}
PLACES_A_SLOT: Final = 4
MOST_PLACES: Final = 64
READ_TIMEOUT_S: Final = 10.0


def sample(
    settings: cluster.Connection, rules: Rules, buckets: Sequence[BucketRange], slot_records: int
) -> Mapping[BucketRange, list[Position]]:
    """Positions of some records of each bucket that has more than one slot."""
    large = [bucket for bucket in buckets if slot_count(bucket, slot_records) > 1]
    if not large:
        return {}
    consumer = Consumer({**cluster.reading(settings.kafka, settings.group_id), **SCATTERED})
    try:
        return {bucket: list(_of_bucket(consumer, rules, bucket, slot_records)) for bucket in large}
    finally:
        consumer.close()


def places(bucket: BucketRange, slot_records: int) -> list[int]:
    """Offsets to look at, spread evenly."""
    count = min(MOST_PLACES, PLACES_A_SLOT * slot_count(bucket, slot_records), bucket.span)
    return [bucket.from_offset + bucket.span * number // count for number in range(count)]


def _of_bucket(consumer: Consumer, rules: Rules, bucket: BucketRange, slot_records: int) -> Iterator[Position]:
    for offset in places(bucket, slot_records):
        consumer.assign([TopicPartition(rules.topic, bucket.partition, offset)])
        for _ in range(RECORDS_A_PLACE):
            message = consumer.poll(READ_TIMEOUT_S)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"offset {offset} was not read in time"))
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                break
            # The stubs also allow what may only be given to produce; read, headers are a list of pairs.
            headers: Any = message.headers()
            decision = rules.decide(headers or (), message.timestamp()[1])
            due_ms = AT_ONCE if isinstance(decision, Rejection) else decision.due_ms
            yield Position(due_ms, message.offset() or 0)

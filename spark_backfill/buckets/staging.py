"""Records of the backfill topic: intents before any segment is written, and staged buckets when all are.

An intent keeps the owner of the partition from trimming segments that no manifest names yet. It expires by itself, so a
killed job does not hold back trimming for long; while a job runs, its driver renews it.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from index.buckets.bucket import Manifest, SegmentRef
from index.errors import FormatError
from index.named.id_pages import MAX_PAGES, IdPageRef
from snapshots.segments.manifest import MAX_SEGMENTS
from snapshots.state.staged import (
    INTENT_PREFIX,
    STAGED_PREFIX,
    Intent,
    StagedBucket,
    decode_intent,
    encode_intent,
    encode_staged,
    intent_key,
    latest_of,
    staged_key,
)
from spark_backfill import cluster
from spark_backfill.buckets.job import Job
from spark_backfill.errors import JobError

INTENT_LASTS_MS: Final = 3_600_000
RENEWED_EVERY_MS: Final = 300_000
TRANSACTION_TIMEOUT_S: Final = 60.0
CANCEL_TIMEOUT_S: Final = 10.0


class Intents:
    """The intents of one run of a job, one for each of its partitions; used by the driver."""

    def __init__(self, intent: str, backfill: str, producer: dict[str, Any], snapshots_from: Mapping[int, int]) -> None:
        """Describe the intents: ``intent`` names this run alone, ``backfill`` is the topic.

        ``producer`` has the settings of a producer.
        """
        self._intent = intent
        self._backfill = backfill
        self._settings = producer
        self._snapshots_from = snapshots_from
        self._written_ms = 0
        self._has_lapsed = False

    def write(self) -> None:
        """Write all intents, and wait for the brokers to acknowledge them; raise KafkaException otherwise."""
        written_ms = _now_ms()
        self._send(
            {
                partition: encode_intent(Intent(self._intent, offset, written_ms + INTENT_LASTS_MS))
                for partition, offset in self._snapshots_from.items()
            },
            TRANSACTION_TIMEOUT_S,
        )
        # A machine that stood still writes again as if nothing had happened.
        self._has_lapsed |= bool(self._written_ms) and not self.hold
        self._written_ms = written_ms

    def renew(self) -> None:
        """Write the intents again when a good part of their time is over."""
        if _now_ms() - self._written_ms > RENEWED_EVERY_MS:
            self.write()

    @property
    def hold(self) -> bool:
        """Return true if the intents have been in force without a gap since they were written."""
        return not self._has_lapsed and _now_ms() < self._written_ms + INTENT_LASTS_MS

    def cancel(self) -> None:
        """Remove the intents of a job that failed; where the request does not get through, they expire."""
        self._send(dict.fromkeys(self._snapshots_from), CANCEL_TIMEOUT_S)

    def _send(self, values: Mapping[int, bytes | None], timeout_s: float) -> None:
        errors: list[KafkaError] = []
        producer = Producer(self._settings)
        for partition, value in values.items():
            producer.produce(
                self._backfill,
                value,
                intent_key(self._intent),
                partition,
                on_delivery=lambda error, _: errors.append(error) if error is not None else None,
            )
        if left := producer.flush(timeout_s):
            errors.append(KafkaError(KafkaError._TIMED_OUT, f"{left} records for {self._backfill} not acknowledged"))
        if errors:
            raise KafkaException(errors[0])


def stage(
    job: Job,
    segments: Sequence[tuple[int, SegmentRef]],
    id_pages: Sequence[tuple[int, IdPageRef]],
    needs_from: Mapping[int, int],
    kernel: str,
) -> None:
    """Write every bucket of the job and remove its intents, all in one transaction; ``kernel`` goes into the report.

    Raises JobError when the delay topic is not the one that was read, or when written segments were trimmed;
    KafkaException when the transaction does not get through: ``outcome_is_open`` tells whether it may be committed all
    the same. Running the job again is harmless either way.
    """
    for number, count in Counter(number for number, _ in segments).items():
        if count > MAX_SEGMENTS:
            raise too_many_segments(job, number)
    admin = cluster.connect(job)
    _refuse_other_topic(job, admin)
    starts = {number: log.start for number, log in cluster.log_ranges(admin, job.snapshots, job.partitions).items()}
    refuse_trimmed(job, starts, [*segments, *id_pages])
    staged = staged_buckets(job, segments, id_pages, needs_from)
    stale = list(_stale(job, admin))
    producer = Producer(job.producer(**{"transactional.id": job.transactional_id}))
    producer.init_transactions(TRANSACTION_TIMEOUT_S)
    producer.begin_transaction()
    for bucket, each in zip(job.slots.buckets, staged, strict=True):
        key = staged_key(job.name, bucket.from_offset)
        producer.produce(job.backfill, encode_staged(each), key, bucket.partition)
    for partition, key in [*stale, *((partition, intent_key(job.intent)) for partition in job.partitions)]:
        producer.produce(job.backfill, None, key, partition)
    _commit(job, producer)
    manifests = [each.manifest for each in staged]
    summary = {
        "buckets": len(manifests),
        "entries": sum(manifest.entries for manifest in manifests),
        "segments": len(segments),
        "bytes": sum(ref.size_bytes for _, ref in segments),
        "kernel": kernel,
    }
    Path(job.report).write_text(json.dumps(summary), encoding="utf-8")


def refuse_trimmed(job: Job, starts: Mapping[int, int], written: Iterable[tuple[int, SegmentRef | IdPageRef]]) -> None:
    """Raise JobError if a router has trimmed segments or pages that the job wrote.

    A router trims them only after the intents of the job have expired, because its driver stood still for an hour.
    ``starts`` has the first offset of each partition of the snapshots topic.
    """
    for number, ref in written:
        partition = job.slots.buckets[number].partition
        if ref.record_offset < starts[partition]:
            raise JobError(
                f"{job.snapshots}/{partition}: offset {ref.record_offset}, which the job wrote, was trimmed; the driver"
                " stood still for so long that its intents expired. Nothing was staged: run the job again"
            )


def too_many_segments(job: Job, bucket: int) -> JobError:
    """Describe the error of a bucket whose records were fewer or smaller in the sample than they are."""
    span = job.slots.buckets[bucket]
    return JobError(
        f"{job.delay_topic}/{span.partition}: offsets {span.from_offset} to {span.to_offset} become more than the"
        f" {MAX_SEGMENTS:,} segments that one bucket can have; nothing was staged. Divide them into more buckets:"
        f" --bucket-records {span.span // 4}, or less"
    )


def outcome_is_open(job: Job) -> bool:
    """Return true if a commit was requested and its answer is missing or is no clear refusal.

    Then the buckets may be staged, and name segments: nothing that protects the segments may be taken back.
    """
    return Path(job.report).exists()


def _commit(job: Job, producer: Producer) -> None:
    # The report also informs the abort, which runs in another process of this machine.
    Path(job.report).touch()
    try:
        producer.commit_transaction(TRANSACTION_TIMEOUT_S)
    except KafkaException as exception:
        if exception.args[0].txn_requires_abort():
            producer.abort_transaction(TRANSACTION_TIMEOUT_S)
            Path(job.report).unlink()
        raise


def staged_buckets(
    job: Job,
    segments: Sequence[tuple[int, SegmentRef]],
    id_pages: Sequence[tuple[int, IdPageRef]],
    needs_from: Mapping[int, int],
) -> list[StagedBucket]:
    """Return a staged bucket for each range, in order; a bucket without pending records has no segments."""
    of_bucket: dict[int, list[SegmentRef]] = {}
    for bucket, ref in segments:
        of_bucket.setdefault(bucket, []).append(ref)
    pages: dict[int, list[IdPageRef]] = {}
    for bucket, page in id_pages:
        pages.setdefault(bucket, []).append(page)
    manifests = [
        Manifest(
            0,
            span.from_offset,
            span.to_offset,
            needs_from.get(number),
            tuple(sorted(of_bucket.get(number, ()))),
            id_pages=_in_order(pages.get(number, ())),
        )
        for number, span in enumerate(job.slots.buckets)
    ]
    return [StagedBucket(job.name, job.delay_topic_id, job.rules, manifest, job.restores) for manifest in manifests]


def _in_order(pages: Sequence[IdPageRef]) -> tuple[IdPageRef, ...] | None:
    """Order the pages of one bucket by their ids; return None where they are too many for a manifest."""
    # Pages that begin alike come from one task, which has written them in order.
    ordered = sorted(pages, key=lambda page: (page.first_hash, page.record_offset))
    return tuple(ordered) if len(ordered) <= MAX_PAGES else None


def _now_ms() -> int:
    """Return the wall clock, by which routers decide whether an intent has expired."""
    return time.time_ns() // 1_000_000


def _stale(job: Job, admin: AdminClient) -> Iterator[tuple[int, bytes]]:
    """Yield leftovers of earlier runs: buckets of another division, and expired intents."""
    prefix = STAGED_PREFIX + f"{job.name}/".encode("ascii")
    written = {(bucket.partition, staged_key(job.name, bucket.from_offset)) for bucket in job.slots.buckets}
    for partition, log in cluster.log_ranges(admin, job.backfill, job.partitions).items():
        for key, value in latest_of(cluster.records_of(job, job.backfill, partition, log.end)).items():
            is_old = key.startswith(prefix) and (partition, key) not in written
            if is_old or (key.startswith(INTENT_PREFIX) and _is_over(key, value)):
                yield partition, key


def _is_over(key: bytes, value: bytes) -> bool:
    """Return true if an intent has expired; an unreadable intent is kept for a version that can read it."""
    try:
        return decode_intent(key, value).expires_ms < _now_ms()
    except FormatError:
        return False


def _refuse_other_topic(job: Job, admin: AdminClient) -> None:
    now = cluster.topic(admin, job.delay_topic).topic_id
    if now != job.delay_topic_id:
        raise JobError(
            f"delay topic {job.delay_topic} was deleted and created again while the job ran (id {now}, it read"
            f" {job.delay_topic_id}); nothing was staged"
        )

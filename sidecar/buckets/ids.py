"""Which ids the records in buckets have, read from their segments when the first control asks.

Meanwhile nothing is taken in, since a control holds for what lies in front of it; what is due goes on. What is sealed
from then on is known without reading (:mod:`index.names`). So whoever takes a partition over reads each bucket once
more, and only where there are controls.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

from confluent_kafka import KafkaException

from index.bucket import Bucket, Manifest
from index.id_runs import places_of
from index.names import AnyPlaces, hash_of
from index.pending import Entry
from index.progress import Position
from sidecar.buckets.pool import LoaderPool
from sidecar.buckets.segments import SegmentSource
from sidecar.context import PartitionContext
from sidecar.intake.offset_reader import OffsetReader
from sidecar.kafka.errors import error_of
from sidecar.payload.ledger import PartitionLedger
from sidecar.payload.records import Scheduled
from sidecar.release.gate import Gate

RETRY_AFTER_S: Final = 1.0

TOGETHER: Final = 250_000
"""Places that are made compact together: each time an id is looked for, each lot of them is searched."""


class StoredIds:
    """Belongs to one owned partition; used by its worker only."""

    def __init__(
        self, context: PartitionContext, ledger: PartitionLedger, source: SegmentSource, pool: LoaderPool, gate: Gate
    ) -> None:
        self._ledger = ledger
        self._source = source
        self._pool = pool
        self._gate = gate
        self._clock = context.clock
        self._log = context.log
        self._metrics = context.metrics
        self._topic = context.name
        self._reading: dict[int, Future[list[AnyPlaces]]] = {}
        self._retry_s = 0.0

    @property
    def is_reading(self) -> bool:
        """Whether something has to be read before the next record can be taken in."""
        fails = self._clock.running_s() < self._retry_s
        return fails or any(not reading.done() for reading in self._reading.values())

    @property
    def being_read(self) -> tuple[int, ...]:
        """Ids of the buckets whose segments are being read, and have to stay."""
        return tuple(self._reading)

    def are_known(self) -> bool:
        """Whether it is known where records of any id are; else it is being read: ask again.

        RefusedError when a segment is lost for good.
        """
        self._take_in()
        names = self._ledger.named.names
        names.ask()
        unknown = [each for each in self._ledger.parts.buckets.values() if not names.is_known(_range(each))]
        for run in names.take_loose():
            self._pool.encode(run.compact)
        if self._clock.running_s() >= self._retry_s:
            for bucket in unknown:
                if bucket.manifest.bucket_id not in self._reading:
                    self._ask(bucket)
        return not unknown

    def held(self, deliver_id: bytes) -> Sequence[Position]:
        """Where records of this id are due that are held for their targets."""
        return self._gate.places_of(deliver_id)

    def _ask(self, bucket: Bucket) -> None:
        manifest, first = bucket.manifest, bucket.passed(self._ledger.committed.watermark)

        def read(reader: OffsetReader) -> list[AnyPlaces]:
            return self._read(manifest, first, reader)

        self._reading[manifest.bucket_id] = self._pool.scan(read)

    def _read(self, manifest: Manifest, first: int, reader: OffsetReader) -> list[AnyPlaces]:
        found: list[AnyPlaces] = [{}]
        for number in range(first, len(manifest.segments)):
            _note(self._source.load(manifest, number, reader), found[-1])
            if len(found[-1]) >= TOGETHER:
                found.append({})
        return found

    def _take_in(self) -> None:
        for bucket_id, reading in list(self._reading.items()):
            if not reading.done():
                continue
            del self._reading[bucket_id]
            bucket = self._ledger.parts.buckets.get(bucket_id)
            if bucket is None:
                # It was merged meanwhile: what it was merged into is read instead.
                continue
            try:
                found = reading.result()
            except KafkaException as exception:
                self._metrics.load_failures.labels(self._topic).inc()
                self._log.warning("ids_not_read", bucket=bucket_id, error=error_of(exception).str())
                self._retry_s = self._clock.running_s() + RETRY_AFTER_S
                continue
            self._ledger.named.names.read(_range(bucket), *found)


def _range(bucket: Bucket) -> range:
    return range(bucket.manifest.from_offset, bucket.manifest.to_offset)


def _note(entries: Sequence[Entry[Scheduled]], found: AnyPlaces) -> None:
    for due_ms, offset, (schedule, _, _) in entries:
        if schedule.deliver_id is not None and schedule.targets:
            id_hash, place = hash_of(schedule.deliver_id), Position(due_ms, offset)
            found[id_hash] = [*places_of(found, id_hash), place] if id_hash in found else place

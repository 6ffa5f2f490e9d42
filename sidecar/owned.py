"""Everything a worker owns of its partition between two take-overs; made and thrown away as a whole."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from index.adopting import Adoption
from index.batch import Batch
from index.needed import Kept
from index.partition import PartitionIndex
from index.record import Record
from index.rules import Rules
from sidecar import admin as cluster
from sidecar import check, clients, failpoints
from sidecar.admin import topic_settings
from sidecar.adopting import Adopting
from sidecar.budget import PayloadBudget
from sidecar.chores import Chores
from sidecar.config import Config
from sidecar.config_topic import DelayTopicConfig
from sidecar.housekeeping import Housekeeping
from sidecar.intake import NEVER, Indexed, Intake, PartitionLedger
from sidecar.kafka_errors import Verdict, classify, error_of
from sidecar.loading import LoaderPool, Loading
from sidecar.metrics import Metrics
from sidecar.packing import whole_batch
from sidecar.reader import OffsetReader
from sidecar.records import Payload, Refused, resident_bytes, scheduled_size
from sidecar.release import Released, Releaser, commit
from sidecar.restoring import has_records, kept_by_backfills, read_backfills
from sidecar.retention import placement_under, retention_of
from sidecar.segments import SegmentSource
from sidecar.staging import Place, Staging
from sidecar.takeover import Origin, fence, read_origin
from sidecar.targets import TargetDirectory
from sidecar.transaction import PartitionWriter
from sidecar.trimming import Trimming
from sidecar.upkeep import Upkeep

MAX_BATCH_BYTES = 64 * 1_048_576
"""Most payload in one transaction: at 100 MB/s it takes under a second, far below any transaction timeout."""

DROPPED_AT_ONCE = 10_000
"""Entries let go of in one round once a bucket holds them: freeing all at once would stall the release loop."""

LOOK_WITHIN_S = 10.0
"""Longest wait at a take-over for what is staged, if there is anything, before the delay topic is read on."""

MAX_MESSAGE_BYTES = 16 * 1_048_576
"""Limit of the client; the broker's own limit, which is usually lower, decides what is refused."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the workers of a process have in common; each part is safe to use from any thread.

    ``still_ours`` asks the group whether this process is still assigned a partition, ``now_ns`` is the wall clock.
    """

    config: Config
    admin: AdminClient
    directory: TargetDirectory
    budget: PayloadBudget
    metrics: Metrics
    pool: LoaderPool
    staging: Staging
    still_ours: Callable[[str, int], bool]
    now_ns: Callable[[], int]


class Owned:
    """A fenced partition: producer, tail, index and releaser."""

    def __init__(self, shared: Shared, topic: DelayTopicConfig, partition: int, rules: Rules) -> None:
        self._shared = shared
        self._producer = clients.producer(shared.config, topic.name, partition, MAX_MESSAGE_BYTES)
        self._topic = topic
        self.partition = partition
        self._rules = rules
        self._resident_bytes = 0
        self._reader = OffsetReader(lambda: clients.reader(shared.config))
        self._staged_at = Place(topic.backfill, topic.snapshots, partition)

    def fence(self, stopping: Callable[[], bool]) -> None:
        """Become the only writer of the partition."""
        fence(self._producer, stopping)
        failpoints.passing("recovery.fenced")

    def restore(self) -> Origin:
        """Read where the last owner stood, write what is new about that, and start to read the delay topic from S."""
        shared, topic, partition = self._shared, self._topic, self.partition
        # A client of its own: one that has lived through a restart of the brokers goes on asking with the leader epochs
        # of before, and is refused until it happens to refresh its metadata.
        admin = cluster.connect(shared.config)
        shared.staging.watch(self._staged_at)
        origin = read_origin(shared.config, topic, partition, admin, self._rules)
        failpoints.passing("recovery.state_read")
        writer = PartitionWriter(self._producer, topic, partition, self._rules, origin.delay_topic_id)
        if not origin.is_stored:
            self._producer.begin_transaction()
            writer.write_epochs(origin.epochs)
            if origin.restored:
                for manifest in origin.buckets:
                    writer.write_manifest(manifest)
                writer.write_chores(Chores(withdrawn=tuple(key for key, _ in origin.restored)))
            writer.write_progress(origin.progress)
            commit(self._producer)
        self.ledger: PartitionLedger = PartitionIndex(origin.progress, scheduled_size, origin.buckets)
        compresses = clients.compresses(shared.config)
        source = SegmentSource(topic, partition, origin.epochs)
        self._decide = source.decide
        self._releaser = Releaser(writer, self._rules, shared.directory, self._read, compresses, source.decide)
        self._epochs = origin.epochs
        staged = has_records(admin, topic.backfill, partition)
        # Not beyond C, before it is known what was staged: C would pass it.
        self._intake = self._read_on(origin.progress.cursor if staged else NEVER)
        parts = self.ledger.parts
        self._loading = Loading(parts, source, shared.pool, shared.budget, shared.metrics, topic.name)
        retention = retention_of(topic_settings(admin, [topic.name])[topic.name])
        rules = replace(topic.seal_rules, placement=placement_under(topic, retention))
        self._housekeeping = Housekeeping(
            self.ledger, rules, topic.max_buckets, source, shared.pool, shared.metrics, topic.name
        )
        bootstrap = check.bootstrap(shared.config)
        trimming = Trimming(shared.admin, bootstrap, topic, partition, shared.metrics, self._look_at_backfills)
        self.upkeep = Upkeep(self.ledger, trimming, shared.pool, (topic.name, partition), retention)
        self._look_until_s = time.monotonic() + LOOK_WITHIN_S if staged else 0.0
        self._adopting = Adopting(
            self.ledger,
            self._rules,
            origin.delay_topic_id,
            lambda: shared.staging.waiting(self._staged_at),
            shared.metrics,
            (topic.name, partition),
            handled=origin.restored,
            not_before_s=shared.staging.not_before_s(self._staged_at),
        )
        return origin

    def _read_on(self, until_offset: int = NEVER) -> Intake:
        """Read the delay topic from where the index is."""
        shared, topic = self._shared, self._topic
        at = TopicPartition(topic.name, self.partition, self.ledger.indexed_to)
        return Intake(
            clients.tail(shared.config),
            at,
            self.ledger,
            self._epochs,
            shared.budget,
            now_ms=lambda: shared.now_ns() // 1_000_000,
            soon_ms=topic.seal_rules.soon_ms,
            until_offset=until_offset,
        )

    def _look_at_backfills(self) -> Future[Kept]:
        shared, topic, partition = self._shared, self._topic, self.partition

        def look(_: OffsetReader) -> Kept:
            records = read_backfills(shared.config, topic, partition, shared.admin)
            return kept_by_backfills(records, shared.now_ns() // 1_000_000)

        return shared.pool.look(look)

    def _read(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        return self._reader.read(self._topic.name, self.partition, offsets)

    @property
    def is_loading(self) -> bool:
        """Whether segments are being fetched, so that something may become releasable any moment."""
        return self._loading.under_way

    @property
    def is_busy(self) -> bool:
        """Whether housekeeping has something for the next transactions."""
        return self._housekeeping.is_busy

    @property
    def wants_commit(self) -> bool:
        """Whether housekeeping waits for a transaction, even one with progress alone."""
        return self._housekeeping.wants_commit(memory_full=self._seal_all)

    @property
    def intake_pauses(self) -> bool:
        """Whether nothing may come in: a bucket is about to be adopted, or as much waits to be sealed as is being.

        When memory is used up the intake itself stops reading; what it holds by then is counted, and has to come in.
        """
        return self._is_looking or self._adopting.pauses or self._housekeeping.is_behind

    @property
    def _is_looking(self) -> bool:
        """Whether it is not known yet what was staged before: to read on now might pass it."""
        if not self._look_until_s:
            return False
        has_looked = self._shared.staging.has_looked(self._staged_at) or time.monotonic() > self._look_until_s
        if has_looked and not self.ledger.replaying:
            self._look_until_s = 0.0
            self._adopting.turn()
            self._intake.close()
            self._intake = self._read_on()
        return self._look_until_s > 0

    @property
    def _seal_all(self) -> bool:
        return self.memory_full or self._adopting.pauses

    @property
    def memory_full(self) -> bool:
        """Whether intake has to pause until something is released or sealed."""
        return self._shared.budget.room_bytes <= 0

    def load(self, now_ms: int) -> None:
        """Take in segments that have arrived, ask for those that are due soon, let go of what is sealed."""
        loaded_bytes = self._loading.turn(now_ms, self.ledger.committed.watermark)
        self._shared.budget.take(loaded_bytes)
        self._resident_bytes += loaded_bytes
        dropped = self.ledger.parts.drop_some(DROPPED_AT_ONCE)
        if dropped:
            self._give_back(resident_bytes(dropped))

    def chores(self, now_ms: int) -> Chores:
        """What housekeeping wants in the next transaction, or adopting."""
        self._adopting.turn()
        adopting = self._adopting.chores(self._housekeeping.free_id())
        return adopting or self._housekeeping.chores(now_ms, memory_full=self._seal_all)

    def index(self, wait_s: float) -> Indexed:
        """Index what has arrived, waiting at most ``wait_s`` for the first record."""
        indexed = self._intake.fill(wait_s)
        self._resident_bytes += indexed.resident_bytes
        return indexed

    def release(self, batch: Batch[Payload, Refused], chores: Chores) -> Released:
        """Commit a batch that the index has planned, and the chores that go with it."""
        try:
            released = self._releaser.release(whole_batch(batch, self._decide), chores)
        except KafkaException as exception:
            if chores.withdrawn and classify(error_of(exception)) is Verdict.REFUSED:
                self._shared.staging.hold_off(self._staged_at)
            raise
        self.ledger.confirm()
        if chores.withdrawn:
            self._withdrawn(chores, released.refused_segments)
        elif released.refused_segments:
            self._housekeeping.failed(released.refused_segments)
        elif len(released.record_offsets) == len(chores.segments):
            self._housekeeping.done(chores, released.record_offsets)
        if self.ledger.committed.catching_up and batch.late:
            failpoints.passing("adopt.catching_up")
        self._give_back(resident_bytes(batch.late) + resident_bytes(batch.due))
        self._housekeeping.begin(memory_full=self._seal_all)
        return released

    def _withdrawn(self, chores: Chores, refused: str) -> None:
        if refused:
            self._adopting.failed(refused)
            return
        self._adopting.done()
        if isinstance(chores.installs, Adoption):
            # A new client begins behind the bucket at once; one that is told to seek may still hand over older records.
            self._intake.close()
            self._intake = self._read_on()

    def _give_back(self, freed_bytes: int) -> None:
        self._resident_bytes -= freed_bytes
        self._shared.budget.give_back(freed_bytes)

    def serve_client(self) -> None:
        """Let the producer hand over what it has logged; nothing else polls it while nothing is due."""
        self._producer.poll(0)

    def maintain(self) -> None:
        """A step of what goes on beside releasing: trimming, counting, looking at retention."""
        merged = self._housekeeping.being_merged
        self.upkeep.turn(self._shared.now_ns() // 1_000_000, at_end=not self.lag(), being_merged=merged)

    def lag(self) -> int:
        """Offsets of the delay topic not indexed yet."""
        return self._intake.lag()

    def close(self) -> None:
        """Throw everything away; an open transaction is left to the next owner, who settles it by fencing."""
        self._shared.budget.give_back(self._resident_bytes)
        self._resident_bytes = 0
        self._reader.close()
        self._shared.staging.unwatch(self._staged_at)
        if hasattr(self, "_housekeeping"):
            self._housekeeping.stop()
        if hasattr(self, "_intake"):
            self._intake.close()
        self._producer.purge()

"""Everything a worker owns of its partition between two take-overs; made and thrown away as a whole."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from index.partition import PartitionIndex
from index.record import Record
from index.rules import Rules
from sidecar import admin as cluster
from sidecar import check, clients, failpoints
from sidecar.admin import topic_settings
from sidecar.budget import PayloadBudget
from sidecar.chores import Chores
from sidecar.config import Config
from sidecar.config_topic import DelayTopicConfig
from sidecar.housekeeping import Housekeeping
from sidecar.intake import Indexed, Intake, PartitionLedger
from sidecar.loading import LoaderPool, Loading
from sidecar.metrics import Metrics
from sidecar.reader import OffsetReader
from sidecar.records import resident_bytes, scheduled_size
from sidecar.release import Released, Releaser, commit
from sidecar.retention import placement_under, retention_of
from sidecar.screening import Leaving
from sidecar.segments import SegmentSource
from sidecar.takeover import Origin, fence, read_origin
from sidecar.targets import TargetDirectory
from sidecar.transaction import PartitionWriter
from sidecar.trimming import Trimming
from sidecar.upkeep import Upkeep

MAX_BATCH_BYTES = 64 * 1_048_576
"""Most payload in one transaction: at 100 MB/s it takes under a second, far below any transaction timeout."""

DROPPED_AT_ONCE = 2_000
"""Entries let go of in one round once a bucket holds them: freeing all at once would stall the release loop."""

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
        origin = read_origin(shared.config, topic, partition, admin, self._rules)
        failpoints.passing("recovery.state_read")
        writer = PartitionWriter(self._producer, topic, partition, self._rules, origin.delay_topic_id)
        if not origin.is_stored:
            self._producer.begin_transaction()
            writer.write_epochs(origin.epochs)
            writer.write_progress(origin.progress)
            commit(self._producer)
        self.ledger: PartitionLedger = PartitionIndex(origin.progress, scheduled_size, origin.buckets)
        compresses = clients.compresses(shared.config)
        self._releaser = Releaser(writer, self._rules, shared.directory, self._read, compresses)
        at = TopicPartition(topic.name, partition, self.ledger.indexed_to)
        self._intake = Intake(clients.tail(shared.config), at, self.ledger, origin.epochs, shared.budget)
        source = SegmentSource(topic, partition, origin.epochs)
        parts = self.ledger.parts
        self._loading = Loading(parts, source, shared.pool, shared.budget, shared.metrics, topic.name)
        retention = retention_of(topic_settings(admin, [topic.name])[topic.name])
        rules = replace(topic.seal_rules, placement=placement_under(topic, retention))
        self._housekeeping = Housekeeping(
            self.ledger, rules, topic.max_buckets, source, shared.pool, shared.metrics, topic.name
        )
        trimming = Trimming(shared.admin, check.bootstrap(shared.config), topic, partition, shared.metrics)
        self.upkeep = Upkeep(self.ledger, trimming, shared.pool, (topic.name, partition), retention)
        return origin

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
        return self._housekeeping.wants_commit(memory_full=self.memory_full)

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
        """What housekeeping wants in the next transaction."""
        return self._housekeeping.chores(now_ms, memory_full=self.memory_full)

    def index(self, wait_s: float) -> Indexed:
        """Index what has arrived, waiting at most ``wait_s`` for the first record."""
        indexed = self._intake.fill(wait_s)
        self._resident_bytes += indexed.resident_bytes
        return indexed

    def release(self, batch: Leaving, chores: Chores) -> Released:
        """Commit a batch that the index has planned, and the chores that go with it."""
        released = self._releaser.release(batch, chores)
        self.ledger.confirm()
        if released.refused_segments:
            self._housekeeping.failed(released.refused_segments)
        elif len(released.record_offsets) == len(chores.segments):
            self._housekeeping.done(chores, released.record_offsets)
        self._give_back(resident_bytes(batch.late) + resident_bytes(batch.due))
        self._housekeeping.begin(memory_full=self.memory_full)
        return released

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
        if hasattr(self, "_housekeeping"):
            self._housekeeping.stop()
        if hasattr(self, "_intake"):
            self._intake.close()
        self._producer.purge()

"""Everything a worker owns of its partition between two take-overs; made and thrown away as a whole."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from confluent_kafka import KafkaException

from index.adopting import Adoption
from index.batch import Batch
from index.partition import PartitionIndex
from index.pending import Entry
from index.record import Record
from index.rule_history import RuleHistory
from sidecar import failpoints
from sidecar.backfill.adopting import Adopting
from sidecar.backfill.restoring import has_records
from sidecar.backfill.staging import Place
from sidecar.buckets.lifecycle import Housekeeping
from sidecar.buckets.loading import Loading
from sidecar.buckets.segments import SegmentSource
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.healing.settled_origin import settled_origin
from sidecar.intake.decided import Indexed
from sidecar.intake.fetching import connects_of
from sidecar.intake.intake import NEVER, PartitionLedger
from sidecar.intake.offset_reader import OffsetReader
from sidecar.kafka import admin as cluster
from sidecar.kafka import clients
from sidecar.kafka.errors import Verdict, classify, error_of
from sidecar.partition.context import Shared
from sidecar.partition.delay_topic_needs import upkeep_of
from sidecar.partition.held_up import is_held_up
from sidecar.partition.own_topics import own_topics
from sidecar.partition.rule_changes import RuleChanges
from sidecar.partition.tail import Tail
from sidecar.partition.takeover import Origin, fence, write_origin
from sidecar.payload.packing import whole_batch
from sidecar.payload.records import Payload, Refused, Scheduled, resident_bytes, scheduled_size
from sidecar.policies.table import TopicSettings
from sidecar.release.chores import Chores
from sidecar.release.gate import Gate
from sidecar.release.releaser import Released, Releaser, commit
from sidecar.release.writer import PartitionWriter
from sidecar.topics.retention import Retention, placement_under
from snapshots.inventory import InventoryKeeper

DROPPED_AT_ONCE = 10_000
"""Entries let go of in one round once a bucket holds them: freeing all at once would stall the release loop."""


class Owned:
    """A fenced partition: producer, tail, index and releaser."""

    def __init__(
        self, shared: Shared, topic: DelayTopicConfig, partition: int, on_throttle: clients.OnThrottle | None = None
    ) -> None:
        self._shared = shared
        config = shared.config
        self._producer = clients.producer(config, topic.name, partition, on_throttle)
        self._topic = topic
        self.partition = partition
        self._resident_bytes = 0
        self._is_draining = False
        self._closing = ExitStack()
        self._closing.callback(self._producer.purge)
        self._closing.callback(lambda: shared.budget.give_back(self._resident_bytes))
        shared.limits.enter(topic.name)
        self._closing.callback(shared.limits.leave, topic.name)
        self._reader = OffsetReader(lambda: clients.reader(config))
        self._closing.callback(self._reader.close)
        self._staged_at = Place(topic.backfill, topic.snapshots, partition)

    def fence(self, stopping: Callable[[], bool]) -> None:
        """Become the only writer of the partition."""
        fence(self._producer, stopping)
        failpoints.passing("recovery.fenced")

    def restore(self) -> Origin:
        """Read where the last owner stood, write what is new about that, and start to read the delay topic from S."""
        shared, topic, partition = self._shared, self._topic, self.partition
        # Only now that nobody else can write: what the last owner went by has been written before.
        shared.policies.settle()
        self._changes = RuleChanges(shared.policies, shared.config, topic)
        settings = self._changes.settings
        # A client of its own: one that has lived through a restart of the brokers goes on asking with the leader epochs
        # of before, and is refused until it happens to refresh its metadata.
        admin = cluster.connect(shared.config)
        self.topics = own_topics(admin, topic, partition)
        shared.staging.watch(self._staged_at)
        self._closing.callback(shared.staging.unwatch, self._staged_at)
        origin = settled_origin(shared, topic, partition, admin, self._producer, settings)
        failpoints.passing("recovery.state_read")
        self._changes.begin(origin.history)
        rules = origin.history.in_force
        inventory = InventoryKeeper(origin.buckets, origin.held)
        writer = PartitionWriter(self._producer, topic, partition, rules, origin.delay_topic_id, inventory)
        if not origin.is_stored:
            write_origin(writer, origin)
            commit(self._producer)
            writer.committed()
        self.ledger: PartitionLedger = PartitionIndex(origin.progress, scheduled_size, origin.buckets)
        self.gate = Gate(shared.limits, origin.held)
        self._give_back(-self.gate.resident_bytes)
        self._source = source = SegmentSource(topic, partition, origin.history)
        compresses, decide = clients.compresses(shared.config), source.decide
        self._releaser = Releaser(
            writer, rules, shared.directory, self._read, compresses, decide, shared.clock.now_ms, self.gate
        )
        staged = has_records(admin, topic.backfill, partition)
        self._tail = Tail(
            shared,
            (topic.name, partition),
            self.ledger,
            origin.history,
            topic.seal_rules.soon_ms,
            connects_of(shared.config, stops_at_bad=topic.on_unreadable == "stop"),
            partial(shared.staging.has_looked, self._staged_at) if staged else None,
        )
        self._closing.callback(self._tail.close)
        parts = self.ledger.parts
        self._loading = Loading(parts, source, shared.pool, shared.budget, shared.metrics, topic.name)
        self._housekeeping = Housekeeping(
            self.ledger, topic.seal_rules, topic.max_buckets, source, shared.pool, shared.metrics, topic.name
        )
        self._closing.callback(self._housekeeping.stop)
        self.upkeep = upkeep_of(shared, topic, partition, self.ledger, self.gate, self.topics[topic.name])
        waiting = partial(shared.staging.waiting, self._staged_at)
        known = self.ledger, origin.history, origin.delay_topic_id, waiting, shared.metrics, (topic.name, partition)
        held_off_s = shared.staging.not_before_s(self._staged_at)
        self._adopting = Adopting(*known, handled=origin.restored, not_before_s=held_off_s)
        self._apply(self._changes.settings)
        return origin

    @property
    def settings(self) -> TopicSettings:
        """What policies and configuration say now."""
        return self._changes.settings

    def follow_policies(self) -> None:
        """Take up what has changed; new rules hold once the next transaction has committed an epoch of theirs."""
        settings = self._changes.look()
        if settings is not None:
            self._apply(settings)

    def _apply(self, settings: TopicSettings) -> None:
        for source in {source for limit in settings.gated.values() for source in limit.sources}:
            self._shared.limits.learn(source, self._shared.directory.resolve([source])[source].partitions)
        self.gate.use(settings.gated)
        self._releaser.expiry = settings.expiry
        self._releaser.writer.use_timestamps(settings.topic.timestamp, settings.timestamps)
        self._housekeeping.use_placement(placement_under(settings.topic, self.upkeep.retention))

    def use_retention(self, retention: Retention) -> None:
        """From now on seal as a delay topic wants it that keeps its records for so long."""
        self.upkeep.retention = retention
        self._housekeeping.use_placement(placement_under(self.settings.topic, retention))

    def _enter(self, committed: RuleHistory) -> None:
        history = self._changes.committed(committed)
        self._source.enter(history)
        self._releaser.rules = history.in_force
        self._adopting.enter(history)
        self._tail.enter(history)

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

        Or nothing more may wait for targets or the end of a pause, or the partition is drained. When memory is used up
        the intake itself stops reading; what it holds by then is counted, and has to come in.
        """
        if self._tail.may_end_look:
            self._adopting.turn()
            self._tail.end_look()
        adopts = self._tail.is_looking or self._adopting.pauses
        return adopts or self._housekeeping.is_behind or self._is_draining or self._is_held_up

    @property
    def _seal_all(self) -> bool:
        return self.memory_full or self._adopting.pauses

    @property
    def memory_full(self) -> bool:
        """Whether everything in memory has to be sealed, or released."""
        return self._is_draining or self._shared.budget.room_bytes <= 0

    @property
    def _is_held_up(self) -> bool:
        may_use_bytes = self._shared.config.router.payload_memory_bytes
        paused = self.settings.paused
        return not self.gate.room_records or (paused and is_held_up(self.ledger, self._resident_bytes, may_use_bytes))

    def drain(self) -> None:
        """From now on take nothing in, and seal everything that is in memory."""
        self._is_draining = True

    @property
    def is_drained(self) -> bool:
        """Whether everything indexed is in a bucket, or has left."""
        parts = self.ledger.parts
        return parts.frozen is None and not len(parts.mutable.entries) and not self.ledger.owed

    def load(self, now_ms: int) -> None:
        """Take in segments that have arrived, ask for those that are due soon, let go of what is sealed."""
        loaded_bytes = self._loading.turn(now_ms, self.ledger.committed.watermark)
        self._shared.budget.take(loaded_bytes)
        self._resident_bytes += loaded_bytes
        dropped = self.ledger.parts.drop_some(DROPPED_AT_ONCE)
        if dropped:
            self._give_back(resident_bytes(dropped))

    def chores(self, now_ms: int) -> Chores:
        """What housekeeping wants in the next transaction, or adopting; and the rule epoch that policies begin."""
        self._adopting.turn()
        adopting = self._adopting.chores(self._housekeeping.free_id())
        chores = adopting or self._housekeeping.chores(now_ms, memory_full=self._seal_all)
        if isinstance(chores.installs, Adoption) or self._tail.is_looking:
            # The range that is adopted, now or as soon as the look has ended, was decided by the rules of before.
            return chores
        return self._changes.joined(chores, self.ledger)

    def index(self, wait_s: float, max_bytes: int = NEVER) -> Indexed:
        """Index what has arrived, waiting at most ``wait_s`` for the first record, until it fills ``max_bytes``."""
        indexed = self._tail.fill(wait_s, max_bytes)
        self._resident_bytes += indexed.resident_bytes
        return indexed

    def release(
        self, batch: Batch[Payload, Refused], chores: Chores, resumed: Sequence[Entry[Scheduled]] = ()
    ) -> Released:
        """Commit a batch that the index has planned, what was held until now, and the chores that go with it."""
        held_bytes = self.gate.resident_bytes + resident_bytes(resumed)
        try:
            released = self._releaser.release(whole_batch(batch, self._source.decide), chores, resumed)
        except KafkaException as exception:
            if chores.withdrawn and classify(error_of(exception)) is Verdict.REFUSED:
                self._shared.staging.hold_off(self._staged_at)
            raise
        held_bytes -= self.gate.resident_bytes
        self.ledger.confirm()
        if chores.withdrawn:
            self._withdrawn(chores, released.refused_segments)
        elif released.refused_segments:
            self._housekeeping.failed(released.refused_segments)
        elif len(released.record_offsets) == len(chores.segments):
            self._housekeeping.done(chores, released.record_offsets)
        if chores.history is not None:
            self._enter(chores.history)
        if self.ledger.committed.catching_up and batch.late:
            failpoints.passing("adopt.catching_up")
        self._give_back(resident_bytes(batch.late) + resident_bytes(batch.due) + held_bytes)
        self._housekeeping.begin(memory_full=self._seal_all)
        return released

    def _withdrawn(self, chores: Chores, refused: str) -> None:
        if refused:
            self._adopting.failed(refused)
            return
        self._adopting.done()
        if isinstance(chores.installs, Adoption):
            self._tail.begin_anew()

    def _give_back(self, freed_bytes: int) -> None:
        self._resident_bytes -= freed_bytes
        self._shared.budget.give_back(freed_bytes)

    def serve_client(self) -> None:
        """Let the producer hand over what it has logged; ConnectionLostError when it must be thrown away."""
        self._producer.require_connections()

    def maintain(self) -> None:
        """A step of what goes on beside releasing: trimming, counting, looking at retention."""
        self.upkeep.turn(self._shared.clock.now_ms(), lag=self.lag(), being_merged=self._housekeeping.being_merged)

    def lag(self) -> int:
        """Offsets of the delay topic not indexed yet."""
        return self._tail.lag()

    def close(self) -> None:
        """Throw all away, the last first and each whatever becomes of others; the next owner settles what is open."""
        self._closing.close()

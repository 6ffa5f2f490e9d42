"""Everything a worker owns of its partition between two take-overs; made and thrown away as a whole."""

from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import KafkaException

from index.adopting import Adoption
from index.batch import Batch
from index.partition import PartitionIndex
from index.pending import Entry
from index.record import Record
from sidecar import admin as cluster
from sidecar import check, clients, failpoints
from sidecar.admin import topic_settings
from sidecar.adopting import Adopting
from sidecar.chores import Chores
from sidecar.config_topic import DelayTopicConfig
from sidecar.gate import Gate
from sidecar.held_up import is_held_up
from sidecar.housekeeping import Housekeeping
from sidecar.intake import Indexed, PartitionLedger
from sidecar.kafka_errors import Verdict, classify, error_of
from sidecar.loading import Loading
from sidecar.packing import whole_batch
from sidecar.policies import TopicSettings
from sidecar.reader import OffsetReader
from sidecar.records import Payload, Refused, Scheduled, resident_bytes, scheduled_size
from sidecar.release import Released, Releaser, commit
from sidecar.restoring import has_records, look_at_backfills
from sidecar.retention import placement_under, retention_of
from sidecar.rule_changes import RuleChanges
from sidecar.segments import SegmentSource
from sidecar.shared import Shared
from sidecar.staging import Place
from sidecar.tail import Tail
from sidecar.takeover import Origin, fence, read_origin, write_origin
from sidecar.transaction import PartitionWriter
from sidecar.trimming import Trimming
from sidecar.upkeep import Upkeep
from snapshots.state import RuleEpoch

DROPPED_AT_ONCE = 10_000
"""Entries let go of in one round once a bucket holds them: freeing all at once would stall the release loop."""

MAX_MESSAGE_BYTES = 16 * 1_048_576
"""Limit of the client; the broker's own limit, which is usually lower, decides what is refused."""


class Owned:
    """A fenced partition: producer, tail, index and releaser."""

    def __init__(self, shared: Shared, topic: DelayTopicConfig, partition: int) -> None:
        self._shared = shared
        self._producer = clients.producer(shared.config, topic.name, partition, MAX_MESSAGE_BYTES)
        self._topic = topic
        self.partition = partition
        self._resident_bytes = 0
        self._is_draining = False
        shared.limits.enter(topic.name)
        self._reader = OffsetReader(lambda: clients.reader(shared.config))
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
        shared.staging.watch(self._staged_at)
        origin = read_origin(
            shared.config, topic, partition, admin, settings.rules, stored_rules_hold=settings.is_doubtful
        )
        failpoints.passing("recovery.state_read")
        self._changes.begin(origin.epochs)
        rules = origin.epochs[-1].rules
        writer = PartitionWriter(self._producer, topic, partition, rules, origin.delay_topic_id)
        if not origin.is_stored:
            write_origin(writer, origin)
            commit(self._producer)
        self.ledger: PartitionLedger = PartitionIndex(origin.progress, scheduled_size, origin.buckets)
        self.gate = Gate(shared.limits, origin.held)
        self._give_back(-self.gate.resident_bytes)
        self._source = source = SegmentSource(topic, partition, origin.epochs)
        compresses, decide = clients.compresses(shared.config), source.decide
        self._releaser = Releaser(
            writer, rules, shared.directory, self._read, compresses, decide, shared.now_ms, self.gate
        )
        staged = has_records(admin, topic.backfill, partition)
        self._tail = Tail(
            shared,
            (topic.name, partition),
            self.ledger,
            origin.epochs,
            topic.seal_rules.soon_ms,
            lambda: clients.tail(shared.config),
            partial(shared.staging.has_looked, self._staged_at) if staged else None,
        )
        parts = self.ledger.parts
        self._loading = Loading(parts, source, shared.pool, shared.budget, shared.metrics, topic.name)
        retention = retention_of(topic_settings(admin, [topic.name])[topic.name])
        self._housekeeping = Housekeeping(
            self.ledger, topic.seal_rules, topic.max_buckets, source, shared.pool, shared.metrics, topic.name
        )
        bootstrap, waiting = check.bootstrap(shared.config), partial(shared.staging.waiting, self._staged_at)
        look = partial(look_at_backfills, shared.config, topic, partition, shared.admin, shared.now_ms)
        trimming = Trimming(shared.admin, bootstrap, topic, partition, shared.metrics, lambda: shared.pool.look(look))
        self.upkeep = Upkeep(self.ledger, trimming, shared.pool, (topic.name, partition), retention, self.gate)
        known = self.ledger, origin.epochs[-1], origin.delay_topic_id, waiting, shared.metrics, (topic.name, partition)
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

    def _enter(self, epochs: tuple[RuleEpoch, ...]) -> None:
        epoch = self._changes.committed(epochs)
        self._source.enter(epoch)
        self._releaser.rules = epoch.rules
        self._adopting.enter(epoch)
        self._tail.enter(epochs)

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

    def index(self, wait_s: float) -> Indexed:
        """Index what has arrived, waiting at most ``wait_s`` for the first record."""
        indexed = self._tail.fill(wait_s)
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
        if chores.epochs:
            self._enter(chores.epochs)
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
        """Let the producer hand over what it has logged; nothing else polls it while nothing is due."""
        self._producer.poll(0)

    def maintain(self) -> None:
        """A step of what goes on beside releasing: trimming, counting, looking at retention."""
        merged = self._housekeeping.being_merged
        self.upkeep.turn(self._shared.now_ms(), at_end=not self.lag(), being_merged=merged)

    def lag(self) -> int:
        """Offsets of the delay topic not indexed yet."""
        return self._tail.lag()

    def close(self) -> None:
        """Throw everything away; an open transaction is left to the next owner, who settles it by fencing."""
        self._shared.budget.give_back(self._resident_bytes)
        self._resident_bytes = 0
        self._shared.limits.leave(self._topic.name)
        self._reader.close()
        self._shared.staging.unwatch(self._staged_at)
        if hasattr(self, "_housekeeping"):
            self._housekeeping.stop()
        if hasattr(self, "_tail"):
            self._tail.close()
        self._producer.purge()

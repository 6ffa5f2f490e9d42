"""The ports of an owned partition in the process: clients of its own, and parts that the process shares."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial

from confluent_kafka import TopicPartition

from index.pending.run import Runs
from index.protocol.record import Record
from index.rules.rule_history import RuleHistory
from sidecar import failpoints
from sidecar.cluster.topics.check_brokers import too_long_remedy
from sidecar.cluster.topics.removal import Removal
from sidecar.cluster.topics.retention import DEFAULT_MAX_MESSAGE_BYTES, retention_of
from sidecar.engine.buckets.hidden_end import Edges, HiddenEnd
from sidecar.engine.buckets.trimming import Trimming
from sidecar.engine.buckets.upkeep import Upkeep
from sidecar.engine.context import PartitionContext
from sidecar.engine.intake.deciding import Deciding
from sidecar.engine.intake.intake import IdPlaces, Intake
from sidecar.engine.ownership.adopting import BackfillRecord
from sidecar.engine.ownership.origin import Origin
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.packed_run import packed_runs
from sidecar.engine.payload.records import Payload
from sidecar.engine.ports import Records
from sidecar.engine.release.aside import Doubts
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.rates import RateLimits
from sidecar.kafka.client import admin as cluster
from sidecar.kafka.client import clients
from sidecar.kafka.client.connections import OnThrottle
from sidecar.kafka.client.errors import cluster_errors
from sidecar.kafka.doubts.look import DoubtFinder
from sidecar.kafka.reading.fetching import Fetching, connects_of
from sidecar.kafka.reading.offset_reader import OffsetReader
from sidecar.kafka.writing.kafka_transactions import KafkaTransactions
from sidecar.kafka.writing.lane import Lane
from sidecar.kafka.writing.lanes import Member, group_of
from sidecar.kafka.writing.target_directory import TargetDirectory
from sidecar.kafka.writing.transactions import commit, fence, naming_right, produce
from sidecar.kafka.writing.writer import PartitionWriter
from sidecar.policies.settings import PolicySettings
from sidecar.process.host.budget import PayloadBudget
from sidecar.process.host.pool import LoaderPool
from sidecar.process.host.read_ahead import ReadAhead
from sidecar.process.host.restoring import look_at_backfills
from sidecar.process.host.shared import Shared
from sidecar.process.host.staging import StagedAt, Staging
from sidecar.process.host.standing import KafkaStanding, OtherWriters
from sidecar.process.host.turnstile import Visitor
from sidecar.zones import zone_of
from snapshots.segments.codec import SegmentCodec
from snapshots.state.claim import claim_key, encode_claim
from snapshots.state.lane import LaneName

SERIES_KEY_BYTES = 16


class KafkaStaged:
    """A view of the records that jobs have staged for a partition; the process watches them until it is closed."""

    def __init__(self, staging: Staging, place: StagedAt) -> None:
        self._staging = staging
        self._place = place
        self._watch = staging.watch(place)

    def has_looked(self) -> bool:
        """Say whether the topic was read to its end since the watch began, or cannot be read."""
        return self._staging.has_looked(self._place)

    def waiting(self) -> Mapping[bytes, BackfillRecord]:
        """Return the staged records by key; a new object after every change."""
        return self._staging.waiting(self._place)

    def hold_off(self) -> None:
        """Let the next owner of the partition wait before it tries again."""
        self._staging.hold_off(self._place)

    def not_before_s(self) -> float:
        """Return the running time from which records may be adopted, in seconds."""
        return self._staging.not_before_s(self._place)

    def close(self) -> None:
        """End the watch."""
        self._staging.unwatch(self._watch)


class JoinedLane:
    """The lane that a partition has joined, with the rest of its ports."""

    def __init__(self, host: "KafkaHost", member: Member) -> None:
        self._host = host
        self.member = member

    @property
    def name(self) -> LaneName:
        """The name that the progress has while the lane writes the state."""
        return self.member.name

    def transactions(self, origin: Origin) -> KafkaTransactions:
        """Return transactions of the lane, and throw the producer of the own id away."""
        return self._host.transactions_in(self.member.lane, origin)


class KafkaHost:
    """The ports of one ownership; used by one loop only, which closes them in every case."""

    def __init__(self, shared: Shared, context: PartitionContext, visitor: Visitor, on_throttle: OnThrottle) -> None:
        config = shared.config
        self._shared = shared
        self._visitor = visitor
        self.context = context
        self._topic = topic = context.topic
        self._partition = context.partition
        self._closing = ExitStack()
        self.settings = PolicySettings(shared.policies, config, topic)
        self.compresses = clients.compresses(config)
        self.zone_of = zone_of
        own_id = clients.transactional_id(config, *context.place)
        self._on_throttle = on_throttle
        self._own = ExitStack()
        self._closing.callback(self._own.close)
        self._writes_with = Lane(clients.producer(config, own_id, on_throttle))
        self._own.callback(self._writes_with.close)
        self.lane: JoinedLane | None = None
        self.is_apart = False
        """True if the partition should leave its lane, because it holds up the others."""
        self._reader = OffsetReader(lambda: clients.reader(config))
        self._closing.callback(self._reader.close)
        self._known_reader = OffsetReader(lambda: clients.known_reader(config))
        self._closing.callback(self._known_reader.close)

    def fence(self, stopping: Callable[[], bool]) -> None:
        """Fence the other owners, and join a lane if the process has many partitions.

        Raise as :func:`sidecar.kafka.writing.transactions.fence` does.
        """
        self._fence = partial(fence, stopping=stopping, remedy=too_long_remedy())
        self._fence(self._writes_with.producer)
        member = self._shared.lanes.join(self.context.place, self._on_throttle, self._fence)
        if member is not None:
            self._closing.callback(self._shared.lanes.leave, member)
            self.lane = JoinedLane(self, member)
        failpoints.passing("recovery.fenced")
        # Only now that no other owner can write: the policies of the last owner were written before.
        self._shared.policies.settle()

    @property
    def budget(self) -> PayloadBudget:
        """The payload budget of the process."""
        return self._shared.budget

    @property
    def payload_memory_bytes(self) -> int:
        """The configured memory for payload."""
        return self._shared.config.router.payload_memory_bytes

    @property
    def rates(self) -> RateLimits:
        """The rate limits of the process."""
        return self._shared.rates

    @property
    def codec(self) -> SegmentCodec:
        """The codec of the kernel that the process runs with."""
        return self._shared.kernel.codec

    @property
    def runs(self) -> Runs[Payload]:
        """The runs that keep records until they are sealed."""
        return packed_runs(self.codec.in_order)

    @property
    def pool(self) -> LoaderPool:
        """The loader pool of the process."""
        return self._shared.pool

    @property
    def directory(self) -> TargetDirectory:
        """The target directory of the process."""
        return self._shared.directory

    @property
    def staged(self) -> KafkaStaged:
        """The staged records of the partition; present after a call of ``standing``."""
        return self._staged

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of the partition's own topics, by name."""
        return {name: facts.topic_id for name, facts in self._topics.items()}

    def standing(self) -> KafkaStanding:
        """Look at the topics of the partition, and return the port for questions about it."""
        shared, topic, partition = self._shared, self._topic, self._partition
        writers = OtherWriters(self._end_lane, self._claim, self._end_group)
        standing = KafkaStanding(shared.config, topic, partition, writers, shared.looks[topic.name])
        self._topics = standing.topics
        self._staged = KafkaStaged(shared.staging, StagedAt(topic.backfill, topic.snapshots, partition))
        self._closing.callback(self._staged.close)
        return standing

    def look_again(self, doubts: Doubts) -> "Future[Doubts]":
        """Ask the cluster again about places in doubt, in a thread of its own: absent brokers answer late."""
        shared, topic, partition = self._shared, self._topic, self._partition
        finder = DoubtFinder(shared.config, topic, partition, shared.admin, shared.looks[topic.name])
        return shared.pool.ask(partial(finder.look_again, doubts))

    def new_series_key(self) -> bytes:
        """Return random bytes of the operating system."""
        return secrets.token_bytes(SERIES_KEY_BYTES)

    def _end_lane(self, name: LaneName) -> None:
        mine = None if self.lane is None else self.lane.member
        with naming_right(self._shared.config, self.context.place, name.transactional_id, group_of(name)):
            self._shared.lanes.end(name, self.context.place, mine, self._fence)

    def _claim(self, group: str) -> None:
        with self._writes_with.alone() as producer:
            producer.begin_transaction()
            produce(producer, self._topic.state, encode_claim(), claim_key(group), self._partition, (), 0, None)
            commit(producer)

    def _end_group(self, group: str) -> None:
        config, place = self._shared.config, self.context.place
        other_id = clients.transactional_id(config, *place, group=group)
        producer = clients.producer(config, other_id)
        try:
            with naming_right(config, place, other_id, group):
                self._fence(producer)
        finally:
            producer.purge()

    def transactions(self, origin: Origin) -> KafkaTransactions:
        """Return transactions of the producer of the partition's own id, which has fenced the other owners."""
        return self._transactions(self._writes_with, origin)

    def transactions_in(self, lane: Lane, origin: Origin) -> KafkaTransactions:
        """Return transactions of a lane, and throw the producer of the own id away."""
        self._own.close()
        self._writes_with = lane
        return self._transactions(lane, origin)

    def _transactions(self, lane: Lane, origin: Origin) -> KafkaTransactions:
        shared, topic, partition = self._shared, self._topic, self._partition
        stripped = origin.history.in_force.stripped
        writer = PartitionWriter(lane.producer, topic, partition, stripped, origin.delay_topic_id, shared.kernel)
        return KafkaTransactions(
            lane,
            writer,
            shared.clock,
            compresses=self.compresses,
            on_trouble=self._set_apart,
            on_silence=shared.looks[topic.name].suspect,
            waiting=self._visitor.outside,
        )

    def _set_apart(self) -> None:
        self._shared.lanes.set_apart(self.context.place)
        self.is_apart = self.lane is not None

    def read_on(self, ledger: PartitionLedger, history: RuleHistory, until_offset: int, places: IdPlaces) -> Intake:
        """Read on with a client that has not read the partition before.

        Raise ClusterError if the cluster does not answer.
        """
        config, topic, budget = self._shared.config, self._topic, self._shared.budget
        deciding = Deciding(
            history,
            budget,
            now_ms=self._shared.clock.now_ms,
            soon_ms=topic.seal_rules.soon_ms,
            until_offset=until_offset,
            stops_at_bad=(lambda: ledger.committed.cursor) if topic.on_unreadable == "stop" else None,
            native=self._shared.kernel.decider,
        )
        most_batch_bytes = self._topics[topic.name].number("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)
        with cluster_errors():
            fetching = Fetching(
                connects_of(config, self._shared.tails, budget.prefetched_bytes, most_batch_bytes),
                TopicPartition(topic.name, self._partition, ledger.indexed_to),
                self._shared.kernel,
            )
        name = f"{topic.name}/{self._partition}"
        ahead = ReadAhead(fetching, deciding, budget, lambda: not ledger.replaying, self._visitor, name)
        try:
            ahead.start()
        except BaseException:
            fetching.close()
            raise
        return Intake(ahead, ledger, budget, places, self._shared.clock)

    @property
    def reader(self) -> OffsetReader:
        """The reader of single records; it makes its own clients at their first use."""
        return self._reader

    def read_again(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Read records of the delay partition one by one: pending ones, whose offsets the index knows."""
        with self._visitor.outside():
            return self._known_reader.read(self._topic.name, self._partition, offsets)

    def upkeep(self, ledger: PartitionLedger, gate: Gate) -> Upkeep:
        """Return the upkeep of the partition; it uses the admin client of the process."""
        shared, topic, partition = self._shared, self._topic, self._partition
        look = partial(look_at_backfills, shared.config, topic, partition, shared.admin, shared.clock.now_ms)
        brokers = shared.config.bootstrap
        key = ledger.committed.series_key
        trimming = Trimming(
            self.context, Removal(shared.admin, brokers, partition).below, lambda: shared.pool.look(look), key
        )
        retention = retention_of(self._topics[topic.name].settings)
        hidden = HiddenEnd(lambda: shared.pool.look(self._edges), brokers, self.context.place)
        return Upkeep(self.context, ledger, trimming, shared.pool, retention, gate, hidden)

    def _edges(self, _: Records) -> Edges:
        admin, place = self._shared.admin, self.context.place
        # In this order, so that the uncommitted end never lies before the settled end.
        return Edges(cluster.log_range(admin, *place)[1], cluster.uncommitted_end(admin, *place))

    def serve_client(self) -> None:
        """Let the producer hand over its log lines; raise ConnectionLostError if it must be thrown away."""
        self._writes_with.serve()

    def close(self) -> None:
        """Throw the clients away, the last one first; each is closed even if the close of another one fails."""
        self._visitor.leave()
        self._closing.close()

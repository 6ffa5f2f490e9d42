"""The ports of an owned partition in the process: clients of its own, and what the process shares."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial

from confluent_kafka import TopicPartition

from index.record import Record
from index.rule_history import RuleHistory
from index.run import Runs
from sidecar import failpoints
from sidecar.backfill.adopting import Waiting
from sidecar.backfill.restoring import has_records, look_at_backfills
from sidecar.backfill.staging import StagedAt, Staging
from sidecar.buckets.hidden_end import Edges, HiddenEnd
from sidecar.buckets.pool import LoaderPool
from sidecar.buckets.trimming import Trimming
from sidecar.buckets.upkeep import Upkeep
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.context import PartitionContext
from sidecar.doubts.aside import Doubts
from sidecar.doubts.look import Cluster
from sidecar.intake.deciding import Deciding
from sidecar.intake.fetching import Fetching, connects_of
from sidecar.intake.intake import Intake, Places
from sidecar.intake.offset_reader import OffsetReader
from sidecar.intake.read_ahead import ReadAhead
from sidecar.kafka import admin as cluster
from sidecar.kafka import clients
from sidecar.kafka.transactions import fence
from sidecar.partition.origin import Origin
from sidecar.partition.shared import Shared
from sidecar.partition.standing import KafkaStanding
from sidecar.payload.budget import PayloadBudget
from sidecar.payload.ledger import PartitionLedger
from sidecar.payload.packed_run import packed_runs
from sidecar.payload.records import Payload
from sidecar.policies.settings import PolicySettings
from sidecar.ports import Records
from sidecar.release.gate import Gate
from sidecar.release.kafka_transactions import KafkaTransactions
from sidecar.release.rates import RateLimits
from sidecar.release.target_directory import TargetDirectory
from sidecar.release.writer import PartitionWriter
from sidecar.series.zones import zone_of
from sidecar.topics.check_brokers import too_long_remedy
from sidecar.topics.removal import Removal
from sidecar.topics.retention import DEFAULT_MAX_MESSAGE_BYTES, retention_of
from snapshots.codec import SegmentCodec

SERIES_KEY_BYTES = 16


class KafkaStaged:
    """What jobs have staged for a partition, as the process follows it; watched until it is closed."""

    def __init__(self, staging: Staging, place: StagedAt, may_hold: Callable[[], bool]) -> None:
        self._staging = staging
        self._place = place
        self.may_hold = may_hold
        staging.watch(place)

    def has_looked(self) -> bool:
        """Whether the topic was read to its end since it is watched, or cannot be."""
        return self._staging.has_looked(self._place)

    def waiting(self) -> Mapping[bytes, Waiting]:
        """What is staged by key; another object whenever it has changed."""
        return self._staging.waiting(self._place)

    def hold_off(self) -> None:
        """Whoever owns the partition next waits before it tries again."""
        self._staging.hold_off(self._place)

    def not_before_s(self) -> float:
        """When something may be adopted, by the running time."""
        return self._staging.not_before_s(self._place)

    def close(self) -> None:
        """Watch it no longer."""
        self._staging.unwatch(self._place)


class KafkaHost:
    """Of one ownership; used by the worker only, and closed by it whatever happens."""

    def __init__(
        self, shared: Shared, topic: DelayTopicConfig, partition: int, on_throttle: clients.OnThrottle | None = None
    ) -> None:
        config = shared.config
        self._shared = shared
        self._topic = topic
        self._partition = partition
        self._closing = ExitStack()
        self.context = PartitionContext(
            topic, partition, config.router.group_id, shared.metrics, shared.clock, shared.tracing, shared.limits
        )
        self.settings = PolicySettings(shared.policies, config, topic)
        self.compresses = clients.compresses(config)
        self.zone_of = zone_of
        self._producer = clients.producer(config, topic.name, partition, on_throttle)
        self._closing.callback(self._producer.purge)
        self._reader = OffsetReader(lambda: clients.reader(config))
        self._closing.callback(self._reader.close)
        # A client of its own: one that has lived through a restart of the brokers goes on asking with the leader epochs
        # of before, and is refused until it happens to refresh its metadata.
        self._admin = cluster.connect(config)

    def fence(self, stopping: Callable[[], bool]) -> None:
        """Become the only writer of the partition; errors as of :func:`sidecar.kafka.transactions.fence`."""
        fence(self._producer, stopping, too_long_remedy())
        failpoints.passing("recovery.fenced")
        # Only now that nobody else can write: what the last owner went by has been written before.
        self._shared.policies.settle()

    @property
    def budget(self) -> PayloadBudget:
        """That of the process."""
        return self._shared.budget

    @property
    def payload_memory_bytes(self) -> int:
        """As configured."""
        return self._shared.config.router.payload_memory_bytes

    @property
    def rates(self) -> RateLimits:
        """Those of the process."""
        return self._shared.rates

    @property
    def codec(self) -> SegmentCodec:
        """That of the kernel the process runs with."""
        return self._shared.kernel.codec

    @property
    def runs(self) -> Runs[Payload]:
        """How records are kept that wait to be sealed."""
        return packed_runs(self.codec.in_order)

    @property
    def pool(self) -> LoaderPool:
        """That of the process."""
        return self._shared.pool

    @property
    def directory(self) -> TargetDirectory:
        """That of the process."""
        return self._shared.directory

    @property
    def staged(self) -> KafkaStaged:
        """There once the partition was asked how it stands."""
        return self._staged

    @property
    def topic_ids(self) -> dict[str, str]:
        """Ids of the partition's own topics, by name."""
        return {name: facts.topic_id for name, facts in self._standing.topics.items()}

    def standing(self) -> KafkaStanding:
        """Ask the cluster, once the state partition is settled; NotYetError where it is not within 10 s."""
        shared, topic, partition = self._shared, self._topic, self._partition
        self._standing = KafkaStanding(shared.config, topic, partition, self._admin)
        Cluster(shared.config, topic, partition, self._admin).wait_for_state()
        place = StagedAt(topic.backfill, topic.snapshots, partition)
        self._staged = KafkaStaged(shared.staging, place, lambda: has_records(self._admin, topic.backfill, partition))
        self._closing.callback(self._staged.close)
        return self._standing

    def look_again(self, doubts: Doubts) -> "Future[Doubts]":
        """Ask the cluster in a thread of its own: brokers that are away answer late."""
        shared, topic, partition = self._shared, self._topic, self._partition
        return shared.pool.ask(partial(Cluster(shared.config, topic, partition, shared.admin).look_again, doubts))

    def new_series_key(self) -> bytes:
        """From the operating system."""
        return secrets.token_bytes(SERIES_KEY_BYTES)

    def transactions(self, origin: Origin) -> KafkaTransactions:
        """With the producer that has fenced all others."""
        stripped = origin.history.in_force.stripped
        shared = self._shared
        writer = PartitionWriter(
            self._producer, self._topic, self._partition, stripped, origin.delay_topic_id, shared.kernel
        )
        return KafkaTransactions(writer, shared.clock, compresses=self.compresses)

    def read_on(self, ledger: PartitionLedger, history: RuleHistory, until_offset: int, places: Places) -> Intake:
        """With a client of its own: one that is told to seek may still hand over older records."""
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
        most_batch_bytes = self._standing.topics[topic.name].number("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)
        fetching = Fetching(
            connects_of(config, budget.prefetched_bytes, most_batch_bytes),
            TopicPartition(topic.name, self._partition, ledger.indexed_to),
            self._shared.kernel,
        )
        name = f"{topic.name}/{self._partition}"
        ahead = ReadAhead(fetching, deciding, budget, lambda: not ledger.replaying, name)
        ahead.start()
        return Intake(ahead, ledger, budget, places, self._shared.clock)

    @property
    def reader(self) -> OffsetReader:
        """With clients of its own, which are made when first needed."""
        return self._reader

    def read_again(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Read one by one."""
        return self._reader.read(self._topic.name, self._partition, offsets)

    def upkeep(self, ledger: PartitionLedger, gate: Gate) -> Upkeep:
        """With the admin client of the process."""
        shared, topic, partition = self._shared, self._topic, self._partition
        look = partial(look_at_backfills, shared.config, topic, partition, shared.admin, shared.clock.now_ms)
        brokers = shared.config.bootstrap
        key = ledger.committed.series_key
        trimming = Trimming(
            self.context, Removal(shared.admin, brokers, partition).below, lambda: shared.pool.look(look), key
        )
        retention = retention_of(self._standing.topics[topic.name].settings)
        hidden = HiddenEnd(lambda: shared.pool.look(self._edges), brokers, self.context.place)
        return Upkeep(self.context, ledger, trimming, shared.pool, retention, gate, hidden)

    def _edges(self, _: Records) -> Edges:
        admin, place = self._shared.admin, self.context.place
        # In this order: the end never lies before what was settled a moment ago.
        return Edges(cluster.log_range(admin, *place)[1], cluster.uncommitted_end(admin, *place))

    def serve_client(self) -> None:
        """Let the producer hand over what it has logged; ConnectionLostError when it must be thrown away."""
        self._producer.require_connections()

    def close(self) -> None:
        """Throw the clients away, the last first and each whatever becomes of others."""
        self._closing.close()

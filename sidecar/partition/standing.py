"""How a partition stands, as the cluster tells it to whoever takes it over."""

from collections.abc import Collection, Sequence

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from index.errors import RefusedError
from index.series_in_log import SeriesInLog
from sidecar.backfill.restoring import read_backfills
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.doubts.aside import Doubts
from sidecar.doubts.look import Cluster
from sidecar.kafka import clients
from sidecar.kafka.admin import REQUEST_TIMEOUT_S, TopicFacts, log_range, topic_facts, uncommitted_end
from sidecar.kafka.errors import error_of
from sidecar.kafka.scan import read_compacted
from sidecar.ports import Stored
from sidecar.topics.series import kept_key, series_of
from sidecar.topics.start_over import state_keys
from sidecar.topics.topics import BACKFILL, DELAY, RECEIPTS, SNAPSHOTS, STATE
from snapshots.state import StoredState, fold_state


class KafkaStanding:
    """Asks the cluster; ``topics`` are the partition's own ones, looked at before anything is read of them.

    About a partition that is not there the client says the same as about one whose leader is away, and in words that
    name neither.
    """

    def __init__(
        self,
        config: Config,
        topic: DelayTopicConfig,
        partition: int,
        admin: AdminClient,
    ) -> None:
        """RefusedError naming the first topic that is not there, and the way out; KafkaException without an answer."""
        self.topics = own_topics(admin, topic, partition)
        self._config = config
        self._topic = topic
        self._partition = partition
        self._admin = admin

    def delay_topic_id(self) -> str:
        """As it was when the topics were looked at."""
        return self.topics[self._topic.name].topic_id

    def log_range(self) -> tuple[int, int]:
        """Asked now."""
        return log_range(self._admin, self._topic.name, self._partition)

    def uncommitted_end(self) -> int:
        """Asked now."""
        return uncommitted_end(self._admin, self._topic.name, self._partition)

    def snapshots_range(self) -> tuple[int, int]:
        """Asked now."""
        return log_range(self._admin, self._topic.snapshots, self._partition)

    def state_starts_at(self) -> int:
        """Asked now."""
        return log_range(self._admin, self._topic.state, self._partition)[0]

    def stored(self) -> StoredState | None:
        """Read to its end."""
        records = read_compacted(self._config, self._topic.state, self._partition, self._admin)
        return fold_state((record.key, record.value) for record in records)

    def state_keys(self) -> Collection[bytes]:
        """Read to its end once more."""
        return state_keys(self._config, self._topic, self._partition, self._admin)

    def staged(self) -> Sequence[Stored]:
        """Read to its end; nothing where it may not be read."""
        try:
            return read_backfills(self._config, self._topic, self._partition, self._admin)
        except KafkaException as exception:
            if error_of(exception).code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            # Who may not read it has not been given anything there; ``check`` tells.
            return []

    def series_key(self) -> bytes:
        """Look for it in the state topic, then in the snapshots topic."""
        return kept_key(self._config, self._topic, self._partition, self._admin)

    def series(self, key: bytes) -> SeriesInLog:
        """Read the delay partition from its start to its end."""
        return series_of(self._config, self._topic, self._partition, self._admin, key)

    def group_offset(self) -> int:
        """Asked with a consumer: the admin client's answer cannot be trusted, see GroupMember._ask_group."""
        consumer = clients.state_reader(self._config)
        try:
            (found,) = consumer.committed([TopicPartition(self._topic.name, self._partition)], REQUEST_TIMEOUT_S)
        finally:
            consumer.close()
        if found.error is not None:
            raise KafkaException(found.error)
        return found.offset

    def doubts(self, known: StoredState) -> Doubts:
        """Asked now."""
        return Cluster(self._config, self._topic, self._partition, self._admin).look(known)


def own_topics(admin: AdminClient, topic: DelayTopicConfig, partition: int) -> dict[str, TopicFacts]:
    """What is known of the topics that a delay partition cannot do without, by name.

    RefusedError naming the first one that is not there, and the way out; KafkaException when the cluster does not
    answer. The backfill topic may be missing as a whole.
    """
    roles = {
        topic.name: DELAY,
        topic.state: STATE,
        topic.snapshots: SNAPSHOTS,
        topic.receipts: RECEIPTS,
        topic.backfill: BACKFILL,
    }
    answers = topic_facts(admin, roles)
    found: dict[str, TopicFacts] = {}
    for name, role in roles.items():
        facts = answers[name]
        if isinstance(facts, TopicFacts):
            if facts.partitions <= partition:
                raise RefusedError(
                    f"{role} {name} has no partition {partition}, and {topic.name} has; to add it: delay-router init"
                )
            found[name] = facts
        elif role != BACKFILL:
            raise RefusedError(
                f"{role} {name} does not exist; to create it: delay-router init"
                if facts is None
                else f"the router may not describe {role} {name}; what to grant: delay-router check --acls"
            )
    return found

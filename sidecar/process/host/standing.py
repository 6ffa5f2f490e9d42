"""The standing of a partition: answers of the cluster to a new owner."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from index.errors import RefusedError
from index.named.series_in_log import SeriesInLog
from sidecar.cluster.topics.series import kept_key, series_of
from sidecar.cluster.topics.start_over import state_keys
from sidecar.cluster.topics.topics import BACKFILL, DELAY, RECEIPTS, SNAPSHOTS, STATE
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.engine.ports import Stored
from sidecar.engine.release.aside import Doubts
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import (
    REQUEST_TIMEOUT_S,
    Described,
    TopicFacts,
    connect,
    log_range,
    topic_facts,
    uncommitted_end,
)
from sidecar.kafka.client.errors import error_of
from sidecar.kafka.doubts.look import DoubtFinder, Looks
from sidecar.kafka.reading.scan import read_settled
from sidecar.process.host.restoring import read_backfills
from snapshots.state.lane import LaneName
from snapshots.state.state import StoredState, fold_state, writers_in

SETTLED_SOON_S: Final = 0.2
"""The time that a transaction of an owner that serves takes at most, nearly always."""


class OtherWriters(NamedTuple):
    """The methods of ``StateWriters`` that write: fence a lane, claim the state, fence another group."""

    end: Callable[[LaneName], None]
    claim: Callable[[str], None]
    end_group: Callable[[str], None]


class KafkaStanding:
    """Asks the cluster about one partition; ``topics`` are the facts of its own topics.

    It has an admin client of its own: after a restart of the brokers an older client still asks with the old leader
    epochs, and is refused until it refreshes its metadata by chance. The client ends with this object.
    The topics are looked at before any of them is read, since the client reports a missing partition like a partition
    without a leader, and its message names neither.
    """

    def __init__(
        self,
        config: Config,
        topic: DelayTopicConfig,
        partition: int,
        writers: OtherWriters,
        looks: Looks,
    ) -> None:
        """Look at the topics of the partition, together with the partitions that share ``looks``.

        Raise RefusedError with the first missing topic and the way out, or KafkaException if the cluster does not
        answer.
        """
        self._admin = admin = connect(config)
        self.topics = own_topics(partial(looks.topics.answers, ask=partial(topic_facts, admin)), topic, partition)
        self._config = config
        self._topic = topic
        self._partition = partition
        self._finder = DoubtFinder(config, topic, partition, admin, looks)
        self._records: Sequence[Stored] = ()
        self._groups: frozenset[str] = frozenset()
        self.end, self.claim, self.end_group = writers

    def delay_topic_id(self) -> str:
        """Return the id that the delay topic had when the topics were looked at."""
        return self.topics[self._topic.name].topic_id

    def log_range(self) -> tuple[int, int]:
        """Ask now for the range of the delay partition."""
        return log_range(self._admin, self._topic.name, self._partition)

    def uncommitted_end(self) -> int:
        """Ask now for the end of the delay partition, open transactions included."""
        return uncommitted_end(self._admin, self._topic.name, self._partition)

    def snapshots_range(self) -> tuple[int, int]:
        """Ask now for the range of the snapshots partition."""
        return log_range(self._admin, self._topic.snapshots, self._partition)

    def state_starts_at(self) -> int:
        """Ask now for the first offset of the state partition."""
        return log_range(self._admin, self._topic.state, self._partition)[0]

    def lane(self) -> LaneName | None:
        """Wait until the state partition is settled, and read it; raise NotYetError if it is not settled within 10 s.

        A transaction that stays open may be one of the lane that the state names. It ends when the lane is fenced.
        """
        if not self._finder.settles_within(SETTLED_SOON_S):
            named = self._read()
            if named is not None:
                self.end(named)
            self._finder.wait_for_state()
        return self._read()

    def _read(self) -> LaneName | None:
        self._records = read_settled(self._config, self._topic.state, self._partition, self._admin)
        lane, self._groups = writers_in((each.key, each.value) for each in self._records)
        return lane

    def groups(self) -> frozenset[str]:
        """Return the groups with a claim in the state that ``lane`` has read."""
        return self._groups

    def stored(self) -> StoredState | None:
        """Return the state that ``lane`` has read."""
        records, self._records = self._records, ()
        return fold_state((each.key, each.value) for each in records)

    def state_keys(self) -> Collection[bytes]:
        """Read the keys of the state partition without claims, to its end once more."""
        return state_keys(self._config, self._topic, self._partition, self._admin)

    def staged(self) -> Sequence[Stored]:
        """Read the backfill partition to its end; return no records if the router may not read it."""
        try:
            return read_backfills(self._config, self._topic, self._partition, self._admin)
        except KafkaException as exception:
            if error_of(exception).code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            # A router without the right to read the topic gets no records from jobs; ``check`` tells of it.
            return []

    def may_be_staged(self) -> bool:
        """Ask now whether the backfill partition has records; say no if it is missing or cannot be described."""
        try:
            start, end = log_range(self._admin, self._topic.backfill, self._partition)
        except KafkaException:
            return False
        return start < end

    def series_key(self) -> bytes:
        """Look for the key of series in the state topic, and then in the snapshots topic."""
        return kept_key(self._config, self._topic, self._partition, self._admin)

    def series(self, key: bytes) -> SeriesInLog:
        """Read the delay partition from its start to its end."""
        return series_of(self._config, self._topic, self._partition, self._admin, key)

    def group_offset(self) -> int:
        """Ask with a consumer, since the admin client's answer cannot be trusted (see GroupMember._ask_group)."""
        consumer = clients.state_reader(self._config)
        try:
            (found,) = consumer.committed([TopicPartition(self._topic.name, self._partition)], REQUEST_TIMEOUT_S)
        finally:
            consumer.close()
        if found.error is not None:
            raise KafkaException(found.error)
        return found.offset

    def doubts(self, known: StoredState) -> Doubts:
        """Ask now for the places in doubt."""
        return self._finder.look(known)


def own_topics(
    ask: Callable[[Collection[str]], Mapping[str, Described]], topic: DelayTopicConfig, partition: int
) -> dict[str, TopicFacts]:
    """Return the facts of the topics that a delay partition needs, by name; the backfill topic may be missing.

    Raise RefusedError with the first missing topic or partition and the way out, or KafkaException if the cluster does
    not answer.
    """
    roles = {
        topic.name: DELAY,
        topic.state: STATE,
        topic.snapshots: SNAPSHOTS,
        topic.receipts: RECEIPTS,
        topic.backfill: BACKFILL,
    }
    answers = ask(roles)
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
                else f"the router may not describe {role} {name}; to see the rights to grant: delay-router check --acls"
            )
    return found

"""``delay-router start-over TOPIC/PARTITION``: forgets the state of one delay partition, on purpose.

It is the way out when a partition refuses to start: its state was lost or damaged, or its delay topic was created
again. The router then indexes the delay topic again from its start, and **releases again** the records that it had
released before.

Recurring schedules go on where they stood: the new state has the key that signs their occurrences, and knows which
occurrences in the log have left (:mod:`index.named.series_in_log`).

The work takes one transaction under the partition's own transactional.id. The transaction fences the owner of the
partition, writes a tombstone for every key found in the state partition, and a fresh progress with the present rules.
Claims of router groups stay: the command claims and fences as a take-over does (:mod:`sidecar.engine.ownership.lanes`),
and the next owner removes the claims of other groups.
A state that was lost names no lane. So with lanes the command refuses such a state while the group has members.
Rejected: leaving the state empty. The group's offset would have to be removed too, for which librdkafka has no request,
and after a crash between the two steps the partition would refuse to start as before.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from index.errors import ConfigError, DelayRouterError
from index.named.series_in_log import SeriesInLog
from index.pending.progress import start_of
from index.rules.rule_history import RuleHistory
from sidecar.cluster.topics import reach
from sidecar.cluster.topics.series import kept_key, series_of
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.engine.ownership.lanes import end_former, settle
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import TopicFacts, log_range, parse_place, topic_facts
from sidecar.kafka.client.errors import Verdict, classify, error_of
from sidecar.kafka.client.group_view import member_count
from sidecar.kafka.doubts.look import DoubtFinder
from sidecar.kafka.reading.scan import read_settled
from sidecar.kafka.writing.lanes import group_of
from sidecar.kafka.writing.transactions import naming_right
from snapshots.state.claim import CLAIM_PREFIX, claim_key, encode_claim
from snapshots.state.inventory import Inventory
from snapshots.state.lane import LaneName
from snapshots.state.mask import mask_records
from snapshots.state.state import (
    PROGRESS_KEY,
    RULES_KEY,
    encode_history,
    encode_progress,
    has_readable_progress,
    writers_in,
)
from snapshots.state.transit import encode_transit

ATTEMPTS: Final = 3
"""A running router takes its partition back; the router and this command may fence each other once or twice."""

INIT_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class StartOver:
    """The effect that starting over would have, or has had."""

    topic: DelayTopicConfig
    partition: int
    log_start: int
    log_end: int
    state_keys: int
    series: SeriesInLog

    def as_json(self) -> dict[str, object]:
        """Return the effect as a JSON object, for scripts."""
        return {
            "topic": self.topic.name,
            "partition": self.partition,
            "log_start": self.log_start,
            "log_end": self.log_end,
            "state_keys": self.state_keys,
            "series_going_on": self.series.known,
            "series_ending": self.series.unknown,
        }


def plan(config: Config, admin: AdminClient, place: str) -> StartOver:
    """Examine ``TOPIC/PARTITION`` and change nothing; raise ConfigError when the partition is not one of ours."""
    topic, partition = _parse(config, place)
    reach.require_rights(config, admin, dict.fromkeys((topic.name, topic.state, topic.snapshots), ("Read",)))
    answers = topic_facts(admin, [topic.name, topic.state])
    for role, name in (("delay topic", topic.name), ("state topic", topic.state)):
        facts = answers[name]
        if not isinstance(facts, TopicFacts):
            raise DelayRouterError(f"{role} {name} does not exist, or may not be described; run: delay-router init")
        if partition >= facts.partitions:
            raise ConfigError(f"{place}: {role} {name} has partitions 0 to {facts.partitions - 1}")
    start, end = log_range(admin, topic.name, partition)
    series = series_of(config, topic, partition, admin, kept_key(config, topic, partition, admin))
    return StartOver(topic, partition, start, end, len(state_keys(config, topic, partition, admin)), series)


def start_over(config: Config, admin: AdminClient, planned: StartOver) -> None:
    """Replace the state.

    Raise DelayRouterError when a running router keeps taking the partition back, or may write by a lane that nothing
    names any more. Raise NotYetError when an open transaction hides the end of the state (a key behind it would come
    back beside the new state) or, where schedules recur, of the delay partition (the last occurrence of a series may
    lie behind it).
    """
    reach.require_rights(config, admin, {planned.topic.state: ("Write",)})
    _require_known_lane(config, admin, planned)
    if not done_unless_fenced(partial(_replace_state, config, admin, planned)):
        place = f"{planned.topic.name}/{planned.partition}"
        raise DelayRouterError(f"{place}: a running router takes the partition back; stop it and try again")


def _require_known_lane(config: Config, admin: AdminClient, planned: StartOver) -> None:
    """Raise DelayRouterError while a router runs that may write by a lane whose name was lost with the state."""
    state, partition, group = planned.topic.state, planned.partition, config.router.group_id
    if not config.router.lanes:
        return
    stored = read_settled(config, state, partition, admin)
    is_known = has_readable_progress((each.key, each.value) for each in stored)
    if not is_known and (members := member_count(admin, group)):
        raise DelayRouterError(
            f"{planned.topic.name}/{partition}: {state} does not name the lane any more that writes the state, so a"
            f" router that still writes there cannot be fenced. Group {group} still has members ({members}): stop its"
            " routers, and run start-over again"
        )


def done_unless_fenced(write: Callable[[], None]) -> bool:
    """Write the state of a partition, again while a running router takes it back; say whether it was written."""
    for _ in range(ATTEMPTS):
        try:
            write()
        except KafkaException as exception:
            if classify(error_of(exception)) is not Verdict.FENCED:
                raise
        else:
            return True
    return False


def _parse(config: Config, place: str) -> tuple[DelayTopicConfig, int]:
    name, partition = parse_place(place, "start-over", "orders.delay/0")
    return config.require_delay_topic(name, f"start-over {place}: "), partition


def _replace_state(config: Config, admin: AdminClient, planned: StartOver) -> None:
    topic, partition = planned.topic, planned.partition
    if planned.series.known:
        # The owner goes on meanwhile.
        DoubtFinder(config, topic, partition, admin).wait_for_log()
    producer = fenced_producer(config, admin, topic, partition)
    write_fresh(config, admin, topic, partition, producer, state_keys(config, topic, partition, admin))


def fenced_producer(config: Config, admin: AdminClient, topic: DelayTopicConfig, partition: int) -> Producer:
    """Return a producer that has fenced the owner of the partition, of any group, so that its state changes no more."""
    writers, fenced = _Writers(config, admin, topic, partition), set[str]()
    end_former(writers)
    while settle(writers, config.router.group_id, fenced):
        end_former(writers)
    return writers.own


class _Writers:
    """The lanes and groups that may write the state of a partition; ``own`` is the producer of the own id.

    Once the own id is fenced, no owner can name another lane in the state (:mod:`sidecar.engine.ownership.lanes`).
    """

    def __init__(self, config: Config, admin: AdminClient, topic: DelayTopicConfig, partition: int) -> None:
        self._config = config
        self._admin = admin
        self._topic = topic
        self._partition = partition
        self._place = (topic.name, partition)
        self._ended: set[LaneName] = set()
        self._groups: frozenset[str] = frozenset()
        self.own = self._own_id_fenced(config.router.group_id)

    def lane(self) -> LaneName | None:
        state, partition = self._topic.state, self._partition
        DoubtFinder(self._config, self._topic, partition, self._admin).wait_for_state()
        stored = read_settled(self._config, state, partition, self._admin)
        lane, self._groups = writers_in((each.key, each.value) for each in stored)
        return lane

    def end(self, lane: LaneName) -> None:
        if lane not in self._ended:
            self._fencing(lane.transactional_id, group_of(lane))
            self._ended.add(lane)

    def groups(self) -> frozenset[str]:
        return self._groups

    def claim(self, group: str) -> None:
        self.own.begin_transaction()
        _produce(self.own, self._topic.state, self._partition, claim_key(group), encode_claim())
        self.own.commit_transaction()

    def end_group(self, group: str) -> None:
        self._own_id_fenced(group)

    def _own_id_fenced(self, group: str) -> Producer:
        return self._fencing(clients.transactional_id(self._config, *self._place, group=group), group)

    def _fencing(self, transactional_id: str, group: str) -> Producer:
        with naming_right(self._config, self._place, transactional_id, group):
            return _fencing(self._config, transactional_id)


def _fencing(config: Config, transactional_id: str) -> Producer:
    producer = clients.producer(config, transactional_id)
    producer.init_transactions(INIT_TIMEOUT_S)
    return producer


def write_fresh(
    config: Config,
    admin: AdminClient,
    topic: DelayTopicConfig,
    partition: int,
    producer: Producer,
    stale: Iterable[bytes],
) -> None:
    """Write the state of a partition that begins at the start of its log, and tombstones for the ``stale`` keys.

    Raise NotYetError if an open transaction hides the new state, or the pending occurrences of recurring schedules.
    """
    delay = topic_facts(admin, [topic.name])[topic.name]
    if not isinstance(delay, TopicFacts):
        raise DelayRouterError(f"delay topic {topic.name} does not exist any more")
    start, _ = log_range(admin, topic.name, partition)
    key = kept_key(config, topic, partition, admin)
    progress = start_of(start)._replace(series_key=key)
    finder = DoubtFinder(config, topic, partition, admin)
    if key:
        # No owner can append another occurrence any more: the producer has fenced it.
        finder.wait_for_log()
    series = series_of(config, topic, partition, admin, key)
    transit = series.transit(start)
    gone = [*mask_records(series.mask), *(encode_transit(*lot) for lot in transit.items())]
    inventory = Inventory((), 0, series.mask.containers, len(transit), group=config.router.group_id)
    records: dict[bytes, bytes | None] = dict.fromkeys(stale) | dict(gone)
    records[RULES_KEY] = encode_history(RuleHistory.beginning(progress.cursor, config.rules_for(topic)))
    records[PROGRESS_KEY] = encode_progress(progress, delay.topic_id, inventory)
    producer.begin_transaction()
    for key, value in records.items():
        _produce(producer, topic.state, partition, key, value)
    producer.commit_transaction()
    # A coordinator answers a commit before its control record is written.
    finder.wait_for_state()


def _produce(producer: Producer, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
    producer.produce(topic, value, key, partition)
    producer.poll(0)


def state_keys(config: Config, topic: DelayTopicConfig, partition: int, admin: AdminClient) -> set[bytes]:
    """Return all keys that have a value in the state partition, including unknown ones, without claims of groups."""
    latest = {each.key or b"": each.value for each in read_settled(config, topic.state, partition, admin)}
    return {key for key, value in latest.items() if value is not None and not key.startswith(CLAIM_PREFIX)}

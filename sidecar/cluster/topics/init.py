"""``delay-router init``: creates the missing topics, and reports the faults of existing topics.

It is idempotent: a second run changes nothing. Delay topics (and targets, if requested) come first, because the topics
beside a delay topic take its partition count and replication. Existing topics beside it get the partitions that they
lack. Fresh metadata of the whole cluster must then show every topic that was made, because a topic that a broker has
confirmed may still be missing. At the end ``init`` writes the first progress of partitions that no router has served
(:mod:`sidecar.cluster.topics.first_start`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from sidecar.clock import Clock, SystemClock
from sidecar.cluster.topics import first_start, topics
from sidecar.cluster.topics.check import missing_target, policies_findings, status_findings
from sidecar.cluster.topics.findings import Finding, Level, error
from sidecar.cluster.topics.status_topic import wanted_status
from sidecar.cluster.topics.topics import WantedTopic
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.client.admin import (
    REQUEST_TIMEOUT_S,
    Denied,
    Described,
    TopicFacts,
    add_partitions,
    create_topic,
    topic_facts,
)
from sidecar.kafka.client.commands import describe_hint
from sidecar.kafka.client.errors import error_of

SYSTEM_CLOCK: Final = SystemClock()
BROKER_DEFAULT: Final = -1
_APPEND_TIME: Final = {"message.timestamp.type": "LogAppendTime"}
"""Settings of targets whose records carry the time of their release: only the broker's own time tells an audit that."""
_STAMPED: Final = {"message.timestamp.type": "CreateTime"}
"""Settings of targets with other timestamps; they are explicit because brokers may default to LogAppendTime."""

VISIBLE_WITHIN_S: Final = 60.0
"""Time within which brokers must show a created topic: a busy broker has taken 40 s for 100 partitions."""

SETTINGS_WITHIN_S: Final = 15.0
"""Time within which brokers must show the settings of the topic too; without the right to describe they never do."""

VISIBLE_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class InitOptions:
    """Options of ``init``: sizes of the delay and target topics that it creates; all others follow the delay topic.

    With ``deliver_existing`` the operator states that no router has delivered the records of delay partitions without
    a state. ``stamped`` are targets whose records carry another timestamp than the release, which brokers must keep.
    """

    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    create_targets: bool = False
    deliver_existing: bool = False
    stamped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class InitRow:
    """One topic and the action that ``init`` took for it."""

    role: str
    name: str
    action: str
    partitions: int
    replication_factor: int

    def as_json(self) -> dict[str, object]:
        """Return the row as a JSON object, for scripts."""
        return {
            "role": self.role,
            "name": self.name,
            "action": self.action,
            "partitions": self.partitions,
            "replication_factor": self.replication_factor,
        }


@dataclass(frozen=True, slots=True)
class InitReport:
    """The outcome for every topic, and the remaining faults; a missing target is a warning."""

    rows: list[InitRow]
    findings: list[Finding]
    targets_missing: bool = False


def initialise(config: Config, admin: AdminClient, options: InitOptions, clock: Clock = SYSTEM_CLOCK) -> InitReport:
    """Create missing topics and report all of them; raise KafkaException when the cluster does not answer."""
    made = _TopicCreation(admin, clock)
    made.ensure(_first(config, options))
    beside: list[tuple[DelayTopicConfig, TopicFacts, tuple[WantedTopic, ...]]] = []
    for topic in config.delay_topics:
        delay = made.facts.get(topic.name)
        if isinstance(delay, TopicFacts):
            beside.append((topic, delay, topics.wanted_beside(topic, delay)))
    made.ensure([wanted for _, _, several in beside for wanted in several])
    if beside:
        # They are as safe as the safest delay topic that they concern.
        made.ensure(_of_all_routers(config, max(delay.replication_factor for _, delay, _ in beside)))
    made.verify()
    found = [*made.failures]
    for topic, delay, several in beside:
        found += topics.examine_delay_topic(topic, delay, config.bootstrap)
        for wanted in several:
            facts = made.facts.get(wanted.name)
            if isinstance(facts, TopicFacts):
                found += topics.examine_beside(wanted, facts, config.bootstrap)
        found += _beginnings(config, admin, topic, made, options)
    found += [*policies_findings(config, made.facts), *status_findings(config, made.facts)]
    missing = _missing_targets(config, admin)
    return InitReport(made.rows, [*found, *missing], bool(missing))


def _missing_targets(config: Config, admin: AdminClient) -> list[Finding]:
    """Warn about missing targets.

    A router does not start without its default target, but the principal that may create the other topics may lack the
    right to create targets.
    """
    named = [(topic, name) for topic in config.delay_topics for name in topic.named_targets()]
    answers = topic_facts(admin, dict.fromkeys(name for _, name in named))
    missing = [missing_target(config, topic, name) for topic, name in named if answers[name] is None]
    return [replace(finding, level=Level.WARN) for finding in missing]


def _beginnings(
    config: Config, admin: AdminClient, topic: DelayTopicConfig, made: "_TopicCreation", options: InitOptions
) -> Iterator[Finding]:
    """Write the first progress of the partitions of a delay topic that have none."""
    facts = {name: each for name in (topic.name, topic.state) if isinstance(each := made.facts.get(name), TopicFacts)}
    if len(facts) < 2:  # noqa: PLR2004 - both topics must exist
        return
    before = made.partitions_before.get(topic.state)
    try:
        yield from first_start.begin(
            config, admin, topic, facts, deliver_existing=options.deliver_existing, partitions_before=before
        )
    except KafkaException as exception:
        why = error_of(exception).str()
        yield error(f"state topic {topic.state}", f"its records could not be read: {why}", "run init again")


def _of_all_routers(config: Config, replicas: int) -> Iterator[WantedTopic]:
    if policies := config.router.policies_topic:
        yield topics.wanted_policies(policies, replicas)
    if status := config.router.status_topic:
        yield wanted_status(status, replicas)


def _first(config: Config, options: InitOptions) -> list[WantedTopic]:
    partitions, replicas = options.partitions, options.replication_factor
    wanted = [topics.wanted_delay_topic(topic, partitions, replicas) for topic in config.delay_topics]
    if options.create_targets:
        wanted += [
            WantedTopic(
                "target topic", name, partitions, replicas, _STAMPED if name in options.stamped else _APPEND_TIME
            )
            for topic in config.delay_topics
            for name in topic.named_targets()
        ]
    return wanted


class _TopicCreation:
    """Creates missing topics and keeps the facts about all of them."""

    def __init__(self, admin: AdminClient, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._changed: dict[str, WantedTopic] = {}
        self.facts: dict[str, Described] = {}
        self.rows: list[InitRow] = []
        self.failures: list[Finding] = []
        self.partitions_before: dict[str, int] = {}
        """Former partition counts of the topics to which ``init`` added partitions."""

    def ensure(self, wanted: Iterable[WantedTopic]) -> None:
        """Create the missing topics, add missing partitions, and read the facts about all of them."""
        by_name = {topic.name: topic for topic in wanted}  # delay topics may share a rejected topic
        before = topic_facts(self._admin, by_name)
        created = {name for name, answer in before.items() if answer is None and self._create(by_name[name])}
        grown = {name for name, answer in before.items() if self._grow(by_name[name], answer)}
        changed = {name: by_name[name] for name in created | grown}
        self._changed |= changed
        self.facts |= before | self._visible(changed)
        for name, topic in by_name.items():
            facts = self.facts[name]
            action = "created" if name in created else "grown" if name in grown else "exists"
            if isinstance(facts, TopicFacts):
                row = InitRow(topic.role, name, action, facts.partitions, facts.replication_factor)
            else:
                row = InitRow(topic.role, name, "failed", 0, 0)
                if isinstance(facts, Denied):
                    self._changed.pop(name, None)
                    self._fail(topic, "may not be described", describe_hint(name))
            self.rows.append(row)

    def _create(self, topic: WantedTopic) -> bool:
        new = NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            config=topic.settings,
        )
        failure = create_topic(self._admin, new)
        if failure is None:
            return True
        self._fail(
            topic, f"cannot be created: {failure.str()}", "create it by hand, or grant Create; then run init again"
        )
        return False

    def _fail(self, topic: WantedTopic, message: str, remedy: str) -> None:
        self.failures.append(error(f"{topic.role} {topic.name}", message, remedy))

    def _grow(self, topic: WantedTopic, answer: Described) -> bool:
        """Add the partitions that an existing topic beside a delay topic lacks, because the delay topic has grown."""
        if not topic.exact_partitions or not isinstance(answer, TopicFacts) or answer.partitions >= topic.partitions:
            return False
        failure = add_partitions(self._admin, topic.name, topic.partitions)
        if failure is not None:
            self._fail(
                topic, f"cannot be given more partitions: {failure.str()}", "grant Alter on it, or do it by hand"
            )
            return False
        self.partitions_before[topic.name] = answer.partitions
        return True

    def verify(self) -> None:
        """Read fresh metadata of the whole cluster; note a failure for each new topic that stays absent too long."""
        if not self._changed:
            return
        until_s = self._clock.running_s() + VISIBLE_WITHIN_S
        there = self._partitions_there()
        while (unseen := self._unseen(there)) and self._clock.running_s() < until_s:
            self._clock.sleep(VISIBLE_PAUSE_S)
            there = self._partitions_there()
        # The facts of a topic that has appeared only now are unknown, and the topics beside it were not made.
        late = [each for each in self._changed.values() if not isinstance(self.facts[each.name], TopicFacts)]
        failed = {topic.name: topic for topic in (*unseen, *late)}
        for name, topic in failed.items():
            told = f"{there[name]} of {max(topic.partitions, 1)} partitions" if there.get(name) else "no such topic"
            told = told if topic in unseen else "it only now"
            message = f"was made, and after {VISIBLE_WITHIN_S:.0f} s the brokers tell of {told}"
            self._fail(topic, message, "wait until the brokers are less busy, then run init again")
        self.rows = [replace(row, action="failed") if row.name in failed else row for row in self.rows]

    def _partitions_there(self) -> dict[str, int]:
        """Return the partition count of each topic of the cluster, by fresh metadata of all topics."""
        found = self._admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def _unseen(self, there: Mapping[str, int]) -> list[WantedTopic]:
        return [topic for name, topic in self._changed.items() if there.get(name, 0) < max(topic.partitions, 1)]

    def _visible(self, changed: Mapping[str, WantedTopic]) -> dict[str, Described]:
        """Return the facts of new topics, once the broker that answers knows them: the controller knows them first."""
        started_s = self._clock.running_s()
        while True:
            answers = topic_facts(self._admin, changed)
            waited_s = self._clock.running_s() - started_s
            is_there = all(_is_there(answer, changed[name].partitions) for name, answer in answers.items())
            is_told = all(isinstance(answer, TopicFacts) and answer.settings for answer in answers.values())
            within_s = SETTINGS_WITHIN_S if is_there else VISIBLE_WITHIN_S
            if (is_there and is_told) or waited_s > within_s:
                return answers
            self._clock.sleep(VISIBLE_PAUSE_S)


def _is_there(answer: Described, partitions: int) -> bool:
    """Say whether further waiting is useless: the topic has its partitions, or the right to describe it is missing."""
    return isinstance(answer, Denied) or (isinstance(answer, TopicFacts) and answer.partitions >= partitions)

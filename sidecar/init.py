"""``delay-router init``: create the topics that are missing, tell what is wrong with those that exist.

Idempotent: a second run creates nothing and alters nothing. Order: delay topics (and targets, when asked for) first,
because the topics beside a delay topic take its partition count and replication.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from sidecar import topics
from sidecar.admin import Answer, TopicFacts, create_topic, topic_facts
from sidecar.check import bootstrap, literal_targets, policies_findings, status_findings
from sidecar.config import Config
from sidecar.config_topic import DelayTopicConfig
from sidecar.findings import Finding, error
from sidecar.status_topic import wanted_status
from sidecar.topics import WantedTopic

BROKER_DEFAULT: Final = -1
VISIBLE_TIMEOUT_S: Final = 15.0
"""How long a created topic may take until every broker tells of it."""

VISIBLE_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class InitOptions:
    """For topics that are created: delay and target topics; the others follow the delay topic."""

    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    create_targets: bool = False


@dataclass(frozen=True, slots=True)
class InitRow:
    """One topic and what was done about it."""

    role: str
    name: str
    action: str
    partitions: int
    replication_factor: int

    def as_json(self) -> dict[str, object]:
        """For scripts."""
        return {
            "role": self.role,
            "name": self.name,
            "action": self.action,
            "partitions": self.partitions,
            "replication_factor": self.replication_factor,
        }


@dataclass(frozen=True, slots=True)
class InitReport:
    """What became of every topic, and what is still wrong."""

    rows: list[InitRow]
    findings: list[Finding]


def initialise(config: Config, admin: AdminClient, options: InitOptions) -> InitReport:
    """Create what is missing; KafkaException when the cluster does not answer."""
    made = _Made(admin)
    made.ensure(_first(config, options))
    beside: list[tuple[DelayTopicConfig, TopicFacts, tuple[WantedTopic, ...]]] = []
    for topic in config.delay_topics:
        delay = made.facts.get(topic.name)
        if isinstance(delay, TopicFacts):
            beside.append((topic, delay, topics.wanted_beside(topic, delay)))
    made.ensure([wanted for _, _, several in beside for wanted in several])
    if beside:
        # As safe as the safest of what they are about.
        made.ensure(_of_all_routers(config, max(delay.replication_factor for _, delay, _ in beside)))
    found = [*made.failures]
    for topic, delay, several in beside:
        found += topics.examine_delay_topic(topic, delay, bootstrap(config))
        for wanted in several:
            facts = made.facts.get(wanted.name)
            if isinstance(facts, TopicFacts):
                found += topics.examine_beside(wanted, facts, bootstrap(config))
    found += [*policies_findings(config, made.facts), *status_findings(config, made.facts)]
    return InitReport(made.rows, found)


def _of_all_routers(config: Config, replicas: int) -> Iterator[WantedTopic]:
    if policies := config.router.policies_topic:
        yield topics.wanted_policies(policies, replicas)
    if status := config.router.status_topic:
        yield wanted_status(status, replicas)


def _first(config: Config, options: InitOptions) -> list[WantedTopic]:
    partitions, replicas = options.partitions, options.replication_factor
    wanted = [topics.wanted_delay_topic(topic, partitions, replicas) for topic in config.delay_topics]
    if options.create_targets:
        targets = dict.fromkeys(name for topic in config.delay_topics for name in literal_targets(topic))
        wanted += [WantedTopic("target topic", name, partitions, replicas, {}) for name in targets]
    return wanted


class _Made:
    """Topics as they are after creating the missing ones."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self.facts: dict[str, Answer] = {}
        self.rows: list[InitRow] = []
        self.failures: list[Finding] = []

    def ensure(self, wanted: Iterable[WantedTopic]) -> None:
        """Create each that is missing, and learn how all of them are."""
        by_name = {topic.name: topic for topic in wanted}  # delay topics may share a rejected topic
        before = topic_facts(self._admin, by_name)
        created = {name for name, answer in before.items() if answer is None and self._create(by_name[name])}
        self.facts |= before | self._visible(created)
        for name, topic in by_name.items():
            facts = self.facts[name]
            action = "created" if name in created else "exists"
            if isinstance(facts, TopicFacts):
                row = InitRow(topic.role, name, action, facts.partitions, facts.replication_factor)
            else:
                row = InitRow(topic.role, name, "failed", 0, 0)
                if name not in created and facts is not None:
                    self._fail(topic, "may not be described", topics.describe_hint(name))
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

    def _visible(self, names: set[str]) -> dict[str, Answer]:
        """Facts of created topics, once the broker asked knows them: creation is told by the controller first."""
        deadline = time.monotonic() + VISIBLE_TIMEOUT_S
        while True:
            answers = topic_facts(self._admin, names)
            if all(_complete(answer) for answer in answers.values()) or time.monotonic() > deadline:
                return answers
            time.sleep(VISIBLE_PAUSE_S)


def _complete(answer: Answer) -> bool:
    return isinstance(answer, TopicFacts) and bool(answer.settings)

"""``delay-router init``: create the topics that are missing, tell what is wrong with those that exist.

Idempotent: a second run creates nothing and alters nothing. Order: delay topics (and targets, when asked for) first,
because the topics beside a delay topic take its partition count and replication; existing ones are given the partitions
that they lack. A fresh look at the whole cluster then has to show every topic that was made: a topic that a broker has
promised may still be missing. At the end it is written where partitions begin that nobody has served
(:mod:`sidecar.topics.first_start`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from sidecar.clock import Clock, SystemClock
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.admin import (
    REQUEST_TIMEOUT_S,
    Denied,
    Described,
    TopicFacts,
    add_partitions,
    create_topic,
    topic_facts,
)
from sidecar.kafka.commands import describe_hint
from sidecar.kafka.errors import error_of
from sidecar.topics import first_start, topics
from sidecar.topics.check import missing_target, policies_findings, status_findings
from sidecar.topics.findings import Finding, Level, error
from sidecar.topics.status_topic import wanted_status
from sidecar.topics.topics import WantedTopic

SYSTEM_CLOCK: Final = SystemClock()
BROKER_DEFAULT: Final = -1
_APPEND_TIME: Final = {"message.timestamp.type": "LogAppendTime"}
"""Of targets whose records are to be stamped with their release: only the broker's own time tells an audit that."""
_STAMPED: Final = {"message.timestamp.type": "CreateTime"}
"""Of those that are stamped otherwise; spelled out, since brokers may have the other as their default."""

VISIBLE_WITHIN_S: Final = 60.0
"""How long a created topic may take until brokers tell of it: a busy broker has taken 40 s for 100 partitions."""

SETTINGS_WITHIN_S: Final = 15.0
"""How long they may take to tell its settings as well; where these may not be described they never do."""

VISIBLE_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class InitOptions:
    """For topics that are created: delay and target topics; the others follow the delay topic.

    ``deliver_existing``: no router has delivered what delay topics hold of which there is no state. ``stamped`` are
    targets whose records get another timestamp than that of their release, which brokers must not overwrite.
    """

    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    create_targets: bool = False
    deliver_existing: bool = False
    stamped: frozenset[str] = frozenset()


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
    """What became of every topic, and what is still wrong; targets that are missing are warned of."""

    rows: list[InitRow]
    findings: list[Finding]
    targets_missing: bool = False


def initialise(config: Config, admin: AdminClient, options: InitOptions, clock: Clock = SYSTEM_CLOCK) -> InitReport:
    """Create missing topics, and report them; KafkaException when the cluster does not answer."""
    made = _Made(admin, clock)
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
    """Without its default target a router does not start; but who may create the others may not always create that."""
    named = [(topic, name) for topic in config.delay_topics for name in topic.named_targets()]
    answers = topic_facts(admin, dict.fromkeys(name for _, name in named))
    missing = [missing_target(config, topic, name) for topic, name in named if answers[name] is None]
    return [replace(finding, level=Level.WARN) for finding in missing]


def _beginnings(
    config: Config, admin: AdminClient, topic: DelayTopicConfig, made: "_Made", options: InitOptions
) -> Iterator[Finding]:
    """Where the partitions of a delay topic begin, as far as that is new."""
    facts = {name: each for name in (topic.name, topic.state) if isinstance(each := made.facts.get(name), TopicFacts)}
    if len(facts) < 2:  # noqa: PLR2004 - both of them
        return
    before = made.partitions_before.get(topic.state)
    try:
        yield from first_start.begin(
            config, admin, topic, facts, deliver_existing=options.deliver_existing, partitions_before=before
        )
    except KafkaException as exception:
        why = error_of(exception).str()
        yield error(f"state topic {topic.state}", f"what it holds could not be read: {why}", "run init again")


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


class _Made:
    """Topics as they are after creating the missing ones."""

    def __init__(self, admin: AdminClient, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._changed: dict[str, WantedTopic] = {}
        self.facts: dict[str, Described] = {}
        self.rows: list[InitRow] = []
        self.failures: list[Finding] = []
        self.partitions_before: dict[str, int] = {}
        """Of topics to which some were added."""

    def ensure(self, wanted: Iterable[WantedTopic]) -> None:
        """Create each that is missing, and learn how all of them are."""
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
        """Add the partitions that an existing topic of the router lacks, since the delay topic has got more."""
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
        """Look at the whole cluster anew, and fail for each topic that was made and is not there after a while."""
        if not self._changed:
            return
        until_s = self._clock.running_s() + VISIBLE_WITHIN_S
        there = self._partitions_there()
        while (unseen := self._unseen(there)) and self._clock.running_s() < until_s:
            self._clock.sleep(VISIBLE_PAUSE_S)
            there = self._partitions_there()
        # Nothing is known of a topic that has only shown now, and the topics beside it were not made.
        late = [each for each in self._changed.values() if not isinstance(self.facts[each.name], TopicFacts)]
        failed = {topic.name: topic for topic in (*unseen, *late)}
        for name, topic in failed.items():
            told = f"{there[name]} of {max(topic.partitions, 1)} partitions" if there.get(name) else "no such topic"
            told = told if topic in unseen else "it only now"
            message = f"was made, and after {VISIBLE_WITHIN_S:.0f} s the brokers tell of {told}"
            self._fail(topic, message, "wait until the brokers are less busy, then run init again")
        self.rows = [replace(row, action="failed") if row.name in failed else row for row in self.rows]

    def _partitions_there(self) -> dict[str, int]:
        """Return how many partitions each topic of the cluster has, by new metadata of all topics."""
        found = self._admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def _unseen(self, there: Mapping[str, int]) -> list[WantedTopic]:
        return [topic for name, topic in self._changed.items() if there.get(name, 0) < max(topic.partitions, 1)]

    def _visible(self, changed: Mapping[str, WantedTopic]) -> dict[str, Described]:
        """Facts of topics, once the broker asked knows them as they were made: the controller tells of them first."""
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
    """Return whether waiting shows no more of a topic: it has its partitions, or rights to describe it are missing."""
    return isinstance(answer, Denied) or (isinstance(answer, TopicFacts) and answer.partitions >= partitions)

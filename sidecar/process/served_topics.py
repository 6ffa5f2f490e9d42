"""Selects the delay topics to serve: a topic is usable if the check finds no error; the check repeats at run time.

A topic that is already served stays so in spite of later errors: its partitions report the fault, and go on once it is
mended.
"""

import threading
from collections.abc import MutableSequence

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sidecar.cluster.topics import check, reach
from sidecar.cluster.topics.findings import Finding, Level
from sidecar.config.model import Config
from sidecar.kafka.client.admin import Described, TopicFacts
from sidecar.kafka.client.errors import error_of
from sidecar.logs.events import Trouble
from sidecar.process.health import ProcessHealth

FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 10.0


class UsableTopics:
    """The subscription of this process; logs every finding that is not ok, and tells the probes."""

    def __init__(
        self, config: Config, admin: AdminClient, health: ProcessHealth, failures: MutableSequence[str]
    ) -> None:
        """Begin without topics; ``failures`` gets the errors of connections while ``admin`` is polled."""
        self._config = config
        self._admin = admin
        self._health = health
        self._failures = failures
        self._said: set[Finding] = set()
        self.partitions: dict[str, int] = {}
        """Partitions of each served delay topic, as they were seen last; empty until the first ``look``."""
        self.topics: list[str] = []
        """Delay topics that are served."""
        self.troubles: dict[str, str] = {}
        """Present errors of served topics, which may keep them from working."""
        self._log = structlog.get_logger()
        self._trouble = Trouble(self._log)

    def wait(self, stopping: threading.Event) -> list[str]:
        """Check the topics, and wait for the cluster as long as it takes; return the usable topics.

        The result is empty when the process is stopped, or when no topic is usable.
        """
        pause_s = FIRST_RETRY_S
        while not stopping.is_set():
            try:
                # A request only times out; this tells why, and sooner.
                reach.require_answer(self._config, self._admin, self._failures)
                return self._usable(check.router_findings(self._config, self._admin))
            except reach.UnreachableError as unreachable:
                self._wait_for(str(unreachable))
            except KafkaException as exception:
                # Polling emits the log lines of the client, which say why connections fail.
                self._admin.poll(0)
                self._wait_for(f"Kafka does not answer: {error_of(exception).str()}")
            stopping.wait(pause_s)
            pause_s = min(pause_s * 2, LONGEST_RETRY_S)
        return []

    def _wait_for(self, why: str) -> None:
        self._health.waits_for(why)
        self._trouble.tell("kafka_unavailable", why)

    def look(self) -> dict[str, Described]:
        """Check the topics once more and return their descriptions; raise KafkaException if the cluster is silent."""
        answers = check.topic_answers(self._config, self._admin)
        for name in self._usable(list(check.topic_findings(self._config, answers))):
            facts = answers[name]
            if isinstance(facts, TopicFacts):
                self.partitions[name] = facts.partitions
        return answers

    def _usable(self, findings: list[Finding]) -> list[str]:
        for finding in findings:
            if finding.level is not Level.OK and finding not in self._said:
                write = self._log.error if finding.is_error else self._log.warning
                write("check", thing=finding.thing, message=finding.message, remedy=finding.remedy)
        self._said = set(findings)
        names = [topic.name for topic in self._config.delay_topics]
        wrong: dict[str, str] = {}
        for finding in findings:
            for name in [finding.topic] if finding.topic else names:
                if finding.is_error:
                    text = f"{finding.thing}: {finding.message}; {finding.remedy}"
                    wrong[name] = f"{wrong[name]}; {text}" if name in wrong else text
        self.topics = [name for name in names if name in self.topics or name not in wrong]
        self._health.leave_out({name: why for name, why in wrong.items() if name not in self.topics})
        self.troubles = {name: why for name, why in wrong.items() if name in self.topics}
        return list(self.topics)

"""Which delay topics can be served: those without an error in the check, looked at again while one is left out."""

import threading
from collections.abc import Sequence

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sidecar import check
from sidecar.admin import TopicFacts, topic_facts
from sidecar.config import Config
from sidecar.findings import Finding, Level
from sidecar.health import ProcessHealth
from sidecar.kafka_errors import error_of

FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 10.0


class UsableTopics:
    """The subscription of this process; logs every finding that is not ok, and tells the probes."""

    def __init__(self, config: Config, admin: AdminClient, health: ProcessHealth) -> None:
        self._config = config
        self._admin = admin
        self._health = health
        self._said: set[Finding] = set()
        self._log = structlog.get_logger()

    def wait(self, stopping: threading.Event) -> list[str]:
        """Look, waiting for the cluster as long as it takes; empty when stopped, or when nothing can be served."""
        pause_s = FIRST_RETRY_S
        while not stopping.is_set():
            try:
                return self._usable(check.topic_findings(self._config, self._admin))
            except KafkaException as exception:
                why = error_of(exception).str()
                self._health.waits_for(f"Kafka does not answer: {why}")
                self._log.warning("kafka_unavailable", why=why)
            stopping.wait(pause_s)
            pause_s = min(pause_s * 2, LONGEST_RETRY_S)
        return []

    def again(self) -> list[str] | None:
        """Look once more when a topic is left out; None when none is, or nothing can be said now."""
        if not self._health.has_left_out:
            return None
        try:
            return self._usable(check.topic_findings(self._config, self._admin))
        except KafkaException:
            return None

    def ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Ids of those topics that the cluster tells of now."""
        try:
            facts = topic_facts(self._admin, topics)
        except KafkaException:
            return {}
        return {name: found.topic_id for name, found in facts.items() if isinstance(found, TopicFacts)}

    def _usable(self, findings: list[Finding]) -> list[str]:
        for finding in findings:
            if finding.level is not Level.OK and finding not in self._said:
                write = self._log.error if finding.is_error else self._log.warning
                write("check", thing=finding.thing, message=finding.message, remedy=finding.remedy)
        self._said = set(findings)
        names = [topic.name for topic in self._config.delay_topics]
        left_out = {
            name: f"{finding.thing}: {finding.message}; {finding.remedy}"
            for finding in findings
            if finding.is_error
            for name in ([finding.topic] if finding.topic else names)
        }
        self._health.leave_out(left_out)
        return [name for name in names if name not in left_out]

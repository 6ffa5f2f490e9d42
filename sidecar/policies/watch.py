"""Follows changes of policies: one thread and one consumer without a group in a process, for all its workers.

A new record ends the fetch that waits for it, so every process knows a policy a few milliseconds after it was written.
Workers look at the table in each round. A take-over waits until the topic has been read to its end (``settle``): the
rules of the new owner must not be older than the rules of the last owner.

A missing topic counts as a topic without policies, and is looked for again. If the topic has vanished since it was
read, the last policies still hold, and the log tells of it. The reader of a topic that was quickly created again gets
no error, and would go on at the old offset; so the watch compares the ids of the topic (``learn``). A topic that the
router may not read stops take-overs, because its policies are not known: a delay topic might be paused, or a target no
longer allowed.
"""

import threading
import time
from collections.abc import Mapping
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry, Gauge

from index.errors import RefusedError
from sidecar import clock
from sidecar.config.model import Config
from sidecar.kafka.client.admin import Denied, Described, TopicFacts, topic_facts
from sidecar.kafka.client.commands import acl_command, principal_of
from sidecar.kafka.client.errors import text_of
from sidecar.kafka.reading.following import TopicFollower
from sidecar.metrics import PREFIX
from sidecar.policies.origin import NOBODY, ChangeOrigin
from sidecar.policies.policy import Scope
from sidecar.policies.table import NO_POLICIES, WITHOUT_POLICIES, PolicyTable, WithoutPolicies
from sidecar.policies.topic import PolicyReader

POLL_S: Final = 0.05
"""The time within which a waiting take-over is noticed; a new record is noticed at once."""

LOOK_AGAIN_S: Final = 5.0
"""The time within which a policies topic is found that was created, or deleted and created, while the router runs."""

AFTER_ERROR_S: Final = 0.5
SETTLE_TIMEOUT_S: Final = 10.0


class PolicyWatch(TopicFollower):
    """Keeps ``table`` up to date until it is stopped."""

    def __init__(self, config: Config, admin: AdminClient, registry: CollectorRegistry) -> None:
        self._topic = config.router.policies_topic
        super().__init__("policies", structlog.get_logger().bind(policies_topic=self._topic))
        self._config = config
        self._admin = admin
        self._table = NO_POLICIES
        self._is_known = False
        self._turned = threading.Condition()
        self._asked = self._answered = 0
        self._denied = ""
        self._topic_id = ""
        gauge = Gauge(
            PREFIX + "policies_unreadable",
            "Policies that cannot be understood; the last good one of each still holds",
            registry=registry,
        )
        gauge.set_function(lambda: len(self._table.unreadable))
        self._changed = Gauge(
            PREFIX + "policy_changed_timestamp_seconds",
            "When a policy was last changed while this process ran",
            ["policy"],
            registry=registry,
        )

    @property
    def table(self) -> PolicyTable:
        """The current table of policies."""
        return self._table

    def learn(self, answers: Mapping[str, Described]) -> None:
        """Note the present id of the topic; where it is another one, the topic is read again from its beginning."""
        found = answers.get(self._topic)
        if isinstance(found, TopicFacts):
            self._topic_id = found.topic_id

    def settle(self) -> None:
        """Wait until the table has every policy that was written before this call."""
        with self._turned:
            self._asked += 1
            mine = self._asked
            if not self._turned.wait_for(lambda: self._answered >= mine, SETTLE_TIMEOUT_S):
                raise KafkaException(
                    KafkaError(KafkaError._TIMED_OUT, f"policies topic {self._topic} was not read to its end in time")
                )
            if self._denied:
                raise RefusedError(self._denied)

    def _interrupted(self, error: KafkaError) -> float:
        self._trouble.tell("policies_interrupted", text_of(error), level="error")
        return AFTER_ERROR_S

    def _follow(self) -> None:
        asked = self._asked
        found = topic_facts(self._admin, [self._topic])[self._topic]
        self._denied = self._denial() if isinstance(found, Denied) else ""
        if found is None or self._denied:
            if self._table is not NO_POLICIES:
                why = "the last policies of it still hold; create it again: delay-router init"
                self._trouble.tell("policies_topic_gone", why, level="error")
            self._answer(asked)
            self._wait_for_question(LOOK_AGAIN_S)
            return
        self.learn({self._topic: found})
        reader = PolicyReader(self._config, self._table)
        try:
            self._keep_reading(reader, asked)
        finally:
            reader.close()

    def _denial(self) -> str:
        principal = principal_of(self._config.kafka)
        grant = acl_command(self._config.bootstrap, ("Read", "Describe"), f"--topic {self._topic}", principal)
        return (
            f'policies topic {self._topic} may not be read: {grant}; or go without policies: router.policies_topic = ""'
        )

    def _keep_reading(self, reader: PolicyReader, looked: int) -> None:
        """Follow the topic; its first end answers the questions up to ``looked``, put before the reader began."""
        topic_id = self._topic_id
        is_read = False
        seen, heard_s = reader.table, time.monotonic()
        while not self._stopping.is_set():
            if self._topic_id != topic_id:
                self._log.warning("policies_topic_created_again", topic_id=self._topic_id, before=topic_id)
                return
            at_end = reader.poll(POLL_S)
            if at_end or reader.table is not seen:
                seen, heard_s = reader.table, time.monotonic()
            elif (not is_read or self._answered < looked) and time.monotonic() > heard_s + LOOK_AGAIN_S:
                # A client whose topic was deleted and created again while its broker was away may never notice.
                return
            if at_end:
                self._trouble.is_over()
            # Until the first end only a part of the policies is known.
            is_read = is_read or at_end
            if is_read:
                self._publish(reader.table)
            if at_end:
                self._answer(looked)
            # One look at a time: a new look for every question would never end while many take-overs ask.
            if is_read and self._answered >= looked < self._asked:
                looked, heard_s = self._asked, time.monotonic()
                reader.look_again()

    def _publish(self, table: PolicyTable) -> None:
        if table is self._table:
            return
        before, self._table = self._table, table
        is_news, self._is_known = self._is_known, True
        for scope in before.policies.keys() | table.policies.keys():
            if before.policies.get(scope) != table.policies.get(scope):
                by, through, address = _last_origin(table, scope)
                told = {"by": by, "through": through, "address": address}
                self._log.info("policy_changed", policy=str(scope), is_set=scope in table.policies, **told)
                if is_news:
                    self._changed.labels(str(scope)).set(clock.now_ms() / 1_000)

    def _answer(self, asked: int) -> None:
        with self._turned:
            self._answered = max(self._answered, asked)
            self._turned.notify_all()

    def _wait_for_question(self, seconds: float) -> None:
        """Wait, but return at once if a take-over asks: the topic may have been created a moment ago."""
        until_s = time.monotonic() + seconds
        while not self._stopping.is_set() and time.monotonic() < until_s and self._answered >= self._asked:
            self._stopping.wait(POLL_S)


def _last_origin(table: PolicyTable, scope: Scope) -> ChangeOrigin:
    """Return the origin of the last change of a scope; NOBODY if the topic does not have it any more."""
    return next((change.origin for change in reversed(table.changes) if change.scope == scope), NOBODY)


def watch(config: Config, admin: AdminClient, registry: CollectorRegistry) -> PolicyWatch | WithoutPolicies:
    """Return the policies for workers, and follow them until they are stopped."""
    if not config.router.policies_topic:
        return WITHOUT_POLICIES
    watching = PolicyWatch(config, admin, registry)
    watching.start()
    return watching

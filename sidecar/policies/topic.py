"""Reading and writing the policies topic: one partition, compacted, a record for each scope.

What cannot be understood (damaged, or of a newer router) never becomes silence: the last policy that could be read of
that scope still holds, the record is named in the table, and an error is logged. It ends when the scope is written
again or removed.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from index.errors import ConfigError, FormatError
from sidecar.config.model import Config
from sidecar.kafka import clients
from sidecar.kafka.admin import MISSING
from sidecar.kafka.compacted import begin
from sidecar.kafka.errors import error_of
from sidecar.policies.origin import NOBODY, Change, Origin, origin_of, remembered
from sidecar.policies.policy import Policy, Scope, ScopeKind, decode, encode, scope_of
from sidecar.policies.table import NO_POLICIES, PolicyTable, refuse_impossible, with_policy, without_reading

PARTITION: Final = 0
WRITE_TIMEOUT_S: Final = 10.0
READ_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.1


class PolicyReader:
    """Owns a consumer that reads the topic from its beginning on; ``known`` is what an earlier reader has found."""

    def __init__(self, config: Config, known: PolicyTable = NO_POLICIES) -> None:
        self.table = NO_POLICIES
        self.next_offset = 0
        self._config = config
        self._known = known
        self._topic = config.router.policies_topic
        self._consumer: Consumer = clients.policy_reader(config)
        begin(self._consumer, self._topic, PARTITION)
        self._log = structlog.get_logger().bind(policies_topic=self._topic)

    def poll(self, wait_s: float) -> bool:
        """Take in what has come; whether the end was reached. KafkaException when the topic cannot be read."""
        message = self._consumer.poll(wait_s)
        at_end = False
        while message is not None:
            at_end = self._take_in(message)
            message = self._consumer.poll(0)
        return at_end

    def range_now(self) -> tuple[int, int]:
        """First offset that is still there, and the one behind the last record."""
        place = TopicPartition(self._topic, PARTITION)
        return self._consumer.get_watermark_offsets(place, timeout=READ_TIMEOUT_S)

    def look_again(self) -> None:
        """Have the end reported once more: it is when a fetch that begins after this call finds nothing new."""
        self._consumer.assign([TopicPartition(self._topic, PARTITION, self.next_offset)])

    def close(self) -> None:
        """Give the consumer back to librdkafka."""
        self._consumer.close()

    def _take_in(self, message: Message) -> bool:
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            self.next_offset = max(self.next_offset, message.offset() or 0)
            return True
        self.next_offset = (message.offset() or 0) + 1
        self._apply(message)
        return False

    def _apply(self, message: Message) -> None:
        key = message.key()
        try:
            scope, policy = decode(key, message.value())
            table = with_policy(self.table, scope, policy)
            if policy is not None:
                self._refuse_impossible(table, scope)
        except (FormatError, ConfigError) as error:
            self._keep_last(key, str(error))
        else:
            change = Change(scope, policy, origin_of(_headers(message)), message.timestamp()[1])
            self.table = replace(table, changes=remembered(table.changes, change))

    def _refuse_impossible(self, table: PolicyTable, scope: Scope) -> None:
        if scope.kind is ScopeKind.TOPIC and self._config.delay_topic(scope.name) is None:
            # Of another router that has the same policies topic.
            return
        refuse_impossible(table, self._config, scope)

    def _keep_last(self, key: bytes | None, why: str) -> None:
        try:
            scopes = [scope_of(key)]
        except FormatError:
            scopes = []
        for scope in scopes:
            if scope not in self.table.policies and scope in self._known.policies:
                self.table = with_policy(self.table, scope, self._known.policies[scope])
        name = str(scopes[0]) if scopes else repr(key)
        self.table = without_reading(self.table, name, scopes, why)
        self._log.error(
            "policy_unreadable",
            policy=name,
            offset=self.next_offset - 1,
            why=why,
            still_holds="the last one that could be read" if scopes and scopes[0] in self.table.policies else "none",
            remedy="write the policy again, or remove it",
        )


def _headers(message: Message) -> Sequence[tuple[str, bytes | None]]:
    try:
        return cast("Sequence[tuple[str, bytes | None]]", message.headers() or ())
    except SystemError:
        # Of a name that is no UTF-8, which the client does not hand over.
        return ()


class PoliciesOnDemand:
    """For a command that ends soon: ``settle`` reads the whole topic once more."""

    def __init__(self, config: Config) -> None:
        self.table = NO_POLICIES
        self._config = config

    def settle(self) -> None:
        """Read everything there is; KafkaException when the topic does not answer."""
        if not self._config.router.policies_topic:
            return
        reader = PolicyReader(self._config)
        try:
            _read_to_end(reader)
            self.table = reader.table
        except KafkaException as exception:
            if error_of(exception).code() not in MISSING:
                raise
            self.table = NO_POLICIES
        finally:
            reader.close()


def _read_to_end(reader: PolicyReader) -> None:
    """Read what there is now, by offsets: the client tells of an end only when a fetch has waited in vain for more."""
    until_s = time.monotonic() + READ_TIMEOUT_S
    first, end = reader.range_now()
    while first < end and reader.next_offset < end and not reader.poll(POLL_S):
        if time.monotonic() > until_s:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the policies topic was not read in time"))


def write_policy(config: Config, scope: Scope, policy: Policy | None, origin: Origin = NOBODY) -> None:
    """Write a policy, or remove it, and who did; KafkaException unless every in-sync replica has it."""
    topic = config.router.policies_topic
    if not topic:
        raise ConfigError("router.policies_topic is empty: this router has no policies; name a topic for them")
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = clients.policy_writer(config, WRITE_TIMEOUT_S)
    value = None if policy is None else encode(policy)
    producer.produce(topic, value, scope.key, PARTITION, on_delivery=delivered, headers=origin.headers())
    left = producer.flush(WRITE_TIMEOUT_S + 1)
    producer.purge()
    if failed:
        raise KafkaException(failed[0])
    if left:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"policy {scope} was not written in time"))

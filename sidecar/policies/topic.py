"""Reads and writes the policies topic: one partition, compacted, with a record for each scope.

A record that cannot be understood (damaged, or of a newer router) is never ignored: the last readable policy of its
scope still holds, the table names the record, and an error is logged. This ends with the next readable record of the
scope, or its removal.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message

from index.errors import ConfigError, FormatError
from sidecar.config.model import Config, RouterConfig
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import MISSING
from sidecar.kafka.client.errors import error_of
from sidecar.kafka.reading.scan import NO_END, PartitionScan, Why, learn_leaders, range_of
from sidecar.policies.origin import NOBODY, Change, ChangeOrigin, origin_of, remembered
from sidecar.policies.policy import Policy, Scope, ScopeKind, decode, encode, scope_of
from sidecar.policies.table import NO_POLICIES, PolicyTable, refuse_impossible, with_policy, without_reading

PARTITION: Final = 0
WRITE_TIMEOUT_S: Final = 10.0
READ_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.1


class PolicyReader:
    """Reads the topic from its beginning on with its own consumer; ``known`` is the table of an earlier reader."""

    def __init__(self, config: Config, known: PolicyTable = NO_POLICIES) -> None:
        self.table = NO_POLICIES
        self._config = config
        self._known = known
        self._place = config.router.policies_topic, PARTITION
        self._consumer: Consumer = clients.policy_reader(config)
        learn_leaders(self._consumer, self._place[0])
        self._scan = self._from(OFFSET_BEGINNING)
        self._log = structlog.get_logger().bind(policies_topic=self._place[0])

    def poll(self, wait_s: float) -> bool:
        """Apply the records that have come; return whether the end was reached. Raise KafkaException on an error."""
        self._scan.fetch(wait_s)
        for message in self._scan.taken():
            self._apply(message)
        return bool(self._scan.at_end)

    def read_to_end(self) -> None:
        """Read up to the end of now, by offsets: the client reports an end only after a fetch has waited in vain."""
        there, until_s = range_of(self._consumer, self._place), time.monotonic() + READ_TIMEOUT_S
        while there and self._scan.next_offset[self._place] < there.stop and not self.poll(POLL_S):
            if time.monotonic() > until_s:
                raise self._scan.stopped(Why.OUT_OF_TIME)

    def look_again(self) -> None:
        """Have the end reported once more, after a fetch that begins after this call and finds no record."""
        self._scan = self._from(self._scan.next_offset[self._place])

    def close(self) -> None:
        """Give the consumer back to librdkafka."""
        self._consumer.close()

    def _from(self, offset: int) -> PartitionScan:
        return PartitionScan(self._consumer, {self._place: range(offset, NO_END)})

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
            # The policy belongs to another router with the same policies topic.
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
            offset=self._scan.next_offset[self._place] - 1,
            why=why,
            still_holds="the last one that could be read" if scopes and scopes[0] in self.table.policies else "none",
            remedy="write the policy again, or remove it",
        )


def _headers(message: Message) -> Sequence[tuple[str, bytes | None]]:
    try:
        return cast("Sequence[tuple[str, bytes | None]]", message.headers() or ())
    except SystemError:
        # The client raises it for a header name that is no UTF-8.
        return ()


class PoliciesOnDemand:
    """The policies for a command that ends soon; each ``settle`` reads the whole topic once more."""

    def __init__(self, config: Config) -> None:
        self.table = NO_POLICIES
        self._config = config

    def settle(self) -> None:
        """Read the whole topic; raise KafkaException if it does not answer."""
        if not self._config.router.policies_topic:
            return
        reader = PolicyReader(self._config)
        try:
            reader.read_to_end()
            self.table = reader.table
        except KafkaException as exception:
            if error_of(exception).code() not in MISSING:
                raise
            self.table = NO_POLICIES
        finally:
            reader.close()


def write_policy(config: Config, scope: Scope, policy: Policy | None, origin: ChangeOrigin = NOBODY) -> None:
    """Write or remove a policy, with the origin; raise KafkaException unless every in-sync replica has the record."""
    topic = config.router.policies_topic
    if not topic:
        usual = RouterConfig.model_fields["policies_topic"].default
        raise ConfigError(
            f'router.policies_topic is empty, so routers follow no policies; set it in the configuration ("{usual}"),'
            " create the topic with delay-router init, and restart each router"
        )
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

"""Schedules records from the shell: ``delay-router send orders.delay --after 10s --value hello``.

Turns the options into the headers of the contract, judges them by the rules of the router where the topic is
configured, and sends the record by an idempotent producer with the partitioner of the Java clients.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from index.errors import ConfigError, DelayRouterError
from index.protocol.control_headers import IF_DUE, REPLACE
from index.protocol.headers import Headers
from index.protocol.record import Record
from index.protocol.recurring import Recurrence, recurrence_of
from index.protocol.schedule import Control, Decision, Rejection, Schedule, due_ms_of, schedule_of
from index.rules.rules import Rules
from index.rules.targets import INTERNAL_PREFIX, SCHEME, STATE_ENDING
from sidecar import clock
from sidecar.config.model import Config
from sidecar.config.problems import did_you_mean
from sidecar.config.units import parse_duration_ms
from sidecar.engine.release.occurring import Series
from sidecar.kafka.client import admin
from sidecar.kafka.client.errors import error_of
from sidecar.kafka.writing.record_writer import record_producer
from sidecar.zones import zone_of

FLUSH_TIMEOUT_S: Final = 30.0
ANYWHERE: Final = "*"


@dataclass(frozen=True, slots=True)
class Sent:
    """Position and due time of a sent record; `due_ms` is 0 for a record that is due at once."""

    topic: str
    partition: int
    offset: int
    due_ms: int

    def as_json(self) -> dict[str, object]:
        """Return the record for scripts."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "due_ms": self.due_ms or None,
        }


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """The requested control headers; an empty field is one that was not given.

    ``recurs`` has the headers of recurring schedules by their role. ``if_due_ms`` is a condition on the schedule that
    the record ``replaces``.
    """

    at: str = ""
    after: str = ""
    to: tuple[str, ...] = ()
    key: bytes | None = None
    partition: int | None = None
    deliver_id: str = ""
    expire_after: str = ""
    headers: tuple[tuple[str, bytes], ...] = field(default=())
    recurs: tuple[tuple[str, str], ...] = ()
    replaces: bool = False
    if_due_ms: int | None = None

    def as_headers(self) -> list[tuple[str, bytes | None]]:
        """Return the headers of the record; raise ConfigError when a duration cannot be read."""
        control: list[tuple[str, bytes | None]] = []
        if self.at:
            control.append(("deliver-at", self.at.encode()))
        if self.after:
            control.append(("deliver-after", length("--after", self.after)))
        control += [("deliver-to", target.encode()) for target in self.to]
        if self.key is not None:
            control.append(("deliver-key", self.key))
        if self.partition is not None:
            control.append(("deliver-partition", str(self.partition).encode()))
        if self.deliver_id:
            control.append(("deliver-id", self.deliver_id.encode()))
        if self.expire_after:
            control.append(("deliver-expire-after", length("--expire-after", self.expire_after)))
        if self.replaces:
            control.append((REPLACE, b"true"))
        if self.if_due_ms is not None:
            control.append((IF_DUE, b"%d" % self.if_due_ms))
        for name, text in self.recurs:
            control.append((f"deliver-{name}", length("--every", text) if name == "every" else text.encode()))
        return [*control, *self.headers]


def judge(config: Config, topic: str, headers: Headers, timestamp_ms: int) -> Decision:
    """Return the decision of the router about a record with this timestamp.

    For a topic that is not configured here, reject only records that every router rejects: those with unreadable or
    ambiguous headers.
    """
    configured = config.delay_topic(topic)
    if configured:
        rules = config.rules_for(configured)
    else:
        rules = Rules(
            topic=topic, default_target="any-target", allowed_targets=(ANYWHERE,), recurring=True, min_period_ms=1
        )
    verdict = rules.decide(headers, timestamp_ms)
    recurrence = recurrence_of(headers)
    if isinstance(verdict, Rejection) or not isinstance(recurrence, Recurrence) or not recurrence.begins:
        return verdict
    first = Series(b"", "", zone_of).first_due_ms(Record(None, None, headers, timestamp_ms), recurrence, rules)
    return first if isinstance(first, Rejection) else _due_first(verdict, first)


def _due_first(verdict: Schedule | Control, due_ms: int) -> Schedule | Control:
    """Return the decision about a record that begins a series, with the due time of its first occurrence."""
    if isinstance(verdict, Schedule):
        return verdict._replace(due_ms=due_ms)
    return verdict._replace(schedule=verdict.schedule and verdict.schedule._replace(due_ms=due_ms))


def spread_ms(config: Config, topic: str, verdict: Decision) -> int:
    """Return the longest time, by the spread of its targets, that a record may leave after its due time.

    The offset of the record decides the actual time.
    """
    configured = config.delay_topic(topic)
    schedule = schedule_of(verdict)
    if configured is None or schedule is None or is_past(schedule.due_ms):
        return 0
    return config.rules_for(configured).spread_ms_of(schedule.targets)


def refuse_undelayed(config: Config, topic: str) -> None:
    """Raise ConfigError for a target and for an internal topic of routers: no record is delayed there."""
    if config.delay_topic(topic) is not None:
        return
    if (owner := _owner_of(config, topic)) is not None:
        raise ConfigError(f"{topic} is a topic that the router keeps for itself{_meant(owner)}")
    delivering = [each.name for each in config.delay_topics if topic in each.named_targets()]
    if delivering:
        raise ConfigError(
            f"{topic} is a target: a record that is sent there is delivered at once{_meant(delivering[0])}"
        )


def refuse_unserved(config: Config, client: AdminClient, topic: str, *, force: bool) -> None:
    """Raise ConfigError for an existing topic that is no delay topic of this configuration.

    With ``force``, assume that another router serves it. For a topic that ``allowed_targets`` covers, assume so only
    where a state topic exists beside it.
    """
    if config.delay_topic(topic) is not None:
        return
    covering = [each.name for each in config.delay_topics if config.rules_for(each).allowed(topic)]
    if covering and not (force and admin.is_there(client, topic + STATE_ENDING)):
        raise ConfigError(f"{topic} is a target: a record that is sent there is delivered at once{_meant(covering[0])}")
    if force:
        return
    known = [each.name for each in config.delay_topics]
    close = covering[:1] or get_close_matches(topic, known, n=1)
    raise ConfigError(
        f"{topic} is no delay topic of this configuration ({', '.join(known) or 'it has none'}), and a record that is"
        f" sent there is delivered at once, unless another router serves it: then give --force{_meant(*close)}"
    )


def _owner_of(config: Config, topic: str) -> str | None:
    """Return the delay topic that an internal topic belongs to, empty for one of the router; None for other topics."""
    for each in config.delay_topics:
        if topic in (name for _, _, name in each.roles()):
            return each.name
    if topic.startswith(INTERNAL_PREFIX) or topic in (config.router.policies_topic, config.router.status_topic):
        return ""
    return next((topic.removesuffix(ending) for ending in SCHEME if topic.endswith(ending)), None)


def _meant(delay_topic: str = "") -> str:
    return f"; did you mean {delay_topic}?" if delay_topic else ""


def require_topic(config: Config, client: AdminClient, topic: str) -> None:
    """Raise DelayRouterError, with the remedy, when the cluster has no such topic."""
    if admin.is_there(client, topic):
        return
    if config.delay_topic(topic):
        raise DelayRouterError(f"{topic}: there is no such topic; create it: delay-router init")
    there = client.list_topics(timeout=admin.REQUEST_TIMEOUT_S).topics
    known = sorted({*there, *(each.name for each in config.delay_topics)})
    raise DelayRouterError(f"{topic}: there is no such topic, and none is configured{did_you_mean(topic, known)}")


def missing_targets(client: AdminClient, targets: Iterable[str]) -> list[str]:
    """Return the targets that do not exist."""
    return [target for target in targets if not admin.is_there(client, target)]


def is_past(due_ms: int) -> bool:
    """Say whether this due time has passed, so that a record leaves at once."""
    return due_ms <= clock.now_ms()


def send(config: Config, topic: str, values: Iterable[bytes | None], key: bytes | None, headers: Headers) -> list[Sent]:
    """Send one record for each value; raise DelayRouterError when the brokers did not take one."""

    # Many records of one command have the same timestamp, so the decision is cached.
    @cache
    def due_of(timestamp_ms: int) -> int:
        return due_ms_of(judge(config, topic, headers, timestamp_ms))

    outbox = _Outbox(_producer(config), topic, due_of)
    wire: list[tuple[str, str | bytes | None]] = [*headers]
    for value in values:
        outbox.put(key, value, wire)
        if outbox.failure:
            break
    return outbox.settle()


class _Outbox:
    """Sends records and collects the answers; ``due_of`` returns the due time of a record by its timestamp."""

    def __init__(self, producer: Producer, topic: str, due_of: Callable[[int], int]) -> None:
        self._producer = producer
        self._topic = topic
        self._due_of = due_of
        self._sent: list[Sent] = []
        self.failure = ""

    def put(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, str | bytes | None]]) -> None:
        """Hand over one record; wait while the queue is full."""
        while True:
            try:
                self._producer.produce(self._topic, value, key, headers=headers, on_delivery=self._report)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as exception:
                self.failure = error_of(exception).str()
                return
            else:
                self._producer.poll(0)
                return

    def settle(self) -> list[Sent]:
        """Wait for every answer; raise DelayRouterError unless the brokers took all records."""
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        if left and not self.failure:
            self.failure = f"no answer within {FLUSH_TIMEOUT_S:.0f} s"
        if self.failure:
            raise DelayRouterError(f"{self._topic}: {self.failure} ({len(self._sent)} records were sent)")
        return self._sent

    def _report(self, failure: KafkaError | None, message: Message) -> None:
        if failure is not None:
            self.failure = failure.str()
            return
        # The broker may stamp the record, and a delay counts from that stamp, so the due time is known only now.
        due_ms = self._due_of(message.timestamp()[1])
        self._sent.append(Sent(self._topic, message.partition() or 0, message.offset() or 0, due_ms))


def _producer(config: Config) -> Producer:
    try:
        # A person waits, so give up before the flush does.
        return record_producer(config, "send", int(FLUSH_TIMEOUT_S * 1_000) - 5_000)
    except KafkaException as exception:
        raise ConfigError(f"kafka: {error_of(exception).str()}") from None


def length(option: str, text: str) -> bytes:
    """Return milliseconds or an ISO 8601 duration unchanged, and ``10s`` and the like as milliseconds."""
    if text.isdecimal() or text.startswith("P"):
        return text.encode()
    try:
        return str(parse_duration_ms(text)).encode()
    except ValueError as error:
        raise ConfigError(f"{option}: {error}; or milliseconds, or an ISO 8601 duration such as PT15M") from None

"""Cancels what is pending under an id, and waits for the receipts that say what became of it.

A control holds in its own partition. Whoever knows which one the schedule lies in names it; else each partition gets a
control, and the one that holds the id says what it has cancelled, while the others say that nothing was pending.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from index.control_headers import CANCEL, IF_DUE
from index.errors import ConfigError, DelayRouterError
from index.headers import DELAY_SOURCE, Headers
from index.receipts import Outcome
from index.schedule import Rejection
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.intake.handed_over import readable_headers
from sidecar.kafka import admin as brokers
from sidecar.kafka import clients
from sidecar.kafka.admin import Place, TopicFacts, offsets, topic_facts
from sidecar.kafka.errors import is_end
from sidecar.logs import events

WAIT_S: Final = 10.0
"""A receipt takes some 20 ms where the partition is served; a take-over takes seconds."""

_AT_ONCE: Final = 1_000
_POLL_S: Final = 0.1
_FLUSH_S: Final = 6.0
_SHOWN: Final = 5


class NothingPendingError(ConfigError):
    """Nothing of this id is pending."""


class ChangedError(DelayRouterError):
    """What is pending is due at another time than was asked for."""


class NoReceiptError(DelayRouterError):
    """The controls are written, and not every receipt has come in time."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to cancel: all that is pending under an id, or what is due exactly then; in one partition, or wherever."""

    deliver_id: bytes
    if_due_ms: int | None = None
    partition: int | None = None

    @property
    def headers(self) -> Headers:
        """As its controls carry them."""
        if_due: Headers = [] if self.if_due_ms is None else [(IF_DUE, b"%d" % self.if_due_ms)]
        return [(CANCEL, self.deliver_id), *if_due]


class Cancelled(NamedTuple):
    """A schedule that is not released any more."""

    partition: int
    offset: int
    due_ms: int

    def as_json(self) -> dict[str, int]:
        """For scripts."""
        return {"partition": self.partition, "offset": self.offset, "due_ms": self.due_ms}


@dataclass(frozen=True, slots=True)
class Told:
    """What the receipt of a control says."""

    outcome: str
    cancelled: tuple[Cancelled, ...] = ()


def cancel(
    config: Config, admin: AdminClient, topic: DelayTopicConfig, order: Order, wait_s: float = WAIT_S
) -> list[Cancelled]:
    """Cancel it, and return what was cancelled once that is committed.

    NothingPendingError, ChangedError and NoReceiptError say what became of it otherwise; ConfigError when the delay
    topic accepts no such control, KafkaException when the cluster does not answer.
    """
    verdict = config.rules_for(topic).decide(order.headers, time.time_ns() // 1_000_000)
    if isinstance(verdict, Rejection):
        raise ConfigError(f"{topic.name}: {verdict.reason}: {verdict.message}")
    places = [(topic.receipts, number) for number in _partitions(admin, topic, order.partition)]
    receipts = _Receipts(config, topic, _ends(admin, places))
    try:
        written = _write(config, topic.name, [number for _, number in places], order)
        receipts.wait(written, time.monotonic() + wait_s)
    finally:
        receipts.close()
    return together(order, receipts.found, written, topic)


def _partitions(admin: AdminClient, topic: DelayTopicConfig, wanted: int | None) -> Sequence[int]:
    facts = topic_facts(admin, [topic.name])[topic.name]
    if not isinstance(facts, TopicFacts):
        raise ConfigError(f"{topic.name}: there is no such topic, or it may not be described")
    if wanted is not None and wanted >= facts.partitions:
        raise ConfigError(f"{topic.name} has {facts.partitions} partitions, from 0 on")
    return range(facts.partitions) if wanted is None else [wanted]


def _ends(admin: AdminClient, places: Sequence[Place]) -> dict[int, int]:
    """Where receipts that are written from now on will lie."""
    told = offsets(admin, dict.fromkeys(places, OffsetSpec.latest()), IsolationLevel.READ_COMMITTED)
    ends: dict[int, int] = {}
    for (name, number), each in told.items():
        if not isinstance(each, brokers.Told):
            raise DelayRouterError(f"receipts topic {name}, partition {number}: {each.str()}; delay-router check")
        ends[number] = each.offset
    return ends


def _write(config: Config, topic: str, partitions: Sequence[int], order: Order) -> dict[int, int]:
    """Where each control lies: its partition, and its offset."""
    written: dict[int, int] = {}
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            written[message.partition() or 0] = message.offset() or 0

    producer = Producer(
        {
            **config.kafka,
            "client.id": f"{config.router.group_id}-cancel",
            "enable.idempotence": True,
            "allow.auto.create.topics": False,
            "linger.ms": 0,
            "message.timeout.ms": 5_000,
            "topic.metadata.propagation.max.ms": 5_000,
        },
        logger=events.librdkafka_logger(),
    )
    for number in partitions:
        producer.produce(topic, None, None, number, on_delivery=note, headers=[*order.headers])
    producer.flush(_FLUSH_S)
    if failures or len(written) < len(partitions):
        # Some may be written, and are acted on: to cancel once more does no harm.
        raise KafkaException(failures[0] if failures else KafkaError(KafkaError._TIMED_OUT, "no control was written"))
    return written


class _Receipts:
    """Reads on from the ends of the receipts topic as they were before the controls were written."""

    def __init__(self, config: Config, topic: DelayTopicConfig, ends: Mapping[int, int]) -> None:
        self._source = f"{topic.name}/".encode()
        self._consumer: Consumer = clients.state_reader(config)
        self._consumer.assign([TopicPartition(topic.receipts, number, end) for number, end in ends.items()])
        self.found: dict[int, Told] = {}

    def wait(self, written: Mapping[int, int], until_s: float) -> None:
        """Until there is a receipt of each of these controls, or the time is over."""
        wanted = {self._source + b"%d/%d" % place: place[0] for place in written.items()}
        while len(self.found) < len(written) and time.monotonic() < until_s:
            for message in self._consumer.consume(_AT_ONCE, _POLL_S):
                if is_end(message):
                    continue
                source = dict(readable_headers(message)).get(DELAY_SOURCE) or b""
                if source in wanted:
                    self.found[wanted[source]] = _read(wanted[source], message.value() or b"")

    def close(self) -> None:
        """Give the consumer back."""
        self._consumer.close()


def _read(partition: int, value: bytes) -> Told:
    plain = json.loads(value)
    cancelled = [Cancelled(partition, each["offset"], each["due"]) for each in plain["cancelled"]]
    return Told(plain["outcome"], tuple(cancelled))


def together(
    order: Order, found: Mapping[int, Told], written: Mapping[int, int], topic: DelayTopicConfig
) -> list[Cancelled]:
    """What the receipts say together; ``written`` has the offset of each control, by its partition, as ``found``."""
    shown = order.deliver_id.decode("utf-8", "replace")
    cancelled = sorted(each for receipt in found.values() for each in receipt.cancelled)
    outcomes = {receipt.outcome for receipt in found.values()}
    missing = [f"{topic.name}/{number}/{offset}" for number, offset in sorted(written.items()) if number not in found]
    if missing:
        raise NoReceiptError(
            f"{shown}: {', '.join(missing[:_SHOWN])} cancel it, and no receipt has come yet; they will be acted on. See"
            f" whether the partition is served (delay-router status {topic.name}), and then {topic.receipts}, or"
            f" {topic.rejected} where a control was rejected"
        )
    if Outcome.CANCELLED in outcomes:
        return cancelled
    if Outcome.CHANGED in outcomes:
        raise ChangedError(f"{shown}: what is pending in {topic.name} is due at another time; nothing was cancelled")
    raise NothingPendingError(f"{shown}: nothing of this id is pending in {topic.name}; it may have left already")

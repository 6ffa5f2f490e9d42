"""Cancels or moves the schedules that are pending under an id, or cancels those that match a predicate.

It waits for the receipts that confirm it.

A control acts on its own partition. A caller that knows the partition of the schedule names it. Otherwise each
partition gets a control: the receipt of the partition that holds the id tells the outcome, and the others say that
nothing was pending.

Rejected: to find the partition that holds the id first, and to write only there. A first search reads all pending
schedules, which takes longer than one record in each partition. It would also miss schedules that arrive after it, so
'not pending' would be a guess. The receipts of all partitions together are certain.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient

from index.errors import ConfigError
from index.named.receipts import ControlOutcome, Matched
from index.protocol.headers import Headers
from index.protocol.schedule import Rejection
from sidecar import clock
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.writing.record_writer import record_producer
from sidecar.operations.controls.orders import WAIT_S, ControlOrder, QueryOrder, ReceiptAnswer
from sidecar.operations.controls.receipts import (
    ChangedError,
    NoReceiptError,
    NothingPendingError,
    NotMovedError,
    Receipts,
    partitions_of,
)

_TIMEOUT_MS: Final = 5_000
_FLUSH_S: Final = 6.0


class UnknownPartitionError(ConfigError):
    """The delay topic has no partition of this number."""


def carry_out(
    config: Config, admin: AdminClient, topic: DelayTopicConfig, order: ControlOrder, wait_s: float = WAIT_S
) -> ReceiptAnswer:
    """Carry out an order, and return the schedules that it cancelled or moved once that is committed.

    Raise NothingPendingError, ChangedError, NotMovedError or NoReceiptError when it is not done, ConfigError when the
    delay topic accepts no such control, UnknownPartitionError when it has no such partition, and KafkaException when
    the cluster does not answer.
    """
    return together(order, *_answered(config, admin, topic, order, wait_s), topic)


def cancel_where(
    config: Config, admin: AdminClient, topic: DelayTopicConfig, order: QueryOrder, wait_s: float = WAIT_S
) -> Matched:
    """Cancel all schedules that match, and return their number once that is committed.

    Raise NoReceiptError when not every receipt has come, and the other errors of :func:`carry_out`.
    """
    found, written = _answered(config, admin, topic, order, wait_s)
    if missing := [place for place in sorted(written.items()) if place[0] not in found]:
        raise NoReceiptError(topic, "all that matches is cancelled", missing)
    told = [receipt.matched or Matched() for receipt in found.values()]
    exact = [each.exact for each in told if each.exact is not None]
    if len(exact) == len(told):
        return Matched(sum(exact))
    return Matched(None, sum(each.exact or each.estimated or 0 for each in told))


def _answered(
    config: Config, admin: AdminClient, topic: DelayTopicConfig, order: ControlOrder | QueryOrder, wait_s: float
) -> tuple[Mapping[int, ReceiptAnswer], Mapping[int, int]]:
    """Write the controls of an order; return the receipts that have come, and the offsets of the controls."""
    verdict = config.rules_for(topic).decide(order.headers, clock.now_ms())
    if isinstance(verdict, Rejection):
        raise ConfigError(f"{topic.name}: {verdict.reason}: {verdict.message}")
    partitions = _partitions(admin, topic.name, order.partition)
    receipts = Receipts.from_now_on(config, admin, topic, partitions)
    try:
        written = _write(config, topic.name, partitions, order.headers)
        receipts.wait(written, time.monotonic() + wait_s)
    finally:
        receipts.close()
    return receipts.found, written


def _partitions(admin: AdminClient, topic: str, wanted: int | None) -> Sequence[int]:
    there = partitions_of(admin, topic)
    if wanted is not None and wanted >= there:
        raise UnknownPartitionError(f"{topic} has no partition {wanted}: it has {there}, from 0 on")
    return range(there) if wanted is None else [wanted]


def _write(config: Config, topic: str, partitions: Sequence[int], headers: Headers) -> dict[int, int]:
    """Write a control with these headers to each partition; return the offset of each by its partition."""
    written: dict[int, int] = {}
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            written[message.partition() or 0] = message.offset() or 0

    producer = record_producer(config, "control", _TIMEOUT_MS, {"linger.ms": 0})
    for number in partitions:
        producer.produce(topic, None, None, number, on_delivery=note, headers=[*headers])
    producer.flush(_FLUSH_S)
    if failures or len(written) < len(partitions):
        # Some controls may be written, and routers act on them; the caller may safely repeat the order.
        raise KafkaException(failures[0] if failures else KafkaError(KafkaError._TIMED_OUT, "no control was written"))
    return written


def together(
    order: ControlOrder, found: Mapping[int, ReceiptAnswer], written: Mapping[int, int], topic: DelayTopicConfig
) -> ReceiptAnswer:
    """Merge the receipts ``found``, by partition; ``written`` has the offset of each control, also by partition.

    Raise the error that tells why the order is not done.
    """
    shown = order.deliver_id.decode("utf-8", "replace")
    # Keep the order of each receipt: the last schedule in it is the one that was moved.
    cancelled = [each for _, receipt in sorted(found.items()) for each in receipt.cancelled]
    outcomes = {receipt.outcome for receipt in found.values()}
    if missing := [place for place in sorted(written.items()) if place[0] not in found]:
        raise NoReceiptError(topic, f"{shown} is {order.done}", missing)
    why = "; ".join(receipt.why for receipt in found.values() if receipt.why)
    # A move may cancel the older schedules and then fail to write the last one again. Its receipt says cancelled and
    # does not name the last one.
    for outcome in (order.done, ControlOutcome.CANCELLED):
        if outcome in outcomes:
            dues_ms = (receipt.due_ms for receipt in found.values() if receipt.due_ms is not None)
            return ReceiptAnswer(outcome, tuple(cancelled), max(dues_ms, default=None), why)
    if ControlOutcome.NOT_MOVED in outcomes:
        raise NotMovedError(f"{shown}: the schedule in {topic.name} stays due as before, for it was not moved: {why}")
    if ControlOutcome.CHANGED in outcomes:
        raise ChangedError(f"{shown}: the schedule in {topic.name} is due at another time; nothing was {order.done}")
    raise NothingPendingError(f"{shown}: nothing of this id is pending in {topic.name}; it may have left already")

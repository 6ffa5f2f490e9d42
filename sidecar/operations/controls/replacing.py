"""Waits for the receipt of a record that replaces the schedules pending under its id."""

import time
from contextlib import closing
from typing import TypeAlias

from confluent_kafka.admin import AdminClient

from index.errors import ConfigError
from index.named.receipts import ControlOutcome
from index.protocol.control_headers import IF_DUE, REPLACE
from index.protocol.headers import CONTROL_PREFIX, Headers
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.operations.controls.orders import WAIT_S, ReceiptAnswer
from sidecar.operations.controls.receipts import (
    ChangedError,
    NoReceiptError,
    NothingPendingError,
    Receipts,
    partitions_of,
)

Place: TypeAlias = tuple[int, int]
"""Partition and offset of a record."""


def headers_of(deliver_id: str, if_due_ms: int | None) -> Headers:
    """Return the headers that make a record replace the schedules pending under an id, due exactly at ``if_due_ms``."""
    if_due: Headers = [] if if_due_ms is None else [(IF_DUE, b"%d" % if_due_ms)]
    return [(CONTROL_PREFIX + "id", deliver_id.encode()), (REPLACE, b"true"), *if_due]


def require_key(admin: AdminClient, topic: str) -> None:
    """Raise ConfigError where a record without a key could go to another partition than the schedule to replace."""
    partitions = partitions_of(admin, topic)
    if partitions > 1:
        raise ConfigError(
            f"{topic} has {partitions} partitions, and a record replaces schedules in its own partition: give --key,"
            " the key of the pending schedule; for a schedule without a key: delay-router cancel, and then send"
            " without --replace"
        )


def receipts_to_come(config: Config, admin: AdminClient, topic: str) -> closing[Receipts]:
    """Return a reader for receipts from now on; raise ConfigError where the delay topic is not configured."""
    configured = config.require_delay_topic(topic)
    return closing(Receipts.from_now_on(config, admin, configured, range(partitions_of(admin, topic))))


def replaced_by(
    place: Place, receipts: Receipts, topic: DelayTopicConfig, deliver_id: str, wait_s: float = WAIT_S
) -> ReceiptAnswer:
    """Wait until the receipt of the record at this place is committed, and return it; raise as :func:`judged` does."""
    receipts.wait(dict([place]), time.monotonic() + wait_s)
    return judged(place, receipts.found.get(place[0]), topic, deliver_id)


def judged(place: Place, told: ReceiptAnswer | None, topic: DelayTopicConfig, deliver_id: str) -> ReceiptAnswer:
    """Return the receipt of a record that is delivered; it names the replaced schedules, if any was pending.

    Raise NothingPendingError or ChangedError when the record was to replace only a schedule with a given due time and
    is itself not delivered, and NoReceiptError when there is no receipt yet.
    """
    if told is None:
        raise NoReceiptError(topic, f"{deliver_id} is replaced", [place])
    if told.outcome == ControlOutcome.CHANGED:
        raise ChangedError(
            f"{deliver_id}: the schedule in {topic.name}, partition {place[0]}, is due at another time; nothing was"
            " replaced, and the record just sent is not delivered"
        )
    if told.outcome == ControlOutcome.NOT_PENDING and told.due_ms is None:
        raise NothingPendingError(
            f"{deliver_id}: nothing of this id is pending in {topic.name}, partition {place[0]}; it may have left"
            " already, and the record just sent is not delivered"
        )
    return told

"""Finds the receipt about a record: a control has cancelled the record, or the record is a control itself."""

import json
from functools import partial
from typing import NamedTuple

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from index.named.receipts import ControlOutcome
from index.protocol.headers import DELAY_SOURCE
from sidecar.config.model import Config
from sidecar.kafka.reading.handed_over import readable_headers
from sidecar.operations.status.searching import look_through


class ReceiptContent(NamedTuple):
    """The content of a receipt: the offset and the outcome of the control, and how many schedules it has cancelled.

    ``is_schedule`` says that the control is a schedule itself. ``due_ms`` is the due time of the last schedule that it
    has moved.
    """

    offset: int
    outcome: ControlOutcome
    cancelled: int
    is_schedule: bool
    due_ms: int | None = None


def receipt_about(
    config: Config, admin: AdminClient, receipts: str, partition: int, offset: int, from_ms: int
) -> ReceiptContent | None:
    """Return the receipt that names the record at an offset or answers it as a control; None where there is none.

    Raise the errors of :func:`sidecar.operations.status.searching.look_through`.
    """
    return look_through(config, admin, receipts, from_ms, partial(_look, offset), partition)


def _look(offset: int, message: Message) -> ReceiptContent | None:
    try:
        said = json.loads(message.value() or b"")
        outcome, named = ControlOutcome(said["outcome"]), [each["offset"] for each in said["cancelled"]]
        left_out, due_ms = said.get("omitted", {}).get("cancelled", 0), said["due"] and int(said["due"])
        is_schedule = due_ms is not None and outcome is not ControlOutcome.MOVED
        source = (dict(readable_headers(message)).get(DELAY_SOURCE) or b"").decode()
        control = int(source.rpartition("/")[2])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # Another program may have written a record that is no receipt.
        return None
    if offset not in named and (offset != control or is_schedule):
        return None
    return ReceiptContent(control, outcome, len(named) + left_out, is_schedule, None if is_schedule else due_ms)

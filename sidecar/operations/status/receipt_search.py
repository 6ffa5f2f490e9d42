"""Finds the receipt about a record: a control has cancelled the record, or the record is a control itself.

The receipt of a query does not name the schedules in front of it, but has the predicate among its headers.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from index.named.receipts import ControlOutcome
from index.protocol.control_headers import CANCEL_WHERE
from index.protocol.headers import DELAY_SOURCE, lowered
from index.protocol.where import CancelWhere, parse_where
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


class FoundQuery(NamedTuple):
    """A query that is true of a record: the offset of its control, and the time of its receipt."""

    offset: int
    receipt_ms: int


def query_about(
    config: Config,
    admin: AdminClient,
    receipts: str,
    partition: int,
    offset: int,
    from_ms: int,
    matches: Callable[[CancelWhere], bool],
) -> FoundQuery | None:
    """Return the first query behind an offset whose predicate ``matches``; None where there is none.

    Raise the errors of :func:`sidecar.operations.status.searching.look_through`.
    """
    return look_through(config, admin, receipts, from_ms, partial(_look_for_query, offset, matches), partition)


def _look_for_query(offset: int, matches: Callable[[CancelWhere], bool], message: Message) -> FoundQuery | None:
    headers = readable_headers(message)
    raw = next((value for name, value in headers if lowered(name) == CANCEL_WHERE), None)
    try:
        outcome = ControlOutcome(json.loads(message.value() or b"")["outcome"])
        control = int((dict(headers).get(DELAY_SOURCE) or b"").decode().rpartition("/")[2])
        is_about = outcome is ControlOutcome.CANCELLED_WHERE and control > offset and matches(parse_where(raw or b""))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return FoundQuery(control, message.timestamp()[1]) if is_about else None


def _look(offset: int, message: Message) -> ReceiptContent | None:
    try:
        said = json.loads(message.value() or b"")
        outcome, named = ControlOutcome(said["outcome"]), [each["offset"] for each in said["cancelled"]]
        left_out, due_ms = said.get("omitted", {}).get("cancelled", 0), said["due"] and int(said["due"])
        matched = int(said.get("matched") or said.get("estimated") or 0)
        is_schedule = due_ms is not None and outcome is not ControlOutcome.MOVED
        source = (dict(readable_headers(message)).get(DELAY_SOURCE) or b"").decode()
        control = int(source.rpartition("/")[2])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # Another program may have written a record that is no receipt.
        return None
    if offset not in named and (offset != control or is_schedule):
        return None
    cancelled = max(len(named) + left_out, matched)
    return ReceiptContent(control, outcome, cancelled, is_schedule, None if is_schedule else due_ms)

"""Records to write, orders to cancel or move schedules, and the answers to both: values without a Kafka client."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from index.named.receipts import ControlOutcome, Matched
from index.protocol.control_headers import CANCEL, CANCEL_WHERE, IF_DUE, MOVE
from index.protocol.headers import Headers
from index.protocol.where import CancelWhere

WAIT_S: Final = 10.0
"""Wait for a receipt. It takes about 20 ms where the partition is served, and a take-over takes seconds."""


@dataclass(frozen=True, slots=True)
class ControlOrder:
    """An order to cancel or to move the schedules pending under an id, or only those due exactly at ``if_due_ms``.

    It covers one partition, or all. ``moves_to`` is the header with the new due time; without it the schedules are
    cancelled.
    """

    deliver_id: bytes
    if_due_ms: int | None = None
    partition: int | None = None
    moves_to: tuple[str, bytes] | None = None

    @property
    def done(self) -> ControlOutcome:
        """The outcome in its receipt where a schedule was pending."""
        return ControlOutcome.CANCELLED if self.moves_to is None else ControlOutcome.MOVED

    @property
    def headers(self) -> Headers:
        """The headers of its controls."""
        if_due: Headers = [] if self.if_due_ms is None else [(IF_DUE, b"%d" % self.if_due_ms)]
        if self.moves_to is None:
            return [(CANCEL, self.deliver_id), *if_due]
        return [(MOVE, self.deliver_id), self.moves_to, *if_due]


@dataclass(frozen=True, slots=True)
class QueryOrder:
    """An order to cancel all pending schedules that match a predicate, in one partition or in all."""

    where: CancelWhere
    partition: int | None = None

    @property
    def headers(self) -> Headers:
        """The headers of its controls."""
        return [(CANCEL_WHERE, self.where.canonical())]


class Cancelled(NamedTuple):
    """A schedule that was cancelled, replaced or moved."""

    partition: int
    offset: int
    due_ms: int

    def as_json(self) -> dict[str, int]:
        """Return the schedule for scripts."""
        return {"partition": self.partition, "offset": self.offset, "due_ms": self.due_ms}


@dataclass(frozen=True, slots=True)
class ReceiptAnswer:
    """The content of a control's receipt; ``due_ms`` is the due time of the schedule now pending instead, if any.

    A move keeps the last of the schedules in a partition, with the new due time. ``why`` tells why a move could not
    write that schedule again. ``matched`` is the number of schedules that a query has cancelled.
    """

    outcome: str
    cancelled: tuple[Cancelled, ...] = ()
    due_ms: int | None = None
    why: str = ""
    matched: Matched | None = None

    def as_json(self) -> dict[str, object]:
        """Return the receipt for scripts that replace schedules."""
        return {"outcome": self.outcome, "replaced": [each.as_json() for each in self.cancelled]}


class NewRecord(NamedTuple):
    """A record for a delay topic."""

    key: bytes | None
    value: bytes | None
    headers: Headers

    def with_headers(self, more: Headers) -> "NewRecord":
        """Return the record with more headers, behind its own."""
        return self._replace(headers=[*self.headers, *more])


@dataclass(frozen=True, slots=True)
class Written:
    """The place of a written record in its delay topic, its due time and its targets."""

    topic: str
    partition: int
    offset: int
    due_ms: int
    targets: Sequence[str]

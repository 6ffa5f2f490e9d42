"""Keeps the progress of every order: its due time, its arrivals, its rejection, or its cancellation."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sidecar.dev.demo.orders import ATTEMPTS, FACTOR, FIRST_WAIT_MS, DemoOrder


@dataclass
class BoardRow:
    """A sent order; times are epoch ms, arrivals are the brokers' append times by topic.

    ``attempt`` is the last attempt of an order that is retried, and ``exhausted`` says that no further one was left.
    ``taken_back`` is the outcome if a ``receipt`` says that the order was taken back; it is "answered" for a control
    that is no order itself. ``due_ms`` is the due time of the last arrival if the order recurs, and the new due time if
    it was moved.
    """

    order: DemoOrder
    due_ms: int | None
    arrivals: dict[str, int] = field(default_factory=dict)
    reason: str = ""
    reason_text: str = ""
    taken_back: str = ""
    receipt: str = ""
    occurrences: set[str] = field(default_factory=set)
    attempt: int = 0
    exhausted: bool = False

    @property
    def finished(self) -> bool:
        """Says that the order was rejected, was taken back, or has arrived in all of its targets."""
        if self.reason or self.taken_back:
            return True
        is_everywhere = bool(self.order.targets) and self.arrivals.keys() >= set(self.order.targets)
        return is_everywhere and len(self.occurrences) >= (self.order.times if self.order.times > 1 else 0)

    @property
    def arrived_ms(self) -> int | None:
        """Arrival time of the last copy; None before it has arrived."""
        return max(self.arrivals.values()) if self.finished and self.arrivals else None

    @property
    def late_ms(self) -> int | None:
        """Lateness of the last copy in ms; None before it has arrived."""
        if self.arrived_ms is None or self.due_ms is None:
            return None
        return self.arrived_ms - self.due_ms


class Board:
    """All orders by their place in the delay topic (``topic/partition/offset``)."""

    def __init__(self) -> None:
        self._rows: dict[str, BoardRow] = {}
        self._moved: dict[str, BoardRow] = {}
        self._sent_back: dict[str, BoardRow] = {}

    @property
    def rows(self) -> Sequence[BoardRow]:
        """Rows by due time; orders without one, which are rejected, come first."""
        return sorted(self._rows.values(), key=lambda row: row.due_ms or 0)

    @property
    def complete(self) -> bool:
        """Says that every order has come to its end."""
        return all(row.finished for row in self._rows.values())

    def sent(self, place: str, order: DemoOrder, timestamp_ms: int) -> None:
        """Enter an order that the broker has taken; its delay counts from `timestamp_ms`."""
        due_ms = order.due_ms if order.delay_ms is None else timestamp_ms + order.delay_ms
        self._rows[place] = BoardRow(order, due_ms)

    def arrived(self, topic: str, at_ms: int, headers: Iterable[tuple[str, bytes | None]]) -> BoardRow | None:
        """Enter a record of a target or rejected topic; return the row of its order if that has finished now."""
        found = {name: (raw or b"").decode(errors="replace") for name, raw in headers}
        # An occurrence or a moved order was written by the router, so its source is another place.
        source = found.get("delay-source", "")
        row = self._rows.get(source) or self._sent_back.get(source) or self._rows.get(found.get("delay-series", ""))
        row = row or self._moved.get(found.get("delay-id", ""))
        if row is None:
            return None
        before = row.finished
        if "delay-error" in found:
            row.reason = found["delay-error"]
            row.reason_text = found.get("delay-error-message", "")
        elif row.order.times > 1:
            row.occurrences.add(found.get("delay-occurrence", ""))
            row.arrivals[topic], row.due_ms = at_ms, int(found["delay-due"])
        elif row.order.fails:
            row.attempt, row.due_ms = int(found["delay-attempt"]), int(found["delay-due"])
            row.exhausted = "delay-attempts-exhausted" in found
            if row.exhausted or row.attempt >= row.order.fails:
                row.arrivals[topic] = at_ms
        else:
            row.arrivals.setdefault(topic, at_ms)
        return row if row.finished and not before else None

    def failed(self, headers: Iterable[tuple[str, bytes | None]]) -> BoardRow | None:
        """Return the row of an order that has just arrived and that its consumer cannot handle; None for all others."""
        source = (dict(headers).get("delay-source") or b"").decode()
        row = self._sent_back.get(source) or self._rows.get(source)
        return row if row is not None and row.order.fails and not row.finished else None

    def sent_back(self, place: str, row: BoardRow, at_ms: int) -> None:
        """Enter the place of an order that its consumer has sent back."""
        self._sent_back[place] = row
        row.due_ms = at_ms + (FIRST_WAIT_MS * FACTOR**row.attempt if row.attempt < ATTEMPTS else 0)

    def answered(self, value: bytes, headers: Iterable[tuple[str, bytes | None]]) -> list[BoardRow]:
        """Enter a receipt; return the rows that it finishes."""
        source = (dict(headers).get("delay-source") or b"").decode()
        control = self._rows.get(source)
        if control is None:
            return []
        told = json.loads(value)
        partition = source.rpartition("/")[0]
        taken = [self._rows[f"{partition}/{each['offset']}"] for each in told["cancelled"]]
        moved = taken.pop() if told["outcome"] == "moved" else None
        for row in taken:
            row.taken_back, row.receipt = "cancelled" if moved else told["outcome"], value.decode()
        if moved is not None:
            self._moved[moved.order.deliver_id] = moved
            moved.due_ms, moved.receipt = told["due"], value.decode()
        if control.order.targets:
            return taken
        control.taken_back, control.receipt = "answered", value.decode()
        return [*taken, control]

"""Reads the predicate of a control that cancels by query, independently of the router."""

import json
from collections.abc import Iterable
from typing import NamedTuple, Self

from sidecar.dev.audit.record import AT_ONCE, Header, instant_ms


class AuditedWhere(NamedTuple):
    """A predicate; a field that is None is true of each record. ``header`` is a mark of the wanted header."""

    target: str | None
    due_from_ms: int | None
    due_to_ms: int | None
    id_prefix: bytes | None
    header: int | None

    @classmethod
    def of(cls, raw: bytes | None) -> Self | None:
        """Read the value of a control header; return None if the router should have rejected it."""
        try:
            said = json.loads(raw or b"")
            header, prefix, target = said.get("header"), said.get("id_prefix"), said.get("target")
            return cls(
                None if target is None else str(target),
                _instant_ms(said.get("due_from")),
                _instant_ms(said.get("due_to")),
                None if prefix is None else str(prefix).encode(),
                None if header is None else hash((str(header["name"]), str(header["value"]).encode())),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def matches(
        self, targets: Iterable[str], due_ms: int, sent_ms: int, deliver_id: bytes | None, marks: Iterable[int]
    ) -> bool:
        """Say whether it is true of a record; a record without a time of its own has the time of its timestamp."""
        at_ms = due_ms if due_ms != AT_ONCE else max(sent_ms, AT_ONCE)
        return (
            (self.target is None or self.target in targets)
            and (self.due_from_ms is None or at_ms >= self.due_from_ms)
            and (self.due_to_ms is None or at_ms < self.due_to_ms)
            and (self.id_prefix is None or (deliver_id is not None and deliver_id.startswith(self.id_prefix)))
            and (self.header is None or self.header in marks)
        )


def marks_of(headers: Iterable[Header]) -> tuple[int, ...]:
    """Return a mark for each header: enough to find a header again, and smaller than its value."""
    return tuple(hash((name, raw)) for name, raw in headers)


def _instant_ms(value: object) -> int | None:
    return None if value is None else instant_ms(str(value).encode())

"""The receipt about a record, found by its contents; other records in the topic are passed over."""

import json
from typing import Any

import pytest

from index.named.receipts import ControlOutcome
from sidecar.operations.status.receipt_search import FoundQuery, ReceiptContent, _look, _look_for_query


class Message:
    """A record of the receipts topic, as the client hands it over."""

    def __init__(self, value: bytes | None, source: bytes | None = b"d/3/77") -> None:
        self._value = value
        self._source = source

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]]:
        where = b'{"target": "out"}'
        return [("Deliver-Cancel-Where", where), ("delay-source", b"forged/3/1"), ("delay-source", self._source)]

    def timestamp(self) -> tuple[int, int]:
        return 1, 9_000


def look(offset: int, value: bytes | None, source: bytes | None = b"d/3/77") -> ReceiptContent | None:
    message: Any = Message(value, source)
    return _look(offset, message)


def receipt(outcome: str, *offsets: int, due: int | None = None, **more: Any) -> bytes:
    cancelled = [{"offset": offset, "due": 5} for offset in offsets]
    return json.dumps({"action": "x", "outcome": outcome, "cancelled": cancelled, "due": due, **more}).encode()


def test_what_it_names_and_its_control() -> None:
    value = receipt("cancelled", 12, 30)
    wanted = ReceiptContent(77, ControlOutcome.CANCELLED, 2, is_schedule=False)
    assert (look(12, value), look(30, value), look(77, value)) == (wanted, wanted, wanted)
    assert look(13, value) is None


def test_a_replacement_is_a_schedule_itself() -> None:
    value = receipt("replaced", 12, due=90)
    assert look(12, value) == ReceiptContent(77, ControlOutcome.REPLACED, 1, is_schedule=True)
    assert look(77, value) is None


def test_a_move_is_no_schedule_and_tells_when_another_is_due() -> None:
    value = receipt("moved", 12, due=90)
    wanted = ReceiptContent(77, ControlOutcome.MOVED, 1, is_schedule=False, due_ms=90)
    assert (look(12, value), look(77, value)) == (wanted, wanted)
    assert look(12, value.replace(b"90", b"[90]")) is None


def test_what_had_no_room_is_counted() -> None:
    value = receipt("cancelled", omitted={"cancelled": 120_000})
    assert look(77, value) == ReceiptContent(77, ControlOutcome.CANCELLED, 120_000, is_schedule=False)


@pytest.mark.parametrize(
    "value", [None, b"", b"{", b"[]", b"\xff", receipt("gone", 12), b'{"outcome": "cancelled", "cancelled": [7]}']
)
def test_what_is_no_receipt_is_passed_over(value: bytes | None) -> None:
    assert look(12, value) is None
    assert look(12, receipt("cancelled", 12), b"nowhere") is None
    assert look(12, receipt("cancelled", 12), None) is None


def test_a_query_tells_how_many_and_by_its_headers_which() -> None:
    value = receipt("cancelled-where", 90, matched=5)
    wanted = ReceiptContent(77, ControlOutcome.CANCELLED_WHERE, 5, is_schedule=False)
    assert (look(77, value), look(90, value), look(12, value)) == (wanted, wanted, None)
    estimated = receipt("cancelled-where", matched=None, estimated=7)
    assert look(77, estimated) == wanted._replace(cancelled=7)

    def found(offset: int, value: bytes | None, target: str = "out") -> FoundQuery | None:
        message: Any = Message(value)
        return _look_for_query(offset, lambda where: where.target == target, message)

    assert found(76, value) == FoundQuery(77, 9_000)
    assert (found(77, value), found(76, value, "x"), found(76, receipt("cancelled", 76))) == (None, None, None)
    assert found(76, b"[]") is None

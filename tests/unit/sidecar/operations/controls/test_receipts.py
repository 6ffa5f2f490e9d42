"""Receipts, read from their topic."""

import pytest

from sidecar.operations.controls.receipts import told_by


def test_a_receipt_tells_what_it_cancelled_and_when_its_schedule_is_due() -> None:
    value = b'{"action": "move", "outcome": "moved", "cancelled": [{"offset": 5, "due": 9000}], "due": 20000}'
    told = told_by(value, 3)
    assert told is not None
    assert (told.outcome, told.due_ms, told.why) == ("moved", 20_000, "")
    assert [(each.partition, each.offset, each.due_ms) for each in told.cancelled] == [(3, 5, 9_000)]


@pytest.mark.parametrize("value", [b"", b"no receipt", b"{}", b"[]", b'{"cancelled": [1]}', b"[" * 100_000, b"\xff"])
def test_a_record_of_another_program_is_no_receipt(value: bytes) -> None:
    assert told_by(value, 3) is None

"""Tests that the program of the section Debounce in RECIPES.md leaves one pending record of a burst, its last."""

import importlib
import sys
from pathlib import Path
from typing import Final

import pytest

from index.named.receipts import ControlOutcome
from index.partition.partition import PartitionIndex
from index.pending.progress import start_of
from index.protocol.record import Record
from index.protocol.schedule import Control
from index.rules.rules import Rules
from sidecar import producing
from tests.docs.documents import blocks
from tests.support.mock_broker import MockBroker
from tests.support.paths import ROOT

QUIET_MS: Final = 30_000
SENT_MS: Final = [0, 10_000, 20_000, 60_000]
"""Three records in a burst, and a fourth after a pause."""


def test_only_the_last_of_a_burst_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "delay_router_client", producing)
    program = importlib.import_module("tests.recipes.debounce")
    with MockBroker() as broker:
        broker.producer.begin_transaction()
        for number in range(len(SENT_MS)):
            program.changed(broker.producer, "7", str(number))
        broker.producer.commit_transaction()
        sent = broker.written("orders.delay")
    assert {each.key for each in sent} == {b"7"}
    rules, index = Rules("orders.delay", "orders"), PartitionIndex[bytes | None, Record](start_of(0), lambda _: 1)
    outcomes, delivered = [], []
    for offset, (at_ms, each) in enumerate(zip(SENT_MS, sent, strict=True)):
        delivered += due(index, at_ms)
        record = Record(each.key, each.value, list(each.headers), at_ms)
        control = rules.decide(record.headers, at_ms)
        assert isinstance(control, Control), control
        assert control.schedule is not None
        receipt, _ = index.control(offset, control, record, (control.schedule.due_ms, offset, each.value))
        assert receipt is not None
        outcomes.append(receipt.outcome)
    delivered += due(index, SENT_MS[-1] + QUIET_MS)
    assert delivered == [(SENT_MS[2] + QUIET_MS, b"2"), (SENT_MS[3] + QUIET_MS, b"3")]
    first, again = ControlOutcome.NOT_PENDING, ControlOutcome.REPLACED
    assert outcomes == [first, again, again, first]


def due(index: PartitionIndex[bytes | None, Record], now_ms: int) -> list[tuple[int, bytes | None]]:
    """Release the records that are due, and return their due times and values."""
    batch = index.plan(now_ms, 100, 1_000)
    index.confirm()
    assert batch.late == []
    return [(due_ms, value) for due_ms, _, value in batch.due]


def test_the_document_shows_the_program() -> None:
    text = (Path(__file__).parent / "debounce.py").read_text(encoding="utf-8")
    assert text in [each.text for each in blocks(ROOT / "RECIPES.md") if each.language == "python"]

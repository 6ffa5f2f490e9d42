"""Reading on when the thread cannot start: sidecar.process.host.kafka_host."""

from threading import Lock
from types import SimpleNamespace
from typing import Any, cast

import pytest

from index.partition.partition import PartitionIndex
from index.pending.progress import start_of
from index.rules.rule_history import RuleHistory
from sidecar.engine.intake.deciding import NEVER
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import scheduled_size
from sidecar.kernel.choice import PYTHON
from sidecar.process.host import kafka_host
from sidecar.process.host.budget import PayloadBudget
from sidecar.process.host.kafka_host import KafkaHost
from sidecar.process.host.turnstile import Visitor
from tests.support.fetches import RULES
from tests.support.hand_clock import HandClock
from tests.support.places import NothingStored


class Begun:
    """Stands in place of ``Fetching``, and counts the clients that are lent."""

    lent = 0

    def __init__(self, *_: object) -> None:
        Begun.lent += 1

    def close(self) -> None:
        Begun.lent -= 1


def test_the_client_is_given_back_if_the_thread_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SimpleNamespace(
        config=SimpleNamespace(kafka={}), budget=PayloadBudget(1), clock=HandClock(), kernel=PYTHON, tails=None
    )
    host = SimpleNamespace(
        _shared=shared,
        _topic=SimpleNamespace(name="d", seal_rules=SimpleNamespace(soon_ms=1_000), on_unreadable="skip"),
        _topics={"d": SimpleNamespace(number=lambda _, default: default)},
        _partition=0,
        _visitor=Visitor(Lock()),
    )
    ledger: PartitionLedger = PartitionIndex(start_of(0), scheduled_size)

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(kafka_host, "Fetching", Begun)
    monkeypatch.setattr("threading.Thread.start", fail)
    with pytest.raises(RuntimeError, match="new thread"):
        KafkaHost.read_on(cast("Any", host), ledger, RuleHistory.beginning(0, RULES), NEVER, NothingStored())
    assert Begun.lent == 0

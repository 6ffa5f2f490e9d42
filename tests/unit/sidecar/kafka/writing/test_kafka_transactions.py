"""The calls of a partition's transactions beside the commit."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from index.errors import ClusterError, ClusterTrouble, ConnectionLostError
from index.pending.progress import BEFORE_ALL, Progress
from sidecar.engine.release.transaction import Outcome, Result, Transaction
from sidecar.kafka.writing.kafka_transactions import KafkaTransactions


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (ClusterError(ClusterTrouble.UNANSWERED, "no record was taken", code="_TIMED_OUT", verdict="REBUILD"), 1),
        (ClusterError(ClusterTrouble.OTHER, "fenced", code="_FENCED", verdict="FENCED"), 0),
        (ConnectionLostError("reset by peer", 0.0), 0),
    ],
)
def test_a_silence_of_the_brokers_is_told(error: Exception, times: int) -> None:
    told: list[None] = []
    lane = SimpleNamespace(commit=lambda *_: Result(Outcome.UNKNOWN, error=error))
    transactions = KafkaTransactions(
        cast("Any", lane),
        cast("Any", SimpleNamespace(producer=None)),
        cast("Any", None),
        compresses=False,
        on_silence=lambda: told.append(None),
    )
    result = transactions.commit(Transaction((), (), Progress(0, BEFORE_ALL, 0)))
    assert result.outcome is Outcome.UNKNOWN
    assert len(told) == times

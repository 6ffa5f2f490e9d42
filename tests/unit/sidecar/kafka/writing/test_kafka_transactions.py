"""The calls of a partition's transactions beside the commit."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from index.errors import ClusterError, ClusterTrouble, ConnectionLostError
from index.pending.progress import BEFORE_ALL, Progress
from index.protocol.record import Record
from sidecar.engine.payload.records import Appended
from sidecar.engine.release.transaction import Outcome, Result, Transaction
from sidecar.kafka.writing.kafka_transactions import KafkaTransactions
from sidecar.kafka.writing.writer import _note_place


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


def test_a_record_that_was_delivered_without_its_offset_is_not_committed() -> None:
    """Its place is unknown, and the state is not written yet: released records would leave again."""
    commits: list[None] = []
    message = SimpleNamespace(offset=lambda: None)
    writer = SimpleNamespace(
        producer=SimpleNamespace(flush=lambda: 0, commit_transaction=lambda *_: commits.append(None)),
        write_records=lambda _, placed: _note_place(placed, 7, None, None, cast("Any", message)),
    )
    lane = SimpleNamespace(commit=lambda part, _: part())
    appended = Appended(7, Record(None, b"", (), 0), 1_000, b"")
    transaction = Transaction((), (), Progress(0, BEFORE_ALL, 0), appended=[appended])
    transactions = KafkaTransactions(cast("Any", lane), cast("Any", writer), cast("Any", None), compresses=False)
    with pytest.raises(AssertionError, match="without its offset"):
        transactions.commit(transaction)
    assert not commits

"""The size of transactions that a round plans."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from index.partition.transaction_size import TransactionSize
from sidecar.engine.ownership.rounds import Rounds


@pytest.mark.parametrize(("series_key", "expected"), [(b"", 1_000), (b"key", 500)])
def test_where_schedules_recur_half_of_a_transaction_is_planned(series_key: bytes, expected: int) -> None:
    assert _rounds(series_key, TransactionSize(1_000, 60.0))._limit_bytes(0.0) == expected


@pytest.mark.parametrize("series_key", [b"", b"key"])
def test_a_transaction_may_have_a_record_however_small_the_last_one_was_that_was_abandoned(series_key: bytes) -> None:
    """Without room, no record would come in and no transaction would be made, so there would never be room again."""
    size = TransactionSize(1_000, 60.0)
    # An idle partition whose producer is fenced abandons a transaction without records.
    size.abandoned(0)
    assert _rounds(series_key, size)._limit_bytes(0.0) == 1


def _rounds(series_key: bytes, size: TransactionSize) -> Rounds:
    context: Any = SimpleNamespace(clock=None, limits=SimpleNamespace())
    owned = SimpleNamespace(ledger=SimpleNamespace(committed=SimpleNamespace(series_key=series_key)))
    return Rounds(context, cast("Any", owned), size, 10, nullcontext)

"""The cost of entries in a transaction, together and each by itself."""

import pytest

from index.pending.pending import Entry
from index.protocol.schedule import BY_KEY, KEEP_KEY, Schedule
from sidecar.engine.payload.records import Payload, packed, scheduled, scheduled_size, transaction_bytes
from snapshots.segments.rows import RowPacker


def to(*targets: str, size_bytes: int = 100) -> Payload:
    return scheduled(Schedule(1_000, targets, BY_KEY, KEEP_KEY, None, both_times=False), size_bytes, None)


def waiting(*targets: str) -> Payload:
    return packed(1_000, b"row", RowPacker(), targets)


@pytest.mark.parametrize(
    "payloads",
    [
        [],
        [to("orders"), to("billing", size_bytes=7)],
        [to("orders"), to("orders", "billing")],
        # A record that is gone has no target.
        [to("orders"), to()],
        [waiting("orders"), to("orders")],
        [waiting("orders", "billing")],
    ],
)
def test_together_they_cost_what_each_costs(payloads: list[Payload]) -> None:
    entries: list[Entry[Payload]] = [(1_000, offset, payload) for offset, payload in enumerate(payloads)]
    assert transaction_bytes(entries) == sum(map(scheduled_size, payloads))

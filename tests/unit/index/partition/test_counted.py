"""The count of cancelled records that stay in their place, and its correction for a schedule that was spared."""

import pytest

from index.named.receipts import ControlOutcome, Receipt
from index.partition.counted import CountedStill
from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.schedule import Action, Control

UNSEALED_FROM = 10
FROZEN_TO = 20


def moving(*offsets: int) -> Receipt:
    """Return the receipt of a move that cancels the schedules at these offsets."""
    places = tuple(Position(1_000, offset) for offset in offsets)
    control, record = Control(Action.MOVE, b"id", None, 2_000), Record(None, None, (), 0)
    return Receipt(99, control, ControlOutcome.MOVED, places, 2_000, record)


def planned(counted: CountedStill, receipt: Receipt, sealed_to: int | None = None) -> int:
    """Plan a transaction with a receipt; all offsets below ``FROZEN_TO`` stay, and no cancelled record is passed."""
    return counted.plan(0, [], [receipt], lambda place: place.offset < FROZEN_TO, UNSEALED_FROM, sealed_to)


@pytest.mark.parametrize(
    ("offset", "sealed_to", "in_buckets", "unsealed"),
    [
        pytest.param(3, None, 1, 0, id="in a bucket"),
        pytest.param(13, None, 0, 1, id="being sealed"),
        pytest.param(13, FROZEN_TO, 1, 0, id="sealed by the same transaction"),
        pytest.param(23, None, 0, 0, id="in the open bucket, which it leaves at once"),
    ],
)
def test_a_schedule_that_is_spared_is_not_counted(
    offset: int, sealed_to: int | None, in_buckets: int, unsealed: int
) -> None:
    counted = CountedStill()
    assert planned(counted, moving(offset), sealed_to) == in_buckets
    counted.confirm()
    assert len(counted) == unsealed

    counted = CountedStill()
    assert planned(counted, moving(offset), sealed_to) - counted.spare(offset) == 0
    counted.confirm()
    assert len(counted) == 0


def test_the_other_schedules_of_the_transaction_stay_counted() -> None:
    counted = CountedStill()
    assert planned(counted, moving(3, 4, 13, 14)) == 2
    assert counted.spare(3) == 1
    assert counted.spare(13) == 0
    counted.confirm()
    assert set(counted.offsets) == {14}


def test_a_schedule_is_spared_once() -> None:
    counted = CountedStill()
    assert planned(counted, moving(3)) == 1
    assert [counted.spare(3), counted.spare(3)] == [1, 0]

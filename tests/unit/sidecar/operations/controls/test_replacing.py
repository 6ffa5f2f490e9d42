"""The answer to a replacement, made of the receipt that has come."""

import pytest

from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.operations.controls.orders import Cancelled, ReceiptAnswer
from sidecar.operations.controls.receipts import (
    ChangedError,
    NoReceiptError,
    NothingPendingError,
)
from sidecar.operations.controls.replacing import judged

TOPIC = DelayTopicConfig(name="d")
PLACE = (1, 17)
OTHER = Cancelled(1, 3, 9_000)


def judge(told: ReceiptAnswer | None) -> ReceiptAnswer:
    return judged(PLACE, told, TOPIC, "order-7")


def test_what_was_replaced_is_told() -> None:
    told = judge(ReceiptAnswer("replaced", (OTHER,), 70))
    assert told.as_json() == {"outcome": "replaced", "replaced": [{"partition": 1, "offset": 3, "due_ms": 9_000}]}


def test_a_record_that_finds_nothing_to_replace_is_a_schedule_like_any_other() -> None:
    assert judge(ReceiptAnswer("not-pending", (), 70)).cancelled == ()
    assert judge(ReceiptAnswer("not-pending", (), 0)).cancelled == ()


def test_one_that_is_void_is_told_from_one_that_is_delivered() -> None:
    with pytest.raises(
        NothingPendingError, match=r"order-7: nothing of this id is pending in d, partition 1.* not deliv"
    ):
        judge(ReceiptAnswer("not-pending"))
    with pytest.raises(ChangedError, match=r"due at another time; nothing was replaced, and .* not delivered"):
        judge(ReceiptAnswer("changed"))


def test_without_a_receipt_it_is_told_where_to_look() -> None:
    with pytest.raises(NoReceiptError, match=r"order-7 is replaced by d/1/17.*status d\), and then d\.receipts"):
        judge(None)

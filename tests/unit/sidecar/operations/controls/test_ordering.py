"""The answer to a cancel or a move, made of the receipts that have come."""

from typing import Any, ClassVar, cast

import pytest

from index.named.receipts import Matched
from index.protocol.where import CancelWhere
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.operations.controls import ordering
from sidecar.operations.controls.ordering import UnknownPartitionError, carry_out, together
from sidecar.operations.controls.orders import Cancelled, ControlOrder, QueryOrder, ReceiptAnswer
from sidecar.operations.controls.receipts import (
    ChangedError,
    NoReceiptError,
    NothingPendingError,
    NotMovedError,
    Receipts,
)

TOPIC = DelayTopicConfig(name="d")
ORDER = ControlOrder(b"order-7")
MOVE = ControlOrder(b"order-7", moves_to=("deliver-after", b"5000"))
WRITTEN = {0: 17, 1: 4}
NOTHING = ReceiptAnswer("not-pending")
CHANGED = ReceiptAnswer("changed")
CANCELLED = ReceiptAnswer("cancelled", (Cancelled(1, 2, 8_000), Cancelled(1, 3, 9_000)))


def test_a_control_carries_the_id_and_when_it_must_be_due() -> None:
    assert ORDER.headers == [("deliver-cancel", b"order-7")]
    assert ControlOrder(b"a", 70).headers == [("deliver-cancel", b"a"), ("deliver-if-due", b"70")]
    assert MOVE.headers == [("deliver-move", b"order-7"), ("deliver-after", b"5000")]


@pytest.mark.parametrize(
    "order", [ControlOrder(b"order-7", partition=2), ControlOrder(b"order-7", None, 99, MOVE.moves_to)]
)
def test_a_partition_that_is_not_there_is_named_before_anything_is_asked(
    order: ControlOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "partitions_of", lambda *_: 2)
    config = Config.model_validate({"kafka": {"bootstrap.servers": "b:1"}, "delay_topics": [{"name": "d"}]})
    with pytest.raises(UnknownPartitionError, match=rf"d has no partition {order.partition}: it has 2, from 0 on"):
        carry_out(config, cast("Any", None), config.delay_topics[0], order)


@pytest.mark.parametrize("other", [NOTHING, CHANGED])
def test_one_partition_that_holds_the_id_is_enough(other: ReceiptAnswer) -> None:
    found = together(ORDER, {0: other, 1: CANCELLED}, WRITTEN, TOPIC)
    assert found == ReceiptAnswer("cancelled", (Cancelled(1, 2, 8_000), Cancelled(1, 3, 9_000)))


def test_what_is_due_at_another_time_is_told_from_what_is_not_there() -> None:
    with pytest.raises(ChangedError, match="due at another time"):
        together(ORDER, {0: NOTHING, 1: CHANGED}, WRITTEN, TOPIC)
    with pytest.raises(NothingPendingError, match="order-7: nothing of this id is pending in d"):
        together(ORDER, {0: NOTHING, 1: NOTHING}, WRITTEN, TOPIC)


@pytest.mark.parametrize("found", [{}, {1: CANCELLED}, {1: NOTHING}])
def test_without_every_receipt_it_is_told_where_to_look(found: dict[int, ReceiptAnswer]) -> None:
    with pytest.raises(NoReceiptError, match=r"order-7 is cancelled by d/0/17.*d\.receipts, or d\.rejected"):
        together(ORDER, found, WRITTEN, TOPIC)


def test_what_is_moved_is_told_with_its_new_time() -> None:
    moved = ReceiptAnswer("moved", (Cancelled(1, 3, 9_000),), 20_000)
    assert together(MOVE, {0: NOTHING, 1: moved}, WRITTEN, TOPIC) == moved
    with pytest.raises(ChangedError, match="nothing was moved"):
        together(MOVE, {0: NOTHING, 1: CHANGED}, WRITTEN, TOPIC)
    with pytest.raises(NoReceiptError, match="order-7 is moved by d/0/17"):
        together(MOVE, {1: moved}, WRITTEN, TOPIC)


def test_what_could_not_be_written_again_is_not_told_as_moved() -> None:
    others = ReceiptAnswer("cancelled", (Cancelled(1, 2, 8_000),), why="RECORD_TOO_LARGE: too large")
    assert together(MOVE, {0: NOTHING, 1: others}, WRITTEN, TOPIC) == others
    stays = ReceiptAnswer("not-moved", why="RECORD_TOO_LARGE: too large")
    with pytest.raises(NotMovedError, match=r"order-7: the schedule in d stays due as before.*RECORD_TOO_LARGE"):
        together(MOVE, {0: CHANGED, 1: stays}, WRITTEN, TOPIC)


def test_the_last_that_a_receipt_names_is_the_one_that_was_moved() -> None:
    """The record was moved before, so it has the offset of that earlier move, which may lie in front of records sent
    since.
    """
    told = ReceiptAnswer("moved", (Cancelled(1, 9, 8_000), Cancelled(1, 7, 9_000)), 20_000)
    assert together(MOVE, {0: NOTHING, 1: told}, WRITTEN, TOPIC).cancelled[-1] == Cancelled(1, 7, 9_000)


def answered(monkeypatch: pytest.MonkeyPatch, *answers: ReceiptAnswer) -> Matched:
    """Cancel by query in a topic of two partitions, whose receipts are these."""

    class Waiting:
        found: ClassVar = dict(enumerate(answers))

        def wait(self, written: dict[int, int], _until_s: float) -> None:
            assert written == WRITTEN

        def close(self) -> None:
            pass

    written: list[Any] = []

    def write(*given: Any) -> dict[int, int]:
        written.append(given[1:])
        return WRITTEN

    monkeypatch.setattr(ordering, "partitions_of", lambda *_: 2)
    monkeypatch.setattr(Receipts, "from_now_on", lambda *_: Waiting())
    monkeypatch.setattr(ordering, "_write", write)
    config = Config.model_validate({"kafka": {"bootstrap.servers": "b:1"}, "delay_topics": [{"name": "d"}]})
    found = ordering.cancel_where(config, cast("Any", None), config.delay_topics[0], QueryOrder(CancelWhere("out")))
    assert written == [("d", range(2), [("deliver-cancel-where", b'{"target":"out"}')])]
    return found


def matched(exact: int | None, estimated: int | None = None) -> ReceiptAnswer:
    return ReceiptAnswer("cancelled-where", matched=Matched(exact, estimated))


def test_a_query_tells_the_sum_of_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(monkeypatch, matched(3), matched(0)) == Matched(3)
    assert answered(monkeypatch, matched(3), matched(None, 1_000)) == Matched(None, 1_003)
    assert answered(monkeypatch, matched(None), ReceiptAnswer("cancelled-where")) == Matched(None, 0)


def test_a_query_without_every_receipt_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoReceiptError, match="all that matches is cancelled by d/1/4, and no receipt"):
        answered(monkeypatch, matched(3))

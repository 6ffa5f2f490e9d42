"""Schedules that a move could not write again."""

from index.named.receipts import receipt_of
from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.schedule import BY_KEY, KEEP_KEY, Action, Control, Reason, Rejection, Schedule
from index.rules.rules import Rules
from sidecar.engine.release.moving import Moving

RULES = Rules("d", default_target="out")
RECORD = Record(b"k", b"v", [("deliver-at", b"9000"), ("deliver-id", b"order-7")], 500)
SPREAD = Schedule(9_009, ("out",), BY_KEY, KEEP_KEY, b"order-7", both_times=False, shift_ms=9)


def test_a_schedule_that_was_found_in_transit_stays_at_the_due_time_that_its_spread_gives() -> None:
    moving = Moving(lambda _: {7: RECORD}, lambda *_: SPREAD, b"", "d/3/")
    control = Control(Action.MOVE, b"order-7", due_ms=20_000)
    receipt = receipt_of(8, control, (Position(9_000, 7),), None, Record(b"k", None, (), 500), {})
    moves = moving.look([receipt], lambda _: RULES, now_ms=1_000)
    (spared,) = moves.spare({8: Rejection(Reason.RECORD_TOO_LARGE, "too large for the delay topic")})
    due_ms, offset, payload = spared.entry
    assert (due_ms, offset, payload.schedule.asked_ms) == (9_009, 7, 9_000)

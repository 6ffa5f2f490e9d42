"""Behaviours of the engine, each played on the modelled Kafka by a playbook."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from index.buckets.bucket_rules import PlacementRule, SealRules
from index.pending.progress import Position
from index.protocol.schedule import Reason
from tests.simulation.host import METRICS
from tests.simulation.playbook import RULES, Playbook, nothing, receipt
from tests.simulation.world import DELAY_TOPIC, FIRST_OFFSET, REJECTED, START_MS


@pytest.fixture
def play() -> Playbook:
    return Playbook()


def test_a_record_is_released_at_its_due_time_and_not_before(play: Playbook) -> None:
    play.sends("a", after_ms=1_000)
    play.turn(now_ms=999).releases(nothing)
    play.turn(now_ms=1_000).releases("a")
    play.turn(now_ms=9_000).releases(nothing)


def test_records_are_released_in_the_order_of_their_due_times(play: Playbook) -> None:
    play.sends("late", after_ms=2_000)
    play.sends("at once")
    play.sends("soon", after_ms=1_000, to="x")
    play.turn(now_ms=2_000).releases("at once", "soon", "late").releases("soon", to="x")


def test_a_record_that_cannot_be_read_is_rejected_at_once(play: Playbook) -> None:
    play.sends("a", headers=[("deliver-at", b"soon")])
    play.turn(now_ms=0).releases(nothing).rejects("a", because=Reason.INVALID_SCHEDULE)


def test_a_batch_that_nobody_can_read_is_rejected_once_and_holds_up_no_other(play: Playbook) -> None:
    play.sends("before", after_ms=1_000)
    play.sends_unreadable("batch", records=3)
    play.sends("behind", after_ms=1_000)
    play.turn(now_ms=0).releases(nothing).rejects("batch", because=Reason.UNREADABLE)
    play.restarts()
    play.turn(now_ms=1_000).releases("before", "behind").rejects(nothing)


def test_a_cancelled_record_is_never_released(play: Playbook) -> None:
    play.sends("a", after_ms=1_000, id="order-7")
    play.sends("b", after_ms=1_000, id="order-7")
    play.sends(cancel="order-7")
    play.turn(now_ms=5_000).writes(receipt("cancelled", "a", "b")).releases(nothing)


def test_a_control_for_an_unknown_id_is_answered(play: Playbook) -> None:
    play.sends("a", after_ms=1_000, id="order-7")
    play.sends(cancel="order-8")
    play.turn(now_ms=1_000).writes(receipt("not-pending")).releases("a")


def test_receipts_are_counted_by_outcome(play: Playbook) -> None:
    def counted() -> list[float]:
        outcomes = ("cancelled", "not-pending")
        counters = [METRICS.receipts.labels(DELAY_TOPIC, each) for each in outcomes]
        return [next(iter(each.collect())).samples[0].value for each in counters]

    before = counted()
    play.sends("a", after_ms=1_000, id="order-7")
    play.sends(cancel="order-7")
    play.sends(cancel="order-7")
    play.turn(now_ms=0).writes(receipt("cancelled", "a"), receipt("not-pending"))
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 1]


def test_a_moved_record_is_released_once_at_its_new_time(play: Playbook) -> None:
    play.sends("a", after_ms=1_000, id="order-7")
    play.sends(move="order-7", after_ms=3_000)
    play.turn(now_ms=2_999).writes(receipt("moved", "a", due_ms=3_000)).releases(nothing)
    play.turn(now_ms=3_000).releases("a")


def test_a_moved_record_that_is_cancelled_is_written_by_neither(play: Playbook) -> None:
    play.sends("a", after_ms=1_000, id="order-7")
    play.sends("move", move="order-7", after_ms=3_000)
    play.sends(cancel="order-7")
    play.turn(now_ms=0).writes(receipt("moved", "a", due_ms=3_000), receipt("cancelled", "move"))
    play.turn(now_ms=3_000).releases(nothing)


def test_a_replaced_record_is_released_in_its_new_form(play: Playbook) -> None:
    play.sends("old", after_ms=1_000, id="order-7")
    play.sends("new", after_ms=2_000, id="order-7", replace=True)
    play.turn(now_ms=1_999).writes(receipt("replaced", "old", due_ms=2_000)).releases(nothing)
    play.turn(now_ms=2_000).releases("new")


def test_a_recurring_record_is_released_again_until_its_last_time(play: Playbook) -> None:
    play.sends("a", headers=[("deliver-every", b"1000"), ("deliver-times", b"2")])
    play.turn(now_ms=1_000).releases("a")
    play.turn(now_ms=1_999).releases(nothing)
    play.turn(now_ms=2_000).releases("a")
    play.turn(now_ms=9_000).releases(nothing)


def test_an_expired_record_is_rejected(play: Playbook) -> None:
    play.sends("a", after_ms=1_000, headers=[("deliver-expire-after", b"500")])
    play.turn(now_ms=1_501).releases(nothing).rejects("a", because=Reason.EXPIRED)


def test_a_paused_target_holds_its_own_records_and_no_others(play: Playbook) -> None:
    play.pauses("x")
    play.sends("held", after_ms=1_000, to="x")
    play.sends("free", after_ms=1_000)
    play.turn(now_ms=1_000).releases("free")
    play.pauses(nothing)
    play.turn(now_ms=1_001).releases("held", to="x")


def test_the_status_counts_pending_held_and_sealed_records() -> None:
    play = Playbook(seal_rules=SealRules(max_entries=3))
    play.pauses("x")
    for value, after_ms, target in [("a", 50_000, "out"), ("b", 60_000, "y"), ("c", 70_000, "y"), ("held", 0, "x")]:
        play.sends(value, after_ms=after_ms, to=target, id=value)
    play.sends(cancel="b")
    play.turn(now_ms=1)
    play.sends("d", after_ms=79_999)
    play.turn(now_ms=2)
    status, end = play.status, FIRST_OFFSET + 6
    assert (status.pending, status.held, status.held_by_target, status.masked) == (4, 1, {"x": 1}, 1)
    assert (status.next_due_ms, status.furthest_due_ms) == (START_MS + 50_000, START_MS + 80_000)
    assert status.held_since_ms == START_MS
    assert (status.cursor, status.sealed_to, status.needed_from, status.buckets, status.lag) == (end, end, end, 1, 0)
    assert status.watermark == Position(START_MS, FIRST_OFFSET + 3)
    play.turn(now_ms=90_000).releases("a", "c", "d")
    status = play.status
    assert (status.pending, status.held, status.next_due_ms, status.furthest_due_ms) == (1, 1, None, None)
    assert (status.buckets, status.masked, status.watermark) == (0, 0, Position(START_MS + 80_000, end - 1))


def test_a_restart_releases_nothing_twice_and_loses_nothing(play: Playbook) -> None:
    play.sends("a", after_ms=1_000)
    play.sends("b", after_ms=2_000)
    play.turn(now_ms=1_000).releases("a")
    play.restarts()
    play.turn(now_ms=2_000).releases("b")


def test_a_held_record_outlives_a_restart(play: Playbook) -> None:
    play.pauses("out")
    play.sends("a")
    play.turn(now_ms=0).releases(nothing)
    play.restarts()
    play.pauses(nothing)
    play.turn(now_ms=1).releases("a")


@pytest.mark.parametrize("placement", ["inline", "pointer"])
def test_a_sealed_record_is_loaded_and_released(placement: PlacementRule) -> None:
    play = Playbook(seal_rules=SealRules(max_entries=2, placement=placement))
    play.sends("a", after_ms=60_000)
    play.sends("b", after_ms=60_000, id="order-7")
    play.turn(now_ms=0).releases(nothing)
    assert play.buckets == 1
    play.restarts()
    play.sends(cancel="order-7")
    play.turn(now_ms=60_000).writes(receipt("cancelled", "b")).releases("a")
    assert play.buckets == 0


def test_a_control_finds_a_sealed_schedule_by_the_time_it_asked_for_however_it_is_spread() -> None:
    play = Playbook(rules=replace(RULES, spread_ms=60_000), seal_rules=SealRules(max_entries=4))
    for value, after_ms in [("a", 120_000), ("b", 120_000), ("c", 121_000), ("d", 122_000)]:
        play.sends(value, after_ms=after_ms, id="order-7")
    play.turn(now_ms=0).releases(nothing)
    assert play.buckets == 1
    play.restarts()
    asked = [("deliver-if-due", b"%d" % (START_MS + 120_000))]
    play.sends(cancel="order-7", headers=asked)
    play.sends(cancel="order-7", headers=asked)
    play.turn(now_ms=0).writes(receipt("cancelled", "a", "b"), receipt("changed"))
    play.turn(now_ms=182_000).releases("c", "d")


def test_a_record_for_a_target_that_is_gone_is_rejected_when_it_is_due(play: Playbook) -> None:
    play.sends("a", after_ms=1_000, to="x")
    play.turn(now_ms=0).rejects(nothing)
    play.lacks("x")
    play.turn(now_ms=1_000).releases(nothing).rejects("a", because=Reason.TARGET_UNKNOWN)


def test_new_rules_hold_for_the_records_behind_them(play: Playbook) -> None:
    play.sends("before", after_ms=2_000)
    play.turn(now_ms=0).rejects(nothing)
    play.follows(max_delay_ms=1_000)
    play.turn(now_ms=0).rejects(nothing)
    play.sends("behind", after_ms=2_000)
    play.turn(now_ms=2_000).releases("before").rejects("behind", because=Reason.MAX_DELAY_EXCEEDED)


@pytest.mark.parametrize("restarts", [True, False])
def test_rules_hold_for_a_held_record_that_is_moved_after_they_have_changed(play: Playbook, *, restarts: bool) -> None:
    play.pauses("out")
    play.sends("a", after_ms=2_000, id="order-7")
    play.turn(now_ms=2_000).releases(nothing)
    for max_delay_ms in (1_500, 1_000):
        play.follows(max_delay_ms=max_delay_ms)
        play.sends("b", after_ms=0, to="x")
        play.turn(now_ms=2_000).releases("b")
        if restarts:
            play.restarts()
    play.sends(move="order-7", after_ms=500)
    play.turn(now_ms=2_499).writes(receipt("moved", "a", due_ms=2_500)).rejects(nothing)
    play.pauses(nothing)
    play.turn(now_ms=2_500).releases("a")


def test_a_record_that_is_gone_is_lost_and_not_moved(play: Playbook) -> None:
    play.sends("a", after_ms=1_000, id="order-7")
    play.turn(now_ms=0).releases(nothing)
    play.loses("a")
    play.sends(move="order-7", after_ms=3_000)
    with capture_logs() as logs:
        play.turn(now_ms=3_000).writes(receipt("not-pending")).releases(nothing)
    assert "records_lost" in [each["event"] for each in logs]


def test_of_many_moves_of_one_schedule_the_last_is_written_and_each_is_answered(play: Playbook) -> None:
    play.sends("a", after_ms=1_000, id="order-7")
    for number in range(100):
        play.sends(str(number), move="order-7", after_ms=2_000 + number)
    before = ["a", *map(str, range(99))]
    moved = [receipt("moved", value, due_ms=2_000 + number) for number, value in enumerate(before)]
    play.turn(now_ms=2_098).writes(*moved).releases(nothing)
    play.turn(now_ms=2_099).releases("a")


def test_a_record_that_its_target_refuses_is_rejected_and_holds_up_no_other(play: Playbook) -> None:
    play.takes("out", most_bytes=50)
    play.sends("a" * 50, after_ms=1_000)
    play.sends("b", after_ms=1_000)
    play.turn(now_ms=1_000).releases("b").rejects("a" * 50, because=Reason.RECORD_TOO_LARGE)


def test_a_rejected_record_is_shortened_until_its_topic_takes_it(play: Playbook) -> None:
    play.takes(REJECTED, most_bytes=15)
    play.sends("a" * 50, headers=[("deliver-at", b"soon")])
    play.turn(now_ms=0).rejects("a" * 50, because=Reason.INVALID_SCHEDULE)


def test_an_occurrence_that_its_target_refuses_is_followed_by_the_next(play: Playbook) -> None:
    play.sends("a", headers=[("deliver-every", b"1000"), ("deliver-times", b"2")])
    play.turn(now_ms=0).releases(nothing)
    play.takes("out", most_bytes=0)
    play.turn(now_ms=1_000).rejects("a", because=Reason.RECORD_TOO_LARGE)
    play.takes("out", most_bytes=1_000)
    play.turn(now_ms=2_000).releases("a")


def test_a_schedule_that_cannot_be_moved_is_released_when_it_was_due_before(play: Playbook) -> None:
    play.takes(DELAY_TOPIC, most_bytes=0)
    play.sends("a", after_ms=1_000, id="order-7")
    play.sends("b", after_ms=1_000, id="order-7")
    play.sends(move="order-7", after_ms=3_000)
    play.sends(move="order-7", after_ms=4_000)
    play.turn(now_ms=999).writes(receipt("cancelled", "a"), receipt("not-moved")).releases(nothing)
    play.turn(now_ms=1_000).releases("b")
    play.turn(now_ms=4_000).releases(nothing).rejects(nothing)


def test_a_schedule_that_is_due_just_when_it_cannot_be_moved_is_released_once(play: Playbook) -> None:
    play.takes(DELAY_TOPIC, most_bytes=0)
    play.sends("a", after_ms=1_000, id="order-7")
    play.sends(move="order-7", after_ms=3_000)
    play.passes(now_ms=1_000)
    play.turn(now_ms=4_000).writes(receipt("not-moved")).releases("a")

"""Records that a target may not be given yet are held, in order, and no others are."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.pending.pending import Entry
from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE, BY_KEY, KEEP_KEY, Schedule
from sidecar.engine.limits import LIMITS
from sidecar.engine.payload.records import RESIDENT_OVERHEAD_BYTES, Scheduled, resident_bytes, scheduled, size_of
from sidecar.engine.release.gate import HELD_AT_ONCE, TRIED_AT_ONCE, Gate
from sidecar.engine.release.rates import BURST_S, RateLimits, TargetLimit
from snapshots.state.held import decode_held, held_key

PAUSED = TargetLimit(paused=True)
NOW_MS = 5_000
NOBODY: frozenset[int] = frozenset()


class Clock:
    """Seconds that a test lets pass."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def entry(
    offset: int, *targets: str, size: int = 10, deliver_id: bytes | None = None, shift_ms: int = 0
) -> Entry[Scheduled]:
    schedule = Schedule(5_000, targets or ("a",), BY_KEY, KEEP_KEY, deliver_id, both_times=False)
    record = Record(None, b"v", (), 1)
    return 5_000, offset, Scheduled(schedule._replace(shift_ms=shift_ms), size, record)


def large(offset: int, size_bytes: int) -> Entry[Scheduled]:
    """Return a record that takes so many bytes of memory."""
    record = Record(None, bytes(size_bytes - RESIDENT_OVERHEAD_BYTES), (), 1)
    due_ms, _, payload = entry(offset)
    return due_ms, offset, scheduled(payload.schedule, size_of(record), record)


def offsets(entries: list[Entry[Scheduled]]) -> list[int]:
    return [offset for _, offset, _ in entries]


def gate(rates: RateLimits | None = None, **gated: TargetLimit) -> Gate:
    made = Gate(rates or RateLimits(Clock(), nullcontext()), LIMITS)
    made.use(gated)
    return made


def test_without_limits_nothing_is_held() -> None:
    made = gate()
    assert made.hold([entry(1), entry(2, "a", "b")], NOBODY) == []
    assert (made.records, made.wait_s(NOW_MS), made.resumed(10, NOW_MS), made.state()) == (0, None, [], [])
    assert made.room_records > 1 << 40


def test_a_paused_target_holds_its_own_records_and_those_it_shares() -> None:
    made = gate(a=PAUSED)
    assert offsets(made.hold([entry(1), entry(2, "b"), entry(3, "b", "a")], NOBODY)) == [1, 3]
    assert made.wait_s(NOW_MS) is None
    assert made.resumed(10, NOW_MS) == []
    assert [key for key, _ in made.state()] == [held_key(1, 0), held_key(3, 0)]


def test_what_is_held_is_counted_for_each_target_that_it_waits_for() -> None:
    made = gate(a=PAUSED, b=PAUSED)
    assert made.held_by_target() == {}
    made.hold([entry(1), entry(2, "b"), entry(3, "b", "a"), entry(4, "c", "a")], NOBODY)
    assert made.held_by_target() == {"a": 3, "b": 2}


def test_it_is_known_when_the_first_of_what_is_held_was_due() -> None:
    made = gate(a=PAUSED, b=PAUSED)
    since_ms = [made.held_since_ms]
    made.hold([entry(1)], NOBODY)
    since_ms.append(made.held_since_ms)
    _, offset, (schedule, size, _) = entry(2, "b")
    made.hold([(AT_ONCE, offset, Scheduled(schedule, size, Record(None, b"v", (), 4_000)))], NOBODY)
    # A record without a due time was due when it was sent.
    assert [*since_ms, made.held_since_ms] == [None, NOW_MS, 4_000]


def test_what_was_held_leaves_in_order_once_the_target_is_free() -> None:
    made = gate(a=PAUSED)
    made.hold([entry(1), entry(4, "b", "a"), entry(2)], NOBODY)
    made.committed()
    made.use({})
    assert made.wait_s(NOW_MS) == 0
    assert offsets(made.resumed(2, NOW_MS)) == [1, 2]
    assert made.state() == [(held_key(1, 0), None), (held_key(2, 0), None)]
    assert offsets(made.resumed(10, NOW_MS)) == [4]
    assert (made.records, made.resident_bytes) == (0, 0)


def test_by_a_clock_that_was_set_back_it_is_not_due_any_more() -> None:
    made = gate(a=PAUSED)
    made.hold([entry(1)], NOBODY)
    made.use({})
    assert made.resumed(10, NOW_MS - 1) == []
    assert made.wait_s(NOW_MS - 100) == pytest.approx(0.1)
    assert offsets(made.resumed(10, NOW_MS)) == [1]


def test_what_was_resumed_is_not_held_again() -> None:
    made = gate(a=PAUSED)
    assert made.hold([entry(1)], frozenset({1})) == []


def test_a_new_owner_holds_what_the_last_one_held() -> None:
    made = gate(a=PAUSED)
    made.hold([entry(1), entry(2)], NOBODY)
    stored = [(key, value) for key, value in made.state() if value is not None]
    taken_over = Gate(RateLimits(Clock(), nullcontext()), LIMITS, decode_held(stored))
    taken_over.use({"a": PAUSED})
    assert (taken_over.records, taken_over.resident_bytes) == (2, made.resident_bytes)
    assert taken_over.resumed(10, NOW_MS) == []
    taken_over.use({})
    assert offsets(taken_over.resumed(10, NOW_MS)) == [1, 2]
    assert taken_over.state() == [(held_key(1, 0), None), (held_key(2, 0), None)]


def test_a_rate_lets_through_what_it_says_and_nothing_passes_what_is_held() -> None:
    clock = Clock()
    made = gate(RateLimits(clock, nullcontext()), a=TargetLimit(records_per_second=100))
    assert offsets(made.hold([entry(n) for n in range(40)], NOBODY)) == list(range(1, 40))
    clock.now_s += 0.1001
    assert offsets(made.hold([entry(50)], NOBODY)) == [50]
    assert offsets(made.resumed(100, NOW_MS)) == list(range(1, 11))
    assert made.wait_s(NOW_MS) == pytest.approx(LIMITS.resume_every_s)
    clock.now_s += 10
    assert len(made.resumed(100, NOW_MS)) == int(100 * BURST_S)


def test_one_lane_does_not_hold_up_another() -> None:
    clock = Clock()
    made = gate(RateLimits(clock, nullcontext()), a=PAUSED, b=TargetLimit(1_000))
    made.hold([entry(1), entry(2, "b"), entry(3, "b")], NOBODY)
    clock.now_s += 1
    assert offsets(made.resumed(10, NOW_MS)) == [3]


def test_the_room_is_bounded() -> None:
    made = Gate(RateLimits(Clock(), nullcontext()), replace(LIMITS, held_records=5))
    made.use({"a": PAUSED})
    made.hold([entry(1), entry(2)], NOBODY)
    assert made.room_records == 3
    made.hold([entry(3), entry(4), entry(5)], NOBODY)
    assert made.room_records == 0
    made.use({})
    assert made.room_records > 0, "nothing is held back any more"


def test_bytes_may_be_overdrawn_by_one_record() -> None:
    clock = Clock()
    limits = RateLimits(clock, nullcontext())
    limit = [("a", TargetLimit(bytes_per_second=1_000))]
    assert limits.take(limit, 5_000)
    assert not limits.take(limit, 1)
    assert limits.wait_s(limit) == pytest.approx(5.0)
    clock.now_s += 5.1
    assert limits.take(limit, 1)


def test_a_target_gets_its_next_record_when_a_whole_token_is_there() -> None:
    clock = Clock()
    limits = RateLimits(clock, nullcontext())
    limit = [("a", TargetLimit(records_per_second=4))]
    assert limits.take(limit, 1)
    assert limits.wait_s(limit) == pytest.approx(0.25)
    clock.now_s += 0.125
    assert not limits.take(limit, 1)
    assert limits.wait_s(limit) == pytest.approx(0.125)
    clock.now_s += 0.125
    assert limits.take(limit, 1)
    clock.now_s -= 100
    assert not limits.take(limit, 1), "time that goes back gives nothing"


def test_a_target_without_a_limit_is_never_waited_for() -> None:
    limits = RateLimits(Clock(), nullcontext())
    limit = [("a", TargetLimit())]
    for _ in range(5):
        assert limits.take(limit, 1_000)
    assert limits.wait_s(limit) == 0


def test_of_several_limits_the_longest_wait_counts() -> None:
    limits = RateLimits(Clock(), nullcontext())
    one, two = ("a", TargetLimit(10)), ("b", TargetLimit(records_per_second=5, bytes_per_second=100))
    assert limits.take([one, two], 41)
    assert limits.wait_s([one]) == pytest.approx(0.1)
    assert limits.wait_s([one, two]) == pytest.approx(0.41), "the bytes of b: 1 + 40 of 100 a second"
    halved = ("c", TargetLimit(records_per_second=10, sources=("d",)))
    limits.learn("d", 2)
    limits.enter("d")
    assert limits.take([halved], 1)
    assert limits.wait_s([halved]) == pytest.approx(0.2), "this process has half of the partitions"


def test_tokens_are_taken_of_all_targets_or_of_none() -> None:
    clock = Clock()
    limits = RateLimits(clock, nullcontext())
    one, two = ("a", TargetLimit(10)), ("b", TargetLimit(10))
    assert limits.take([two], 1)
    assert not limits.take([one, two], 1)
    assert limits.take([one], 1)


def test_a_process_takes_the_part_that_it_has_of_the_partitions() -> None:
    limits = RateLimits(Clock(), nullcontext())
    limit = TargetLimit(100, sources=("d", "e"))
    assert limits.share(limit) == 1.0, "before anything is known"
    limits.learn("d", 6)
    limits.learn("e", 2)
    for topic in ("d", "d", "other"):
        limits.enter(topic)
    assert limits.share(limit) == 0.25
    limits.leave("d")
    assert limits.share(limit) == 0.125


@given(
    rate=st.integers(1, 500),
    steps=st.lists(st.tuples(st.floats(0, 0.5), st.integers(0, 60)), min_size=1, max_size=40),
)
def test_never_more_than_the_rate_and_a_burst(rate: int, steps: list[tuple[float, int]]) -> None:
    clock = Clock()
    made = gate(RateLimits(clock, nullcontext()), a=TargetLimit(rate))
    given_out = offset = 0
    began_s = clock.now_s
    for passed_s, count in steps:
        clock.now_s += passed_s
        given_out += len(made.resumed(1_000, NOW_MS))
        arrived = [entry(offset + number) for number in range(count)]
        offset += count
        given_out += count - len(made.hold(arrived, NOBODY))
        assert given_out <= rate * (clock.now_s - began_s) + max(1.0, rate * BURST_S) + 1e-6
    clock.now_s += 10_000
    while made.records:
        clock.now_s += 1
        given_out += len(made.resumed(1_000, NOW_MS))
    assert given_out == offset


def test_what_a_target_may_refuse_is_set_aside_and_tried_a_few_at_a_time() -> None:
    made = gate()
    made.set_aside([entry(n) for n in range(40)], ["a"])
    made.committed()
    assert made.records == 40
    assert offsets(made.hold([entry(50), entry(51, "b")], NOBODY)) == [50], "what follows for it stays behind"
    assert made.wait_s(NOW_MS) == 0
    tried: list[list[int]] = []
    while taken := made.resumed(100, NOW_MS):
        tried.append(offsets(taken))
        made.committed()
    assert [*chain.from_iterable(tried)] == [*range(40), 50]
    assert [len(each) for each in tried] == [TRIED_AT_ONCE, 2 * TRIED_AT_ONCE, 4 * TRIED_AT_ONCE, 13]
    assert (made.records, made.resident_bytes, made.wait_s(NOW_MS)) == (0, 0, None)
    assert made.room_records > LIMITS.held_records, "nothing is doubted any more"


def test_after_a_refusal_it_is_tried_with_a_few_again() -> None:
    made = gate()
    made.set_aside([entry(n) for n in range(60)], ["a"])
    made.committed()
    for _ in range(3):
        made.resumed(100, NOW_MS)
        made.committed()
    first, *others = made.resumed(100, NOW_MS)
    assert len(others) > TRIED_AT_ONCE
    made.refused()
    made.set_aside(others, ["a"])
    made.committed()
    again = made.resumed(100, NOW_MS)
    assert offsets(again) == offsets(others)[:TRIED_AT_ONCE]
    assert first[1] < again[0][1]


def test_set_aside_again_in_the_transaction_that_gave_it_out_it_is_still_held_afterwards() -> None:
    made = gate()
    made.set_aside([entry(1)], ["a"])
    made.committed()
    taken = made.resumed(10, NOW_MS)
    made.set_aside(taken, ["a"])
    written = dict(made.state())
    assert written[held_key(1, 0)] is not None, "the last record of a key counts"
    made.committed()
    assert offsets(made.resumed(10, NOW_MS)) == [1]


def test_the_memory_for_held_records_is_bounded() -> None:
    made = Gate(RateLimits(Clock(), nullcontext()), replace(LIMITS, held_bytes=9_000))
    made.use({"a": PAUSED})
    assert made.room_records == HELD_AT_ONCE
    made.hold([large(1, 8_000)], NOBODY)
    assert (made.room_bytes, made.room_records) == (1_000, HELD_AT_ONCE)
    assert made.has_room_for([large(2, 1_000)])
    assert not made.has_room_for([large(2, 1_001)])
    made.hold([large(2, 999)], NOBODY)
    assert (made.room_bytes, made.room_records) == (1, HELD_AT_ONCE)
    made.hold([large(3, 501)], NOBODY)
    assert (made.room_bytes, made.room_records) == (1, 0), "a transaction with one record is made all the same"


def test_a_held_record_is_found_by_its_id_until_it_leaves() -> None:
    made = gate(a=PAUSED)
    made.hold([entry(1, deliver_id=b"x", shift_ms=40), entry(2, deliver_id=b"x"), entry(3, deliver_id=b"y")], NOBODY)
    assert made.places_of(b"x") == {Position(5_000, 1): 40, Position(5_000, 2): 0}
    assert made.places_of(b"z") == {}
    assert [*made.records_at([2, 9])] == [2]
    assert made.records_at([9]) == {}
    made.use({})
    assert offsets(made.resumed(1, NOW_MS)) == [1]
    assert made.places_of(b"x") == {Position(5_000, 2): 0}


def test_cancelled_records_are_let_go_of_and_the_rest_of_their_lane_waits() -> None:
    made = gate(a=PAUSED, b=PAUSED)
    made.hold([entry(1), entry(2), entry(3, "b"), entry(4)], NOBODY)
    made.committed()
    assert made.cancel({9}) == frozenset()
    assert made.cancel({2, 3, 9}) == {2, 3}
    assert made.state() == [(held_key(2, 0), None), (held_key(3, 0), None)]
    assert made.held_by_target() == {"a": 2}
    assert [offsets(lane) for lane in made.waiting()] == [[1, 4]]
    assert (made.records, made.resident_bytes) == (2, resident_bytes([*chain(*made.waiting())]))


def test_a_lane_waits_for_the_receipt_that_takes_its_first_record_out() -> None:
    made = gate(a=PAUSED, b=PAUSED)
    made.hold([entry(1), entry(2), entry(3, "b")], NOBODY)
    made.use({})
    made.hold([], NOBODY)
    assert offsets(made.resumed(10, NOW_MS, doomed=[2])) == [1]
    assert made.records == 2
    made.cancel([2])
    assert offsets(made.resumed(10, NOW_MS)) == [3]


def test_the_first_of_all_lanes_that_may_leave_is_waited_for() -> None:
    clock = Clock()
    limits = {"a": TargetLimit(records_per_second=10), "b": TargetLimit(records_per_second=5), "c": PAUSED}
    made = gate(RateLimits(clock, nullcontext()), **limits)
    made.hold([entry(n, target) for n, target in enumerate("abc") for _ in range(2)], NOBODY)
    assert made.wait_s(NOW_MS) == pytest.approx(0.1)
    clock.now_s += 0.101
    assert made.wait_s(NOW_MS) == 0
    assert made.wait_s(NOW_MS - 5_000) == pytest.approx(5.0), "a clock that was set back has to come up to it"


def test_no_more_records_are_tried_at_once_than_a_transaction_may_hold() -> None:
    made = gate()
    made.set_aside([entry(n) for n in range(4 * HELD_AT_ONCE)], ["a"])
    made.committed()
    tried = []
    while taken := made.resumed(1 << 20, NOW_MS):
        tried.append(len(taken))
        made.committed()
    assert max(tried) == HELD_AT_ONCE
    assert tried[:3] == [TRIED_AT_ONCE, 2 * TRIED_AT_ONCE, 4 * TRIED_AT_ONCE]


def test_what_is_set_aside_needs_room() -> None:
    made = gate()
    assert made.has_room_for([entry(n) for n in range(LIMITS.held_records)])
    assert not made.has_room_for([entry(n) for n in range(LIMITS.held_records + 1)])


def test_no_more_is_given_out_than_fills_a_transaction() -> None:
    made = gate(a=PAUSED)
    made.hold([entry(n) for n in range(10)], NOBODY)
    made.use({})
    assert offsets(made.resumed(10, NOW_MS, 1)) == [0], "one goes whatever its size"
    assert len(made.resumed(10, NOW_MS)) == 9

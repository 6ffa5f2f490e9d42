"""Counts of attempts: by number, of the last whole minute, and the last exhausted ones."""

from index.protocol.schedule import Attempted
from sidecar.engine.ownership.attempts import REMEMBERED, AttemptCounter, AttemptCounts
from tests.support.hand_clock import HandClock

NOW_MS = 1_800_000_000_000


def test_attempts_are_counted_by_number_and_apart_where_none_was_left() -> None:
    counter = AttemptCounter(HandClock(NOW_MS))
    assert counter.counts() == AttemptCounts(NOW_MS)
    some = [(offset, Attempted(number)) for offset, number in enumerate([1, 1, 3, 5, 7, 8, 1_000])]
    assert counter.add([*some, (9, Attempted(7, exhausted=True))]) == (2, 0, 1, 2, 2, 1)
    assert counter.add([(10, Attempted(2))]) == (0, 1, 0, 0, 0, 0)
    assert counter.counts() == AttemptCounts(NOW_MS, (2, 1, 1, 2, 2, 1), (), ((9, NOW_MS),))


def test_a_minute_is_known_when_it_is_over() -> None:
    clock = HandClock(NOW_MS)
    counter = AttemptCounter(clock)
    counter.add([(1, Attempted(1))])
    clock.go_on(59)
    counter.add([(2, Attempted(1))])
    assert counter.counts().last_minute == ()
    clock.go_on(1)
    assert counter.counts().last_minute == (2, 0, 0, 0, 0, 0)
    counter.add([(3, Attempted(2))])
    clock.go_on(60)
    assert counter.counts().last_minute == (0, 1, 0, 0, 0, 0)
    clock.go_on(60)
    assert counter.counts().last_minute == (0,) * 6
    counter.add([(4, Attempted(1))])
    clock.go_on(600)
    assert counter.counts().last_minute == (0,) * 6, "the last one was quiet"
    assert counter.counts().released == (3, 1, 0, 0, 0, 0)


def test_the_last_exhausted_ones_are_remembered() -> None:
    clock = HandClock(NOW_MS)
    counter = AttemptCounter(clock)
    for offset in range(REMEMBERED + 2):
        counter.add([(offset, Attempted(8, exhausted=True))])
        clock.go_on(1)
    assert counter.counts().exhausted == tuple((n, NOW_MS + n * 1_000) for n in range(2, REMEMBERED + 2))

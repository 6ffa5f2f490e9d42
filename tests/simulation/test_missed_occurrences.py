"""The occurrences of a series that fell due while no router was there, beside a count by period; random series."""

import random

import pytest

from tests.simulation.playbook import Playbook

LAST_MOVE_MS = 5_000
BACK_MS = 30_000
MOST_TURNS = 20


def play_missed(rng: random.Random, missed: str) -> tuple[int, int]:
    """Return the number of occurrences that a router releases when it comes back, and the number that were missed."""
    play, period_ms = Playbook(), rng.choice([1_000, 1_500, 2_000])
    asked_ms, due_ms = 0, rng.choice([-1_500, 0, 100, 2_500])
    headers = [("deliver-every", b"%d" % period_ms), ("deliver-missed", missed.encode())]
    play.sends("a", id="i", after_ms=due_ms, headers=headers)
    for at_ms in sorted(rng.sample(range(1, LAST_MOVE_MS), rng.randint(0, 3))):
        play.passes(now_ms=at_ms)
        after_ms = rng.choice([-900, 10, 4_000])
        play.sends("moved", move="i", after_ms=after_ms)
        asked_ms, due_ms = at_ms, at_ms + after_ms
    play.passes(now_ms=BACK_MS)
    released = 0
    for _ in range(MOST_TURNS):
        some = play.turn(now_ms=BACK_MS).released()
        released += len(some)
        if not some:
            break
    return released, 1 + sum(
        due_ms < each_ms >= asked_ms for each_ms in range(due_ms + period_ms, BACK_MS + 1, period_ms)
    )


@pytest.mark.parametrize("seed", range(40))
def test_every_missed_occurrence_is_released_once(seed: int) -> None:
    released, missed = play_missed(random.Random(seed), "all")
    assert released == missed > 1


@pytest.mark.parametrize("seed", range(10))
def test_one_of_the_missed_occurrences_is_released(seed: int) -> None:
    released, _ = play_missed(random.Random(seed), "one")
    assert released == 1

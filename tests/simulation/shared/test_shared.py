"""Many runs of transactions that partitions share, and a test that each kind of end happens in them."""

from collections import Counter
from functools import cache

import pytest

from tests.simulation.shared.run import SharedRun

SEEDS = 40


@cache
def played(seed: int) -> SharedRun:
    """Return the run of a seed; played once a process."""
    run = SharedRun(seed)
    run.play()
    return run


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_part_becomes_visible_once_and_its_owner_hears_the_truth(seed: int) -> None:
    print(f"replay: python -m tests.simulation {seed} Lanes")
    played(seed)


def test_a_seed_is_a_run() -> None:
    first, again = SharedRun(7), SharedRun(7)
    first.play()
    again.play()
    # The id of a process is drawn by the shipped code.
    assert [line.partition("g.lane.")[0] for line in first.trace] == [
        line.partition("g.lane.")[0] for line in again.trace
    ]


def test_every_end_of_a_transaction_happens() -> None:
    seen = Counter[str]()
    for seed in range(SEEDS):
        run = played(seed)
        seen["shared by topics"] += run.brokers.shared
        seen["ids given up"] += run.given_up
        for line in run.trace:
            seen.update(
                word for word in ("killed", "COMMITTED", "ABORTED", "REFUSED", "UNKNOWN", "FENCED") if word in line
            )
    assert {name for name, number in seen.items() if number >= SEEDS // 2} == {
        *("shared by topics", "ids given up", "killed", "COMMITTED", "ABORTED", "REFUSED", "UNKNOWN", "FENCED"),
    }

"""Healing over brokers that lose markers: the shipped one on many seeds, and each wrong one on at most 300."""

import logging
import os
import secrets
from collections import Counter
from pathlib import Path

import pytest
import structlog

from index.errors import NotYetError
from sidecar.healing.healing import Healing
from tests.simulation.forgetful import MAIN, TARGETS, Run, ViolationError
from tests.simulation.wrong_healing import WRONG

SEEDS = 100
MOST_SEEDS = 300
CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
HEADING = "| wrong healing | what is wrong | found within seeds |\n|---|---|---|\n"


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Thousands of orphans are found here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def test_nothing_is_lost_doubled_or_left_open() -> None:
    first = int(os.environ.get("TEST_SEED") or secrets.randbits(32))
    for seed in range(first, first + SEEDS):
        print(f"TEST_SEED={seed}")
        Run(seed).play()


@pytest.mark.parametrize("seed", [1002112, 3872722068, 3872726042, 3872726475])
def test_seeds_that_once_lost_or_doubled_or_left_something_open(seed: int) -> None:
    """What only healed is open itself, in front of or behind what is committed and somebody else's transaction."""
    Run(seed).play()


def test_what_is_of_another_producer_id_is_not_taken_for_ended() -> None:
    """A partition that has had the same leader all the time, and something in front that no marker of ours ends."""
    run = Run(0)
    run.play()
    kafka, place = run.kafka, TARGETS[0]
    seen = Counter(record.value for _, record, _ in kafka.seen(place))
    ours = next(each for each in kafka.log(place) if each.producer == MAIN and each.record and each.record.value)
    kafka.log(place).append(ours._replace(producer="expired", epoch=kafka.leader_epoch))
    for _ in range(5):
        with run.patched(), pytest.raises(NotYetError, match="not of the producer id"):
            run.live()
    assert Counter(record.value for _, record, _ in kafka.seen(place)) == seen
    assert kafka.open_from(place) is not None


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_each_wrong_healing_is_found(kind: type[Healing]) -> None:
    (stated,) = [line for line in _rows() if line.startswith(f"| `{kind.__name__}` |")]
    _, _, what, seeds, _ = (cell.strip() for cell in stated.split("|"))
    assert what == (kind.__doc__ or "").strip().rstrip(".")
    assert int(seeds) <= MOST_SEEDS
    for seed in range(MOST_SEEDS):
        try:
            Run(seed, kind).play()
        except ViolationError:
            return
    pytest.fail(f"{kind.__name__} was not found in {MOST_SEEDS} seeds")


def test_the_table_has_no_other_rows() -> None:
    assert len(_rows()) == len(WRONG)


def _rows() -> list[str]:
    table = CONTRIBUTING.read_text(encoding="utf-8").partition(HEADING)[2]
    return table.partition("\n\n")[0].splitlines()

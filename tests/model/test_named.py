"""Plays the model of names: the design keeps each guarantee in every seed, each wrong router breaks one."""

import pytest

from tests.model.named.design import WRONG
from tests.model.named.play import first_caught, play

PARTS = 6
SEEDS_A_PART = 500


@pytest.mark.parametrize("part", range(PARTS))
def test_the_design_keeps_every_guarantee(part: int) -> None:
    for seed in range(part * SEEDS_A_PART, (part + 1) * SEEDS_A_PART):
        assert play(seed) == [], f"seed {seed}"


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_router_of_names_is_caught(wrong: str) -> None:
    assert first_caught(wrong) is not None

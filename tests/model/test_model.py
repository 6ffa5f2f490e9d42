"""Plays the model of a lane: the right router keeps each guarantee in every order of steps, each wrong one breaks one.

A router of today serves each partition by itself, which is a lane of one partition.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.model.tlc import Lane, check

pytestmark = pytest.mark.timeout(600)

TWO = ("p", "q")

RIGHT = {
    "one partition": Lane(epochs=3),
    "two partitions in one transaction": Lane(partitions=TWO, records=1, times=1),
    "two partitions, two due times": Lane(partitions=TWO, records=1, owners=("a",)),
}

WRONG = {
    "holdsCBack": (Lane(records=3), "NumbersTell"),
    "passesLate": (Lane(), "NumbersTell"),
    "noClock": (Lane(), "NotEarly"),
    "notFenced": (Lane(), "NumbersTell"),
    "unheardIsAbort": (Lane(), "NumbersTell"),
    "abortIsCommit": (Lane(), "NumbersTell"),
    "heldForgotten": (Lane(), "NumbersTell"),
    "heldNowhere": (Lane(), "NumbersTell"),
    "heldStays": (Lane(), "NumbersTell"),
    "passesDamaged": (Lane(), "NumbersTell"),
    "progressOfFirst": (Lane(partitions=TWO, records=1), "NumbersTell"),
    "torn": (Lane(partitions=TWO, records=1), "NumbersTell"),
}
"""Routers with one mistake each, by the word that Lane.tla knows them by, and the guarantee that each breaks."""


@pytest.mark.parametrize("size", RIGHT)
def test_the_right_router_keeps_every_guarantee(size: str, tmp_path: Path) -> None:
    checked = check(RIGHT[size], tmp_path)
    assert checked.violated == ""
    print(f"{size}: {checked.states:,} states")
    assert checked.states > 1_000


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_router_is_caught(wrong: str, tmp_path: Path) -> None:
    lane, violated = WRONG[wrong]
    assert check(replace(lane, wrong=wrong), tmp_path).violated == violated


def test_every_mistake_of_the_model_is_played() -> None:
    text = Path(__file__).with_name("Lane.tla").read_text()
    assert set(re.findall(r'"(\w+)"', text)) == set(WRONG)

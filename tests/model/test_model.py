"""Plays the models: the right router keeps each guarantee in every order of steps, each wrong one breaks one.

``Partition.tla`` has the two numbers and the held records of one partition. ``Lanes.tla`` has two partitions in the
lane of a process: another process takes one of them over, which ends the lane for the other one, and commits of the
lane arrive late. The two are apart because the product of their states is too large to play. They meet in one step:
``Partition.tla`` takes over at once, and ``Lanes.tla`` shows that an owner that serves is the only writer, and knows
the last state.

Rejected: to check the traces of simulated runs against the models. The simulation itself compares each of its commits
with these guarantees (:mod:`tests.simulation.checker`), and a trace of the shipped code has no steps that are as small
as those of ``Lanes.tla``; it would confirm the orders of steps that were simulated, which the models play anyway.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.model.tlc import Lanes, Partition, check, impossible_steps

pytestmark = pytest.mark.timeout(600)

ONE = ("p",)
PHASES = {"idle", "fenced", "named", "read", "noted", "serving"}
"""Words of the models that are no mistakes."""

RIGHT: dict[str, Partition | Lanes] = {
    "one partition": Partition(epochs=3),
    "two partitions in a lane": Lanes(take_overs=3),
    "two partitions with two records each": Lanes(records=2),
    "one partition in a lane": Lanes(partitions=ONE, records=3, take_overs=4),
    "three routers": Lanes(owners=("a", "b", "c")),
}

WRONG: dict[str, tuple[Partition | Lanes, str]] = {
    "holdsCBack": (Partition(records=3), "NumbersTell"),
    "passesLate": (Partition(), "NumbersTell"),
    "noClock": (Partition(), "NotEarly"),
    "notFenced": (Partition(), "NumbersTell"),
    "abortIsCommit": (Partition(), "NumbersTell"),
    "heldForgotten": (Partition(), "NumbersTell"),
    "heldNowhere": (Partition(), "NumbersTell"),
    "heldStays": (Partition(), "NumbersTell"),
    "passesDamaged": (Partition(), "NumbersTell"),
    "progressOfFirst": (Lanes(), "NumbersTell"),
    "torn": (Lanes(), "NumbersTell"),
    "readOnce": (Lanes(), "Once"),
    "endedByAnother": (Lanes(), "Once"),
    "readsBehindOpen": (Lanes(), "Once"),
    "formerWrites": (Lanes(), "Named"),
    "ownIdNotFenced": (Lanes(), "Once"),
    "notReadAgain": (Lanes(), "Once"),
    "servesOn": (Lanes(), "Once"),
    "hungForgotten": (Lanes(), "Once"),
    "unheardIsAbort": (Lanes(), "Once"),
    "goesOnAfterLoss": (Lanes(records=2), "Once"),
    "goesOnInNextLane": (Lanes(), "Once"),
    "givesUpInUse": (Lanes(), "Once"),
    "givenUpReadsBehindOpen": (Lanes(), "Once"),
}
"""Routers with one mistake each, by the word that a model knows them by, and the guarantee that each breaks."""


@pytest.mark.parametrize("size", RIGHT)
def test_the_right_router_keeps_every_guarantee(size: str, tmp_path: Path) -> None:
    checked = check(RIGHT[size], tmp_path)
    assert checked.violated == ""
    print(f"{size}: {checked.states:,} states")
    assert checked.states > 1_000


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_router_is_caught(wrong: str, tmp_path: Path) -> None:
    model, violated = WRONG[wrong]
    assert check(replace(model, wrong=wrong), tmp_path, violated).violated == violated


@pytest.mark.parametrize("story", ["Unplayed", "NeverGoneOn"])
def test_partitions_of_a_lane_part_and_lose_nothing(story: str, tmp_path: Path) -> None:
    assert check(Lanes(), tmp_path, story).violated == story


@pytest.mark.parametrize("model", [Partition(), Lanes()], ids=lambda model: model.module)
def test_every_step_of_a_model_is_possible(model: Partition | Lanes, tmp_path: Path) -> None:
    """Catch a step with conditions that exclude each other: TLC passes over it, and over its faults."""
    assert impossible_steps(model, tmp_path) == []


def test_every_mistake_of_the_models_is_played() -> None:
    files = Path(__file__).parent.glob("*.tla")
    named = {word for file in files for word in re.findall(r'"(\w+)"', file.read_text())}
    assert named - PHASES == set(WRONG)

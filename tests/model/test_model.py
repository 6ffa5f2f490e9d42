"""Plays the models: the right router keeps each guarantee in every order of steps, each wrong one breaks one.

``Lane.tla`` has the transactions of a lane; a router of today serves each partition by itself, which is a lane of one
partition. ``Note.tla`` has the take-overs of a partition whose state a lane writes. The two are apart because the
product of their states is too large to play: a take-over of one is a single step of the other.

Rejected: to check the traces of simulated runs against the models. The simulation itself compares each of its commits
with these guarantees (:mod:`tests.simulation.checker`), and a trace of the shipped code has no steps that are as small
as those of ``Note.tla``; it would confirm the orders of steps that were simulated, which the models play anyway.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.model.tlc import Lane, Note, check

pytestmark = pytest.mark.timeout(600)

TWO = ("p", "q")
PHASES = {"idle", "fenced", "named", "read", "noted", "serving"}
"""Words of the models that are no mistakes."""

RIGHT: dict[str, Lane | Note] = {
    "one partition": Lane(epochs=3),
    "two partitions in one transaction": Lane(partitions=TWO, records=1, times=1),
    "two partitions, two due times": Lane(partitions=TWO, records=1, owners=("a",)),
    "a lane that the state names": Note(epochs=4),
    "three routers": Note(owners=("a", "b", "c"), epochs=3, writes=4),
}

WRONG: dict[str, tuple[Lane | Note, str]] = {
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
    "readOnce": (Note(), "OneWriter"),
    "endedByAnother": (Note(), "OneWriter"),
    "readsBehindOpen": (Note(), "OneWriter"),
    "formerWrites": (Note(), "Named"),
    "ownIdNotFenced": (Note(), "OneWriter"),
    "notReadAgain": (Note(), "Named"),
    "servesOn": (Note(), "Named"),
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
    assert check(replace(model, wrong=wrong), tmp_path).violated == violated


def test_every_mistake_of_the_models_is_played() -> None:
    files = Path(__file__).parent.glob("*.tla")
    named = {word for file in files for word in re.findall(r'"(\w+)"', file.read_text())}
    assert named - PHASES == set(WRONG)

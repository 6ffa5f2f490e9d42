"""Limits on unclear prose in docstrings and comments. A limit may only be lowered."""

from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.prose import Prose, measure

# The aim for every package: pronouns per 1,000 words, percentage of docstrings that open with neither verb nor noun.
AIM = Prose(2, 3)

LIMITS = {
    "index": Prose(2, 3),
    "snapshots": Prose(2, 3),
    "sidecar": Prose(13, 20),
    "spark_backfill": Prose(2, 3),
    "tests": Prose(2, 3),
}


@pytest.mark.parametrize("package", LIMITS)
def test_a_package_is_written_no_less_plainly_than_before(package: str) -> None:
    prose, limit = measure(ROOT / package), LIMITS[package]
    assert prose.pronouns <= limit.pronouns, f"name the thing in place of a pronoun; the aim is {AIM.pronouns}"
    assert prose.openings <= limit.openings, f"open docstrings with a verb or a noun; the aim is {AIM.openings} %"


def test_a_pronoun_for_a_noun_and_an_opening_without_verb_are_counted(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text('"""What was left."""\n\n# Whoever asks: what `what` is?\nx = 1\n')
    prose = measure(tmp_path)
    assert prose.openings == 100
    assert prose.pronouns == pytest.approx(1000 * 2 / 8)

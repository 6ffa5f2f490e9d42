"""Limits on unclear prose in docstrings and comments."""

from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.prose import Prose, measure

# Most pronouns per 1,000 words, and the largest percentage of docstrings that open with neither verb nor noun.
LIMIT = Prose(2, 3)


@pytest.mark.parametrize("package", ["index", "snapshots", "sidecar", "spark_backfill", "tests"])
def test_a_package_is_written_plainly(package: str) -> None:
    prose = measure(ROOT / package)
    assert prose.pronouns <= LIMIT.pronouns, "name the thing in place of a pronoun"
    assert prose.openings <= LIMIT.openings, "open docstrings with a verb or a noun"


def test_a_pronoun_for_a_noun_and_an_opening_without_verb_are_counted(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text('"""What was left."""\n\n# Whoever asks: what `what` is?\nx = 1\n')
    prose = measure(tmp_path)
    assert prose.openings == 100
    assert prose.pronouns == pytest.approx(1000 * 2 / 8)

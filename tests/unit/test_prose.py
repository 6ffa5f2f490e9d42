"""Limits on unclear prose in docstrings, comments and texts for users."""

from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.prose import Prose, measure, pronouns_in_texts

# Most pronouns per 1,000 words, and the largest percentage of docstrings that open with neither verb nor noun.
LIMIT = Prose(2, 3)


@pytest.mark.parametrize("package", ["index", "snapshots", "sidecar", "spark_backfill", "tests"])
def test_a_package_is_written_plainly(package: str) -> None:
    prose = measure(ROOT / package)
    assert prose.pronouns <= LIMIT.pronouns, "name the thing in place of a pronoun"
    assert prose.openings <= LIMIT.openings, "open docstrings with a verb or a noun"


@pytest.mark.parametrize("package", ["index", "snapshots", "sidecar", "spark_backfill"])
def test_the_texts_for_users_are_written_plainly(package: str) -> None:
    assert pronouns_in_texts(ROOT / package) <= LIMIT.pronouns, "name the thing in place of a pronoun"


def test_a_pronoun_for_a_noun_and_an_opening_without_verb_are_counted(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text('"""What was left."""\n\n# Whoever asks: what `what` is?\nx = 1\n')
    prose = measure(tmp_path)
    assert prose.openings == 100
    assert prose.pronouns == pytest.approx(1000 * 2 / 8)


def test_pronouns_count_in_strings_with_a_space_that_are_no_docstrings(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        '"""What was left."""\nx = f"{1} holds what is left"\ny = "what"\nz = "what is it?"\n'
    )
    assert pronouns_in_texts(tmp_path) == pytest.approx(1000 * 1 / 7)

"""Tests that the checker catches each wrong router, and that the table in CONTRIBUTING agrees with the code."""

import pytest

from tests.simulation import mutants, wrong
from tests.simulation.__main__ import main
from tests.simulation.plays import WRONG
from tests.simulation.replacing import Wrong


@pytest.mark.parametrize("wrong_router", WRONG)
def test_a_wrong_router_is_caught(wrong_router: type[Wrong]) -> None:
    assert mutants.catch(wrong_router, mutants.most_telling(wrong_router)).violation is not None


def test_replay_from_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["7"]) == 0
    assert capsys.readouterr().out.endswith("seed 7: held\n")
    caught = mutants.catch(wrong.RoundedDown, range(mutants.MOST_SEEDS))
    assert caught.violation is not None
    seed = caught.seeds - 1
    assert main([str(seed), "RoundedDown"]) == 1
    assert f"seed {seed}: BROKEN: " in capsys.readouterr().out
    assert main(["7", "Nobody"]) == 2
    assert "usage:" in capsys.readouterr().err


def test_the_table_of_wrong_routers_is_that_of_the_code() -> None:
    """``make mutants WRITE=--write`` writes the table; its numbers of seeds date from that run."""
    kept = list(mutants.kept(mutants.CONTRIBUTING.read_text("utf-8")))
    assert [(name, what) for name, what, _ in kept] == [(each.__name__, mutants.what_is_wrong(each)) for each in WRONG]
    assert all(1 <= seeds <= mutants.MOST_SEEDS for _, _, seeds in kept)


def test_the_table_is_written_in_the_place_of_the_former_one() -> None:
    found = [mutants.Caught("Lazy", "Does nothing", 3, "lost: [1]")]
    text = mutants.with_rows(f"# A\n\n{mutants.HEADING}| `Old` | Is old | 9 |\n\n## B\n", mutants.rows(found))
    assert text == f"# A\n\n{mutants.HEADING}| `Lazy` | Does nothing | 3 |\n\n## B\n"
    assert list(mutants.kept(text)) == [("Lazy", "Does nothing", 3)]
    with pytest.raises(ValueError, match=r"CONTRIBUTING\.md has no table"):
        mutants.with_rows("# A\n", "")

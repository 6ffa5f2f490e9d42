"""The proof that wrong routers are caught, and the table that CONTRIBUTING keeps of them."""

import pytest

from tests.simulation import mutants, wrong
from tests.simulation.__main__ import main
from tests.simulation.checker import Violation
from tests.simulation.replacing import Wrong
from tests.simulation.run import Run


@pytest.mark.parametrize("wrong_router", wrong.ALL)
def test_a_wrong_router_is_caught(wrong_router: type[Wrong]) -> None:
    assert any(_breaks(seed, wrong_router) for seed in mutants.most_telling(wrong_router))


def _breaks(seed: int, router_type: type[Wrong]) -> bool:
    try:
        Run(seed, router_type).play()
    except Violation:
        return True
    return False


def test_replay_from_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["7"]) == 0
    assert capsys.readouterr().out.endswith("seed 7: held\n")
    seed = next(seed for seed in range(mutants.MOST_SEEDS) if _breaks(seed, wrong.RoundedDown))
    assert main([str(seed), "RoundedDown"]) == 1
    assert f"seed {seed}: BROKEN: " in capsys.readouterr().out
    assert main(["7", "Nobody"]) == 2
    assert "usage:" in capsys.readouterr().err


def test_the_table_of_wrong_routers_is_that_of_the_code() -> None:
    """``make mutants WRITE=--write`` writes it; the numbers of seeds are of that day."""
    kept = list(mutants.kept(mutants.CONTRIBUTING.read_text("utf-8")))
    assert [(name, what) for name, what, _ in kept] == [
        (each.__name__, mutants.what_is_wrong(each)) for each in wrong.ALL
    ]
    assert all(1 <= seeds <= mutants.MOST_SEEDS for _, _, seeds in kept)


def test_the_table_is_written_in_the_place_of_the_former_one() -> None:
    found = [mutants.Caught("Lazy", "Does nothing", 3, "lost: [1]")]
    text = mutants.with_rows(f"# A\n\n{mutants.HEADING}| `Old` | Is old | 9 |\n\n## B\n", mutants.rows(found))
    assert text == f"# A\n\n{mutants.HEADING}| `Lazy` | Does nothing | 3 |\n\n## B\n"
    assert list(mutants.kept(text)) == [("Lazy", "Does nothing", 3)]
    with pytest.raises(ValueError, match=r"CONTRIBUTING\.md has no table"):
        mutants.with_rows("# A\n", "")

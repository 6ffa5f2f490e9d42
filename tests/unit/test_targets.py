"""Every test file is run by exactly one make target, and CI runs all of them."""

import re

import pytest

from tests.targets import ROOT, TARGETS, all_files, files_of, target_of


def test_every_file_belongs_to_one_target() -> None:
    run = sorted(file for target in TARGETS for file in files_of(target))
    assert run == all_files()


@pytest.mark.parametrize("path", [path for paths in TARGETS.values() for path in paths])
def test_every_path_that_is_named_is_there_and_named_once(path: str) -> None:
    assert (ROOT / path).exists()
    assert [each for paths in TARGETS.values() for each in paths].count(path) == 1


def test_a_file_that_no_target_runs_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"no make target runs tests/elsewhere/test_x\.py"):
        target_of("tests/elsewhere/test_x.py")


def test_the_longest_path_decides() -> None:
    assert target_of("tests/integration/test_release.py") == "test"
    assert target_of("tests/integration/test_api.py") == "test-broker"


def test_the_quick_ones_are_run_first() -> None:
    folders = list(dict.fromkeys(file.split("/")[1] for file in files_of("test")))
    assert folders == ["unit", "simulation", "wire", "bench", "integration"]


def test_make_has_every_target_and_runs_all_of_them() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in TARGETS:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    (rest,) = re.findall(r"^test-rest: ([a-z -]+)", makefile, re.MULTILINE)
    assert {"test", *rest.split()} == set(TARGETS)
    assert {"make test", "make --jobs=2 --output-sync=target test-rest"} <= set(
        (ROOT / ".ci" / "run").read_text().splitlines()
    )

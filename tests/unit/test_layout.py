"""Each folder of unit tests is a folder of the source, and no test file imports another."""

from pathlib import Path

import pytest

from tests.support.imports import imports_of
from tests.support.paths import GOLDEN, ROOT
from tests.targets import all_files

_UNIT = ROOT / "tests" / "unit"


def _folders() -> list[str]:
    found = (path.relative_to(_UNIT) for path in _UNIT.rglob("*") if path.is_dir() and path != GOLDEN)
    return sorted(str(path) for path in found if path.name != "__pycache__")


@pytest.mark.parametrize("folder", _folders())
def test_a_folder_of_unit_tests_is_one_of_the_source(folder: str) -> None:
    assert (ROOT / folder / "__init__.py").is_file()


@pytest.mark.parametrize("file", all_files())
def test_no_test_imports_from_another(file: str) -> None:
    package = ".".join(Path(file).parent.parts)
    imports = imports_of((ROOT / file).read_text(encoding="utf-8"), package)
    modules = {part for each in imports if each.top == "tests" for part in each.module.split(".")}
    assert [part for part in modules if part.startswith("test_")] == [], "what two tests share is tests.support's"

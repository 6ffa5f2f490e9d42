"""The examples in docstrings hold, word for word."""

import doctest
import importlib

import pytest

from tests.support.imports import modules_in
from tests.support.paths import ROOT


def _modules_with_examples() -> list[str]:
    found = []
    for room in ("index", "snapshots", "sidecar", "spark_backfill"):
        for path, package in modules_in(ROOT, room):
            if ">>> " in path.read_text(encoding="utf-8"):
                found.append(package if path.stem == "__init__" else f"{package}.{path.stem}")
    return found


@pytest.mark.parametrize("name", _modules_with_examples())
def test_examples_hold(name: str) -> None:
    done = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert done.attempted
    assert not done.failed

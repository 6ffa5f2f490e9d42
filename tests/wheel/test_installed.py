"""Tests that the installed wheel runs, has types, and passes the unit tests, with the source tree out of reach."""

import shutil
from pathlib import Path

import pytest

import sidecar
from tests.support.paths import ROOT
from tests.wheel.installed import Installed

ROOMS = ("index", "snapshots", "sidecar", "spark_backfill")
WHERE = f"""
import importlib
for name in {ROOMS!r}:
    print(importlib.import_module(name).__file__)
"""
TYPED = """
from sidecar.producing import deliver

deliver(to=1)
"""


def test_every_package_comes_from_the_wheel(installed: Installed, tmp_path: Path) -> None:
    done = installed.run("python", "-c", WHERE, cwd=tmp_path)
    assert done.stdout.split() == [str(installed.packages / room / "__init__.py") for room in ROOMS], done.stderr


def test_the_command_is_installed(installed: Installed, tmp_path: Path) -> None:
    done = installed.run("delay-router", "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "run" in done.stdout
    version = installed.run("delay-router", "--version", cwd=tmp_path)
    assert sidecar.__version__ in version.stdout


@pytest.mark.timeout(700)
def test_its_types_are_seen_by_those_who_import_it(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TYPED)
    arguments = ["-m", "mypy", "--strict", f"--python-executable={installed.python}", "mine.py"]
    done = installed.run("python", *arguments, cwd=tmp_path, timeout_s=600)
    assert 'Argument "to" to "deliver" has incompatible type "int"' in done.stdout, done.stdout


# A minute on an idle machine.
@pytest.mark.timeout(1_800)
def test_the_unit_tests_pass_on_it(installed: Installed, tmp_path: Path) -> None:
    """The tests import the installed code: none of the source lies beside them."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in ("__init__.py", "conftest.py"):
        (tmp_path / "tests").mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
    # Those of pure code, and those that need the files and the kernel in the wheel; `make test` runs all.
    sidecar_rooms = (f"unit/sidecar/{room}" for room in ("cli", "config", "dev", "http", "kernel"))
    for folder in ("support", "wire", "unit/index", "unit/snapshots", *sidecar_rooms):
        shutil.copytree(ROOT / "tests" / folder, tmp_path / "tests" / folder)
    assert not any((tmp_path / room).exists() for room in ROOMS)
    # `make test` tries many examples on the same code.
    how = ("--quiet", "--numprocesses", "2", "--dist", "loadfile", "--hypothesis-profile=few")
    done = installed.run("python", "-m", "pytest", *how, "tests/unit", cwd=tmp_path, timeout_s=1_750)
    assert done.returncode == 0, done.stdout[-10_000:]

"""Tests of the source distribution: for every Python and machine, and as good a source of a wheel as the repository."""

import subprocess
import sys
from pathlib import Path

import pytest

import sidecar
from tests.support.paths import ROOT
from tests.wheel.installed import build


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an unpacked source distribution, built as ``make sdist`` does."""
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    name = f"kafka_delay_router-{sidecar.__version__}"
    subprocess.run(["tar", "--extract", "--gzip", "--file", f"{name}.tar.gz"], cwd=folder, check=True)
    return folder / name


def test_it_has_the_source_of_the_kernel_and_nothing_compiled(source: Path) -> None:
    kernel = source / "sidecar" / "kernel"
    assert {path.name for path in kernel.glob("*.pyx")} == {path.name for path in ROOT.glob("sidecar/kernel/*.pyx")}
    assert list(source.rglob("*.so")) == []


def test_it_makes_the_wheel_that_the_repository_makes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAY_ROUTER_KERNEL", "off")
    ours, theirs = (build(tmp_path / each.name, each) for each in (ROOT, source))
    assert theirs.name == ours.name
    assert theirs.read_bytes() == ours.read_bytes()

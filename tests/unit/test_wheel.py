"""The wheel installs exactly the four rooms at top level, with the files they need besides code."""

import subprocess
import sys
import zipfile
from pathlib import PurePosixPath

import pytest

import sidecar
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """Build the wheel as a release would, with the locked hatchling."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = target.iterdir()
    return zipfile.Path(built)


def test_top_level_names(wheel: zipfile.Path) -> None:
    names = {entry.name for entry in wheel.iterdir()}
    info = f"kafka_delay_router-{sidecar.__version__}.dist-info"
    assert names == {"index", "snapshots", "sidecar", "spark_backfill", info}


def test_console_script(wheel: zipfile.Path) -> None:
    info = next(entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info"))
    text = (info / "entry_points.txt").read_text(encoding="utf-8")
    assert "delay-router = sidecar.cli:main" in text.splitlines()


def test_every_module_and_its_data_are_in_it(wheel: zipfile.Path) -> None:
    packed = set(wheel.root.namelist())
    rooms = ("index", "snapshots", "sidecar", "spark_backfill")
    wanted = {
        str(PurePosixPath(path.relative_to(ROOT)))
        for room in rooms
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"sidecar/local_kafka/pom.xml", "sidecar/local_kafka/log4j2.yaml"} <= wanted
    # Without it a type checker takes the annotations of an installed package for absent.
    assert {f"{room}/py.typed" for room in rooms} <= wanted
    assert wanted <= packed


def test_metadata(wheel: zipfile.Path) -> None:
    info = next(entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info"))
    metadata = (info / "METADATA").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    assert "Name: kafka-delay-router" in metadata
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert {line.removeprefix("Provides-Extra: ") for line in metadata if line.startswith("Provides-Extra")} == {
        "local",
        "spark",
    }

"""Tests that the wheel installs exactly the four top-level packages, with their data files."""

import re
import zipfile
from pathlib import Path, PurePosixPath

import pytest

import sidecar
from sidecar import failpoints
from sidecar.commit import PACKED, UNKNOWN, built_from
from tests.support.paths import ROOT
from tests.wheel.installed import build


@pytest.fixture(scope="module")
def contents(wheel: Path) -> zipfile.Path:
    return zipfile.Path(wheel)


def test_a_second_build_makes_the_same_bytes_and_leaves_the_modules_in_place_alone(wheel: Path, tmp_path: Path) -> None:
    """Another process may load the modules at that moment, as other tests do that run beside these."""

    def modules() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (ROOT / "sidecar" / "kernel").glob("*.so")}

    before = modules()
    again = build(tmp_path)
    assert modules() == before
    assert again.read_bytes() == wheel.read_bytes()


def test_top_level_names(contents: zipfile.Path) -> None:
    names = {entry.name for entry in contents.iterdir()}
    info = f"kafka_delay_router-{sidecar.__version__}.dist-info"
    assert names == {"index", "snapshots", "sidecar", "spark_backfill", info}


def test_the_commit_of_the_clone_is_in_it(contents: zipfile.Path) -> None:
    commit = built_from()
    if commit == UNKNOWN:
        pytest.skip("no clone, or no git")
    assert (contents / "sidecar" / PACKED).read_text() == f"{commit}\n"


def test_console_script(contents: zipfile.Path) -> None:
    info = next(entry for entry in contents.iterdir() if entry.name.endswith(".dist-info"))
    text = (info / "entry_points.txt").read_text(encoding="utf-8")
    assert "delay-router = sidecar.cli:main" in text.splitlines()


def test_every_module_and_its_data_are_in_it(contents: zipfile.Path) -> None:
    packed = set(contents.root.namelist())
    rooms = ("index", "snapshots", "sidecar", "spark_backfill")
    wanted = {
        str(PurePosixPath(path.relative_to(ROOT)))
        for room in rooms
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"sidecar/dev/local_kafka/pom.xml", "sidecar/dev/local_kafka/log4j2.yaml"} <= wanted
    # Without it a type checker ignores the annotations of an installed package.
    assert {f"{room}/py.typed" for room in rooms} <= wanted
    assert wanted <= packed


def test_metadata(contents: zipfile.Path) -> None:
    info = next(entry for entry in contents.iterdir() if entry.name.endswith(".dist-info"))
    metadata = (info / "METADATA").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    assert "Name: kafka-delay-router" in metadata
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert {line.removeprefix("Provides-Extra: ") for line in metadata if line.startswith("Provides-Extra")} == {
        "local",
        "msk",
        "spark",
        "tracing",
    }


def test_what_lets_a_test_kill_a_router_is_in_the_source_tree_alone(contents: zipfile.Path) -> None:
    switch = failpoints.SWITCH.relative_to(ROOT)
    assert "tests" in switch.parts
    assert failpoints.SWITCH.is_file()
    assert str(switch) not in contents.root.namelist()


def test_make_wheel_builds_with_the_tools_of_these_tests() -> None:
    pins = [
        set(re.findall(r"^[a-z-]+==\S+", (ROOT / f"requirements-{name}.lock").read_text(), re.MULTILINE))
        for name in ("wheel", "dev")
    ]
    assert pins[0] <= pins[1]
    assert {pin.partition("==")[0] for pin in pins[0]} >= {"cython", "hatchling", "setuptools"}

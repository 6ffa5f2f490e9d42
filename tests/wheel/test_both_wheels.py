"""Tests the wheels of a release, as ``make wheels`` builds them, in environments without a compiler."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import sidecar
from tests.support.paths import ROOT
from tests.wheel.installed import build

UV: Final = Path(sys.executable).with_name("uv")
COMPILERS: Final = ("cc", "gcc", "clang", "c++", "g++")


def _make(folder: Path) -> list[Path]:
    """Run the recipe; the environment that runs the tests is not made anew."""
    made = ["make", "--assume-old", ".venv/.installed", "wheels", f"DIST={folder}", f"BIN={UV.parent}"]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the wheels of a release: with the kernel, and pure."""
    if not any(map(shutil.which, COMPILERS)) and os.environ.get("CI") != "true":
        pytest.skip("no C compiler: there is no wheel with the kernel to be had")
    return _make(tmp_path_factory.mktemp("dist"))


def _without_compiler(folder: Path) -> dict[str, str]:
    """Return variables with an empty PATH, and without other variables that could name a compiler."""
    (folder / "empty").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CC", "PYTHON", "DELAY_ROUTER"))}
    return kept | {"PATH": str(folder / "empty")}


def _run(environment: dict[str, str], *command: object) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=environment["PATH"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Kernels(NamedTuple):
    """Reports of the kernel by a router, by a task of a Spark job, and by one with the zip for Spark in front."""

    router: str
    job: str
    job_of_zip: str


_ASK_JOB: Final = "from spark_backfill import kernel; print('kernel:', kernel.chosen().name)"


def _kernels_of(wheel: Path, folder: Path) -> Kernels:
    """Return the reports in an environment with this wheel alone."""
    environment = _without_compiler(folder)
    assert not any(shutil.which(name, path=environment["PATH"]) for name in COMPILERS)
    python = folder / "bare" / "bin" / "python"
    _run(environment, UV, "venv", "--quiet", "--python", sys.executable, folder / "bare")
    wanted = ("--constraint", ROOT / "requirements.lock", wheel)
    _run(environment, UV, "pip", "install", "--quiet", "--python", python, *wanted)
    assert sidecar.__version__ in _run(environment, python.with_name("delay-router"), "--version")
    archive = folder / "spark.zip"
    made = ["make", "spark-zip", f"SPARK_ZIP={archive}", f"PYTHON={sys.executable}"]
    subprocess.run(made, cwd=ROOT, capture_output=True, check=True)
    return Kernels(
        _run(environment, python, "-m", "sidecar.kernel"),
        _run(environment, python, "-c", _ASK_JOB),
        _run(environment | {"PYTHONPATH": str(archive)}, python, "-c", _ASK_JOB),
    )


def test_the_compiled_one_brings_the_kernel_where_no_compiler_is(wheels: list[Path], tmp_path: Path) -> None:
    native, _ = wheels
    said = _kernels_of(native, tmp_path)
    assert said.router == said.job == "kernel: native\n"
    assert said.job_of_zip.startswith(
        "kernel: python, since the installed kernel is not where the code of the job comes"
    )


def test_the_pure_one_says_that_it_has_none(wheels: list[Path], tmp_path: Path) -> None:
    _, pure = wheels
    assert pure.name.endswith("-py3-none-any.whl")
    said = _kernels_of(pure, tmp_path)
    assert said.router.startswith("kernel: python, since it is not compiled for this Python")
    assert said.job == said.router


@pytest.mark.skipif(sys.platform != "linux", reason="named by the oldest Linux it runs on")
def test_the_compiled_one_is_named_by_the_oldest_linux_it_runs_on(wheels: list[Path]) -> None:
    """An index accepts no other tag, and pip installs the wheel on that Linux or a newer one only."""
    native, _ = wheels
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert f"-{tag}-{tag}-manylinux" in native.name
    assert "-linux_" not in native.name


def test_pip_takes_the_compiled_one_where_it_has_both(wheels: list[Path], tmp_path: Path) -> None:
    native, pure = wheels
    source = ("--no-deps", "--no-index", "--find-links", native.parent, "--dest", tmp_path, "kafka-delay-router")
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *source], check=True)
    assert [each.name for each in tmp_path.iterdir()] == [native.name] != [pure.name]


def test_the_same_files_make_the_same_wheels(wheels: list[Path], tmp_path: Path) -> None:
    assert [(each.name, each.read_bytes()) for each in _make(tmp_path)] == [
        (each.name, each.read_bytes()) for each in wheels
    ]


def test_without_a_compiler_a_pure_one_is_built_which_says_why(tmp_path: Path) -> None:
    environment = _without_compiler(tmp_path)
    build_it = ("-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path / "dist")
    done = subprocess.run(
        [sys.executable, *map(str, build_it)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "the kernel is not compiled: " in done.stderr
    assert "install a C compiler and the headers of Python" in done.stderr
    assert [each.name for each in (tmp_path / "dist").iterdir()] == [
        f"kafka_delay_router-{sidecar.__version__}-py3-none-any.whl"
    ]


def test_with_the_switch_off_a_pure_one_is_built_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAY_ROUTER_KERNEL", "off")
    assert build(tmp_path).name.endswith("-py3-none-any.whl")

"""The kernel of a task: native code by its entry point, or Python, with the reason."""

import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from index.errors import ConfigError
from sidecar.kernel import jobs
from snapshots.segments.codec import PYTHON_CODEC
from spark_backfill import kernel
from spark_backfill.kernel import GROUP, HOME, INTERFACE, SWITCH, Native, asked, found
from tests.support.paths import ROOT

THERE: Any = SimpleNamespace(interface=INTERFACE, home=HOME.resolve(), why_not=lambda _: "", codec="native")


class Offer:
    """An entry point that gives something, or fails."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def load(self) -> Any:
        if isinstance(self._native, Exception):
            raise self._native
        return self._native


def why_not(*offers: Any, environ: dict[str, str] | None = None) -> str:
    given: Any = [Offer(each) for each in offers]
    chosen = found(given, environ or {})
    assert (chosen.native is None) is bool(chosen.why_not)
    assert (chosen.codec is PYTHON_CODEC) is (chosen.native is None)
    assert chosen.name == ("native" if chosen.native else f"python, since {chosen.why_not}")
    return chosen.why_not


def other(**what: Any) -> Any:
    return SimpleNamespace(**{**THERE.__dict__, **what})


def test_native_code_is_used_where_it_is() -> None:
    assert why_not(THERE) == ""
    assert why_not(other(interface=7), THERE) == "", "another one that can be used"


def test_python_is_used_where_there_is_none() -> None:
    assert why_not() == "the wheel of the router is not installed for this Python"


def test_what_cannot_be_used_is_not_and_it_is_said_why() -> None:
    assert why_not(other(interface=INTERFACE + 1)).startswith("what is installed is of another version (interface 2")
    assert why_not(other(home=Path("/elsewhere"))).startswith(
        "what is installed is not where the code of the job comes from (/elsewhere, "
    )
    assert why_not(other(why_not=lambda _: "it is not compiled")) == "it is not compiled"
    assert why_not(ImportError("no module")) == "it cannot be loaded (no module)"
    assert why_not(AttributeError("no name")) == "it cannot be loaded (no name)"


def test_it_is_switched_off_by_the_executor_and_by_the_driver() -> None:
    assert why_not(THERE, environ={SWITCH: "off"}).endswith("DELAY_ROUTER_KERNEL=off on the executor")
    assert kernel.chosen("off").why_not.endswith("DELAY_ROUTER_KERNEL=off on the driver")


def test_what_the_driver_is_told_is_a_word_that_means_something() -> None:
    assert [asked({}), asked({SWITCH: "on"}), asked({SWITCH: "off"})] == ["", "on", "off"]
    with pytest.raises(ConfigError, match="DELAY_ROUTER_KERNEL=no: write off or on"):
        asked({SWITCH: "no"})


def test_the_entry_point_is_what_the_router_has() -> None:
    (name,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP].values()
    native: Native = jobs.KERNEL
    assert EntryPoint("jobs", name, GROUP).load() is native
    assert (native.interface, native.home) == (INTERFACE, HOME.resolve())


_ASK = "from spark_backfill import kernel; print(kernel.chosen().name)"


def _zipped(folder: Path, *rooms: str) -> Path:
    """Make the archive of ``make spark-zip``, or one with more rooms."""
    archive = folder / "spark_backfill.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for room in rooms:
            for path in (ROOT / room).rglob("*.py"):
                made.write(path, path.relative_to(ROOT))
    return archive


def _said(folder: Path, archive: Path) -> str:
    # The archive comes first on the path, in front of an installed wheel.
    script = f"import sys; sys.path[:0] = [{str(archive)!r}]; {_ASK}"
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_worker_with_the_zip_in_front_of_an_installed_wheel_works_in_python(tmp_path: Path) -> None:
    archive = _zipped(tmp_path, "index", "snapshots", "spark_backfill")
    said = _said(tmp_path, archive)
    assert said.startswith("python, since ")
    assert "is not where the code of the job comes from" in said or "not installed" in said


def test_a_wheel_without_what_is_compiled_works_in_python(tmp_path: Path) -> None:
    archive = _zipped(tmp_path, "index", "snapshots", "spark_backfill", "sidecar")
    info = "kafka_delay_router-0.dist-info"
    with zipfile.ZipFile(archive, "a") as made:
        made.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: kafka-delay-router\nVersion: 0\n")
        made.writestr(f"{info}/entry_points.txt", f"[{GROUP}]\njobs = sidecar.kernel.jobs:KERNEL\n")
    assert _said(tmp_path, archive).startswith("python, since it is not compiled for this Python")

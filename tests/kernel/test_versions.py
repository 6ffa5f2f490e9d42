"""Tests the kernel with the oldest and the newest version of confluent-kafka that pyproject.toml accepts.

And with one that is older: its librdkafka lays its memory out on its own, and no test may notice.
"""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Final

import pytest

from tests.support.kernel import native_kernel
from tests.support.paths import ROOT

OLDEST: Final = "2.16.1"
"""The lower end of the range in pyproject.toml."""

BEFORE: Final = "2.15.1"
"""A version with another librdkafka."""

TESTS: Final = (
    "tests/unit/sidecar/kernel",
    "tests/unit/sidecar/kafka/reading/test_odd_headers.py",
    "tests/unit/sidecar/kafka/reading/test_offset_reader.py",
    "tests/unit/sidecar/engine/intake",
    "tests/unit/index/rules/test_unreadable.py",
)
"""The tests of code that calls librdkafka itself."""

native_kernel()


def _newest() -> str:
    """Return the newest version in the range that pip offers; the oldest where it offers none."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "confluent-kafka"],
        capture_output=True,
        text=True,
        check=False,
    )
    offered = re.search(r"Available versions: (.*)", done.stdout)
    # The newest is first.
    versions = offered[1].split(", ") if offered else []
    return next((version for version in versions if version.startswith("2.")), OLDEST)


def _with_client(version: str, folder: Path) -> Path:
    """Return the Python of an environment with this client and otherwise the tests' packages, or skip (not in CI)."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    scheme, base = sysconfig.get_preferred_scheme("prefix"), {"base": str(folder), "platbase": str(folder)}
    # Packages of the environment itself come first.
    (Path(sysconfig.get_path("purelib", scheme, base)) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ["install", "--quiet", "--no-deps", "--only-binary", ":all:", f"confluent-kafka=={version}"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), *install], capture_output=True, text=True, check=False
    )
    if done.returncode and os.environ.get("CI") != "true":
        pytest.skip(f"confluent-kafka {version} cannot be installed here: {done.stderr[-500:]}")
    assert done.returncode == 0, done.stderr
    found = _run(python, "-c", "import confluent_kafka; print(confluent_kafka.version())")
    assert found.stdout.strip() == version, found.stderr
    return python


def _run(python: Path, *arguments: str, timeout_s: float = 60) -> "subprocess.CompletedProcess[str]":
    # Uses the kernel that is compiled in place; with CI set, a missing one is an error.
    environment = os.environ | {"CI": "true"}
    return subprocess.run(
        [str(python), *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def test_the_range_begins_with_the_oldest() -> None:
    assert f'"confluent-kafka>={OLDEST},<3"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("which", ["before", "oldest", "newest"])
def test_the_kernel_reads_and_writes_with_it(which: str, tmp_path: Path) -> None:
    version = {"before": BEFORE, "oldest": OLDEST}.get(which) or _newest()
    if which == "newest" and version == OLDEST:
        pytest.skip(f"the newest is the oldest, {OLDEST}")
    python = _with_client(version, tmp_path)
    assert _run(python, "-m", "sidecar.kernel").stdout == "kernel: native\n"
    # `make test` tries many examples on the locked version.
    done = _run(python, "-m", "pytest", "--quiet", "--hypothesis-profile=few", *TESTS, timeout_s=390)
    assert done.returncode == 0, done.stdout[-10_000:]

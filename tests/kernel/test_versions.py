"""Tests the kernel with each accepted version of confluent-kafka, and its refusal of any other version."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Final

import pytest

from sidecar.kafka.client.librdkafka import KNOWN
from tests.support.kernel import native_kernel
from tests.support.paths import ROOT

UNKNOWN: Final = "2.15.1"
"""A version that the kernel does not know."""

TESTS: Final = (
    "tests/unit/sidecar/kernel",
    "tests/unit/sidecar/engine/intake",
    "tests/unit/index/rules/test_unreadable.py",
)
"""The tests of code that depends on the memory layout of the client."""

native_kernel()


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


@pytest.mark.parametrize(("binding", "library"), sorted(KNOWN))
def test_each_version_that_is_accepted_passes_the_tests_of_the_kernel(
    binding: str, library: str, tmp_path: Path
) -> None:
    python = _with_client(binding, tmp_path)
    brought = _run(python, "-c", "import confluent_kafka; print(confluent_kafka.libversion()[0])")
    assert brought.stdout.strip() == library
    assert _run(python, "-m", "sidecar.kernel").stdout == "kernel: native\n"
    done = _run(python, "-m", "pytest", "--quiet", *TESTS, timeout_s=390)
    assert done.returncode == 0, done.stdout[-10_000:]


def test_with_any_other_it_is_off_and_the_router_names_those_that_are_known(tmp_path: Path) -> None:
    """Nobody could see whether this client alters headers, so Python alone does not run with it either."""
    assert UNKNOWN not in {binding for binding, _ in KNOWN}
    python = _with_client(UNKNOWN, tmp_path)
    told = _run(python, "-m", "sidecar.kernel").stdout
    assert told == f"kernel: python, since the layout of confluent-kafka {UNKNOWN} is not known to it\n"
    file = tmp_path / "delay-router.toml"
    file.write_text(
        '[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n[[delay_topics]]\nname = "d"\ndefault_target = "t"\n'
    )
    refused = _run(python, "-m", "sidecar", "run", "--config", str(file))
    assert refused.returncode == 2
    assert f"confluent-kafka {UNKNOWN} with librdkafka" in refused.stderr
    for binding, library in KNOWN:
        assert f"{binding} (librdkafka {library})" in refused.stderr

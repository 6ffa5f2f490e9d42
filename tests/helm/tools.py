"""Finds programs that pip does not install: on the PATH or where ``make chart-tools`` puts them."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

_DEBIAN: Final = "apt-get install prometheus"
_GO: Final = "make chart-tools"
_REMEDIES: Final = {
    "helm": _GO,
    "helm-unittest": _GO,
    "actionlint": _GO,
    "servicemonitors.yaml": _GO,
    "podmonitors.yaml": _GO,
    "prometheusrules.yaml": _GO,
    "promtool": _DEBIAN,
    "prometheus": _DEBIAN,
}


def folder() -> Path:
    """Return the folder into which ``tests/helm/install-tools`` installs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("TOOLS") or cache / "kafka-delay-router" / "tools")


def program(name: str) -> str:
    """Return the path of a program; if it is missing, skip the test with a message, or fail in CI."""
    path = os.pathsep.join([str(folder() / "bin"), os.environ.get("PATH", "")])
    return shutil.which(name, path=path) or _missing(name)


def operator_schema(name: str) -> Path:
    """Return a schema of Prometheus Operator or KEDA, by its file name."""
    found = sorted(folder().glob(f"*-v*/{name}"))
    return found[-1] if found else Path(_missing(name))


def run(name: str, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with any exit code."""
    command = [program(name), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def _missing(name: str) -> str:
    message = f"{name} is not installed: {_REMEDIES[name]}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)

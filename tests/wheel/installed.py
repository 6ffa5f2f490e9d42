"""Builds the wheel, and runs commands in an environment into which it was installed."""

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT


def build(folder: Path, project: Path = ROOT) -> Path:
    """Build the wheel of a project into an empty folder, as ``make wheel`` does with the locked hatchling."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.iterdir()
    return built


@dataclass(frozen=True)
class Installed:
    """A virtual environment in ``home``."""

    home: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.home / "bin" / "python"

    @property
    def packages(self) -> Path:
        """The folder of its packages."""
        scheme = sysconfig.get_preferred_scheme("prefix")
        return Path(sysconfig.get_path("purelib", scheme, {"base": str(self.home), "platbase": str(self.home)}))

    def run(self, *command: str, cwd: Path, timeout_s: float = 60) -> "subprocess.CompletedProcess[str]":
        """Run a program of its ``bin``, with the source tree out of reach of imports."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        call = [str(self.home / "bin" / command[0]), *command[1:]]
        return subprocess.run(
            call, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )

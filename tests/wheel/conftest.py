"""Provides a wheel built once, and an environment with this wheel and without the source tree."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.wheel.installed import Installed, build


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this source tree."""
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment with this wheel, and with the locked dependencies of the test environment."""
    made = Installed(tmp_path_factory.mktemp("installed"))
    venv.create(made.home, with_pip=False)
    # Python ignores path files in a folder that was added by a path file, so the editable install stays out.
    (made.packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(made.python), *install], check=True)
    return made

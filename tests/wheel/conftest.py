"""A wheel built once, and an environment in which it, and nothing of the source tree, is installed."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.wheel.installed import Installed, build


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source tree."""
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with this wheel, and with the locked dependencies of the one that runs the tests."""
    made = Installed(tmp_path_factory.mktemp("installed"))
    venv.create(made.home, with_pip=False)
    # A path file within a folder that is itself named by one is not read, so the editable install stays out.
    (made.packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(made.python), *install], check=True)
    return made

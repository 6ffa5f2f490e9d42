"""The environment of an installed router cannot make it stop at its worst moments."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import sidecar
from sidecar import failpoints


def test_refused_outside_the_source_tree(tmp_path: Path) -> None:
    source = Path(sidecar.__file__).parents[1]
    for room in ("index", "snapshots", "sidecar"):
        shutil.copytree(source / room, tmp_path / room)
    program = "import os\nfrom sidecar import failpoints\nfailpoints.arm(os.environ)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), failpoints.VARIABLE: "seal.before_manifest"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "only tests in the source tree may stop a router so; unset the variable" in done.stderr

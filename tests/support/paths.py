"""Folders of this project."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
"""The source tree."""

GOLDEN: Final = ROOT / "tests" / "unit" / "snapshots" / "golden"
"""The folder of files that earlier versions have written; no file in it is ever written again."""

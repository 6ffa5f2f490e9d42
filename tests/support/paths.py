"""Folders of this project."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
"""The source tree."""

GOLDEN: Final = ROOT / "tests" / "unit" / "snapshots" / "golden"
"""Files that earlier versions have written. No file in it is ever written again."""

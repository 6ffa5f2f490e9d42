"""The commit of which this program was built: packed into a wheel by ``hatch_build.py``, or that of the clone."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Final

PACKED: Final = "commit.txt"
UNKNOWN: Final = "unknown"
TIMEOUT_S: Final = 5.0


@cache
def built_from(package: Path = Path(__file__).parent) -> str:
    """Return the first digits of the commit, or ``unknown``; ``package`` is the folder of the package."""
    packed, clone = package / PACKED, package.resolve().parent
    if packed.exists():
        return packed.read_text(encoding="ascii").strip()
    # A folder within another clone has no commit of its own.
    if not (clone / ".git").exists():
        return UNKNOWN
    call = ["git", "-C", str(clone), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(call, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN

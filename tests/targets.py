"""Lists the test files of each make target; every file belongs to exactly one target.

``python -m tests.targets TARGET`` prints the files of one. A file belongs to the target that names it by the longest
path, so that ``make test`` can include single files of a folder. It has the tests that a newcomer waits for: the pure
core, the simulation, and each promise of README on a real broker.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

TARGETS: Final[Mapping[str, tuple[str, ...]]] = {
    "test": (
        "tests/unit",
        "tests/simulation",
        "tests/wire",
        "tests/bench",
        # Exactly once and in order, despite any crash; never early.
        "tests/integration/test_release.py",
        "tests/integration/test_crashes.py",
        "tests/integration/test_buckets.py",
        # No record is skipped without a report.
        "tests/integration/test_rejections.py",
        "tests/integration/test_any_record.py",
        "tests/integration/test_limits.py",
        # The first commands that a user meets.
        "tests/integration/test_init_check.py",
        "tests/integration/test_send.py",
    ),
    "test-broker": ("tests/integration", "tests/faults", "tests/examples"),
    "test-upgrade": ("tests/faults/test_rolling_update.py",),
    "test-docs": ("tests/docs", "tests/recipes"),
    "test-page": ("tests/page",),
    "test-kernel": ("tests/kernel",),
    "test-wheel": ("tests/wheel",),
    "test-spark": ("tests/spark",),
    "test-helm": ("tests/helm",),
    "test-monitoring": ("tests/monitoring",),
    "test-image": ("tests/image",),
    "model": ("tests/model",),
}


def all_files() -> list[str]:
    """Return every file with tests, by its path from the root."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


def target_of(file: str) -> str:
    """Return the target that runs a file. Raise LookupError if there is none."""
    named = [(len(path), target) for target, paths in TARGETS.items() for path in paths if _is_within(file, path)]
    if not named:
        raise LookupError(f"no make target runs {file}: name it in tests/targets.py")
    return max(named)[1]


def files_of(target: str) -> list[str]:
    """Return the files that a target runs, in its own order: quick failures come first."""
    paths = TARGETS[target]
    files = [file for file in all_files() if target_of(file) == target]
    return sorted(files, key=lambda file: next(place for place, path in enumerate(paths) if _is_within(file, path)))


def _is_within(file: str, path: str) -> bool:
    return f"{file}/".startswith(f"{path}/")


if __name__ == "__main__":
    print(*files_of(sys.argv[1]))

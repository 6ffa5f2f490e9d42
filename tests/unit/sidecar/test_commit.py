"""The commit that metrics and ``--version`` name."""

import subprocess
from pathlib import Path

import pytest

from sidecar.commit import PACKED, UNKNOWN, built_from


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Make the folder of a package."""
    made = tmp_path / "clone" / "sidecar"
    made.mkdir(parents=True)
    return made


def test_a_wheel_names_the_commit_that_was_packed(package: Path) -> None:
    (package / PACKED).write_text("0123456789ab\n")
    assert built_from(package) == "0123456789ab"


def test_a_clone_names_its_commit(package: Path) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=n", "-c", "user.email=e@example.com")
        done = subprocess.run(["git", *who, *arguments], cwd=package.parent, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--no-gpg-sign", "--message", "first")
    assert built_from(package) == git("rev-parse", "HEAD")[:12]


def test_without_a_clone_the_commit_is_not_known(package: Path) -> None:
    assert built_from(package) == UNKNOWN


def test_a_clone_that_git_cannot_read_is_no_trouble(package: Path) -> None:
    (package.parent / ".git").write_text("gitdir: /nowhere\n")
    assert built_from(package) == UNKNOWN

"""A release image is built on a base image that cannot change."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

DIGEST = "python@sha256:" + "0123456789abcdef" * 4


def _make(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run make with a docker that only prints its arguments."""
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "docker $*"\n')
    docker.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    call = ["make", "release-image", *(f"{name}={value}" for name, value in variables.items())]
    return subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("base", ["", "python:3.13", "python@sha256:12", f"{DIGEST}0", "python:3.13@md5:00"])
def test_a_base_without_a_digest_is_refused(tmp_path: Path, base: str) -> None:
    done = _make(tmp_path, BASE=base, IMAGE="router:1.0.0")
    assert done.returncode == 2
    assert "BASE must name an image by digest" in done.stderr
    assert "docker" not in done.stdout


def test_one_with_a_digest_is_taken(tmp_path: Path) -> None:
    done = _make(tmp_path, BASE=DIGEST, IMAGE="router:1.0.0")
    assert done.returncode == 0, done.stderr
    assert f"--build-arg BASE={DIGEST}" in done.stdout
    assert "--tag router:1.0.0" in done.stdout
    assert "--build-arg COMMIT=" in done.stdout


def test_a_release_has_a_name(tmp_path: Path) -> None:
    done = _make(tmp_path, BASE=DIGEST)
    assert done.returncode == 2
    assert "IMAGE must name the release" in done.stderr

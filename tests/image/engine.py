"""Calls the Docker engine through its command line, as a user does."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
COPIED: Final = ("index", "snapshots", "sidecar", "spark_backfill", "helm/image")
DOCKERFILES: Final = ("Dockerfile", "Dockerfile.spark")
FILES: Final = (*DOCKERFILES, ".dockerignore", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
LOCKS: Final = ("requirements.lock", "requirements-extras.lock", "requirements-image.lock", "requirements-spark.lock")
BUILD_TIMEOUT_S: Final = 900.0

_GLIBC: Final = (5, 12, 17, 24, 26, 27, 28, 31, 34)


def call(*arguments: object, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a command of docker, with any exit code."""
    command = ["docker", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def docker(*arguments: object, timeout_s: float = 60.0) -> str:
    """Return the output of a command of docker. Raise AssertionError with its message if it fails."""
    done = call(*arguments, timeout_s=timeout_s)
    assert done.returncode == 0, f"docker {arguments[0]}: {done.stdout[-2_000:]}{done.stderr[-4_000:]}"
    return done.stdout.strip()


def base_image() -> str:
    """Return ``IMAGE_BASE`` or the base in the Dockerfile; skip without an engine or without the image."""
    _engine_or_skip()
    return _had("IMAGE_BASE", "Dockerfile", "BASE")


def spark_image() -> str:
    """Return ``IMAGE_SPARK`` or the Spark image in Dockerfile.spark; skip without an engine or without the image."""
    _engine_or_skip()
    return _had("IMAGE_SPARK", "Dockerfile.spark", "SPARK")


def _engine_or_skip() -> None:
    if shutil.which("docker") is None:
        pytest.skip("needs a Docker engine: docker is not installed")
    try:
        docker("version", "--format", "{{.Server.Version}}")
    except AssertionError as error:
        pytest.skip(f"needs a Docker engine: {error}")


def _had(variable: str, file: str, argument: str) -> str:
    (default,) = re.findall(rf"^ARG {argument}=(\S+)$", (ROOT / file).read_text(), re.MULTILINE)
    image = os.environ.get(variable) or default
    try:
        docker("run", "--rm", "--network", "none", "--entrypoint", "true", image, timeout_s=300)
    except AssertionError as error:
        pytest.skip(f"the image {image} cannot be had; {variable} names another: {error}")
    return image


def build(base: str, tag: str, context: Path) -> None:
    """Build the image from a copy of the sources and from wheels fetched here, without a package index."""
    _prepare(base, context)
    _build(tag, context, "Dockerfile", BASE=base)


def build_spark(base: str, spark: str, jars: Iterable[Path], tag: str, context: Path) -> None:
    """Build the image of the Spark jobs in the same way; ``jars`` are the Kafka connector's."""
    _prepare(base, context)
    (context / "build" / "jars").mkdir()
    for jar in jars:
        shutil.copy(jar, context / "build" / "jars")
    _build(tag, context, "Dockerfile.spark", BASE=base, SPARK=spark)


def _prepare(base: str, context: Path) -> None:
    for name in COPIED:
        shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in (*FILES, *LOCKS):
        shutil.copy(ROOT / name, context / name)
    _fetch_wheels(base, context / "build" / "wheels")


def _build(tag: str, context: Path, file: str, **arguments: str) -> None:
    given = {**arguments, "PIP_NO_INDEX": "1"}
    options = [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
    command = ("build", "--network", "host", *options, "--file", context / file, "--tag", tag, context)
    docker(*command, timeout_s=BUILD_TIMEOUT_S)


def inspect(thing: str) -> Mapping[str, Any]:
    """Return the engine's description of an image or a container."""
    found: list[Mapping[str, Any]] = json.loads(docker("inspect", thing))
    return found[0]


def _fetch_wheels(base: str, folder: Path) -> None:
    version = docker(
        "run", "--rm", "--network", "none", base, "python3", "-c", "import sys; print(*sys.version_info[:2])"
    )
    major, minor = version.split()
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--only-binary", ":all:"]
    pip += ["--python-version", f"{major}.{minor}", "--implementation", "cp", "--dest", str(folder)]
    pip += [f"--abi={abi}" for abi in (f"cp{major}{minor}", "abi3", "none")]
    pip += [f"--platform=manylinux_2_{glibc}_{platform.machine()}" for glibc in _GLIBC]
    pip += [f"--platform={name}_{platform.machine()}" for name in ("manylinux1", "manylinux2010", "manylinux2014")]
    for lock in LOCKS:
        done = subprocess.run([*pip, "--requirement", str(ROOT / lock)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

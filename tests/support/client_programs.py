"""Programs in other languages that the documents show: how each is built and called, where its client can be had."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from sidecar.dev.local_kafka import maven
from tests.support.paths import ROOT

EXAMPLES: Final = ROOT / "tests" / "examples"
KAFKAJS: Final = "kafkajs@2.2.4"


class ClientMissing(Exception):
    """A client that is not installed, and cannot be fetched."""


def java(program: Path) -> list[str]:
    """Return the call of a Java program of one file."""
    found = maven.java().path
    modules = subprocess.run([found, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in modules:
        raise ClientMissing(f"{found} has no compiler: it is a JRE")
    clients = ":".join(str(jar) for jar in maven.jars(print).glob("*.jar"))
    return [found, "-XX:TieredStopAtLevel=1", "-cp", clients, str(program)]


def go_steps() -> str:
    """Return the steps that make a module with the client in an empty folder."""
    ((client, version),) = re.findall(r"require (\S+) (\S+)\n", (EXAMPLES / "go.mod").read_text(encoding="utf-8"))
    return f"go mod init delayed && go get {client}/pkg/kgo@{version}"


def golang(program: Path, folder: Path) -> list[str]:
    """Build a Go program in an empty folder, and return its call."""
    go = shutil.which("go")
    if go is None:
        raise ClientMissing("Go is missing")
    fetched = subprocess.run([go, "mod", "download"], cwd=EXAMPLES, capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        raise ClientMissing(f"the modules cannot be fetched: {fetched.stderr.strip()}")
    shutil.copy(program, folder)
    steps = f"{go_steps()} && go build -o program ."
    built = subprocess.run(["sh", "-c", steps], cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return [str(folder / "program")]


def node(program: Path, folder: Path) -> list[str]:
    """Fetch the client of a program for Node.js into an empty folder, and return its call."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found is None or npm is None:
        raise ClientMissing("Node.js or npm is missing")
    call = [
        npm,
        "install",
        "--no-save",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--prefix",
        str(folder),
        KAFKAJS,
    ]
    fetched = subprocess.run(call, capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        raise ClientMissing(f"{KAFKAJS} cannot be fetched: {fetched.stderr.strip()}")
    return [found, str(shutil.copy(program, folder))]

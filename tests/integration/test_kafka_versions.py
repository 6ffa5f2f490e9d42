"""Tests the oldest supported Kafka, and one in between; other tests run on the newest (``local_kafka/pom.xml``).

Each version runs the demo: init, records of every kind sent, released and rejected, and a router killed with SIGKILL in
the middle. The auditor counts the demo's closing line from the topics.
"""

import os
import subprocess
import sys
from contextlib import ExitStack
from typing import Final

from sidecar.dev import local_kafka
from sidecar.dev.local_kafka.maven import VERSION_VARIABLE
from tests.support.kafka_versions import older
from tests.support.paths import ROOT

CLOSING: Final = (
    "sent 24, released once 17, rejected 2, duplicated 0, early 0, lost 0, cancelled 1, replaced 1, moved 1, answered 2"
)
TIMEOUT_S: Final = 300


def demo(version: str) -> "subprocess.Popen[str]":
    # An engine would need images that may be missing here.
    own = {local_kafka.SERVERS_VARIABLE: "", "DOCKER_HOST": "unix:///nowhere", VERSION_VARIABLE: version}
    return subprocess.Popen(
        [sys.executable, "-m", "sidecar", "demo", "--orders", "6"],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_older_kafkas_deliver_exactly_once_over_a_crash(needs_own_nodes: None) -> None:
    with ExitStack() as stack:
        # All at once: a demo mostly waits for due times.
        demos = {version: stack.enter_context(demo(version)) for version in older()}
        for running in demos.values():
            stack.callback(running.kill)
        said = {version: running.communicate(timeout=TIMEOUT_S)[0] for version, running in demos.items()}
    closing = {version: (output.splitlines() or [""])[-1] for version, output in said.items()}
    assert closing == dict.fromkeys(older(), CLOSING), said


def test_readme_states_the_versions_that_are_tested() -> None:
    newest = local_kafka.kafka_version()
    stated = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Kafka {older()[0]} to {newest}" in stated
    assert all(version in stated for version in older())

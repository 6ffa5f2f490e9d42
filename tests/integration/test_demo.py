"""Tests of the demo as a user runs it: its output, its remains, and its end when it is interrupted."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from sidecar.dev import local_kafka

CLOSING = (
    "sent 30, released once 23, rejected 2, duplicated 0, early 0, lost 0, cancelled 1, replaced 1, moved 1, answered 2"
)


@contextmanager
def running_demo(environment: dict[str, str], *options: str) -> Iterator[subprocess.Popen[str]]:
    demo = subprocess.Popen(
        [sys.executable, "-m", "sidecar", "demo", *options],
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield demo
    finally:
        demo.kill()
        demo.communicate()


def wait_for(condition: Callable[[], bool], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def topics_of_demos(admin: AdminClient) -> list[str]:
    return [name for name in admin.list_topics(timeout=30).topics if name.startswith("demo-")]


def test_every_order_arrives_once_over_a_crash(
    kafka: local_kafka.Cluster, kafka_admin: AdminClient, tmp_path: Path
) -> None:
    given = {local_kafka.SERVERS_VARIABLE: kafka.bootstrap, "TMPDIR": str(tmp_path)}
    with running_demo(given, "--orders", "12") as demo:
        out, err = demo.communicate(timeout=150)
    assert demo.returncode == 0, out + err
    assert err == ""
    lines = out.splitlines()
    assert lines[-1] == CLOSING
    assert len(re.findall(r"^ +order \d+  deliver-.* arrived \S+  \d+ ms late$", out, re.MULTILINE)) == 15
    assert "rejected          MAX_DELAY_EXCEEDED: Exceeds max allowed delivery delay of 3600000 milliseconds" in out
    assert re.search(r"order 14  deliver-at tomorrow at noon +rejected +INVALID_SCHEDULE: ", out)
    for number, outcome in ((15, "cancelled"), (17, "replaced")):
        receipt = rf'order {number}  deliver-id .* {outcome} +receipt: {{.*"outcome": "{outcome}"'
        assert re.search(receipt, out), out
    failures = [f"order {number} failed in attempt {n} of 3" for number, n in ((22, 1), (23, 1), (23, 2), (23, 3))]
    assert [line for line in failures if line in out] == failures
    assert re.search(r"order 22  .* arrived \S+  \d+ ms late, handled in attempt 2$", out, re.MULTILINE)
    assert re.search(r"order 23  .*orders\.dlq  .* exhausted after 3 attempts$", out, re.MULTILINE), out
    killed, back = (
        next(place for place, line in enumerate(lines) if part in line) for part in ("SIGKILL", "ready again")
    )
    arrived = [place for place, line in enumerate(lines) if "ms late" in line]
    assert arrived[0] < killed < arrived[-1]
    assert killed < back
    assert list(tmp_path.iterdir()) == []
    wait_for(lambda: not topics_of_demos(kafka_admin))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_interrupted_it_leaves_no_process_and_no_directory(
    number: signal.Signals, needs_own_nodes: None, tmp_path: Path
) -> None:
    own = {local_kafka.SERVERS_VARIABLE: "", "DOCKER_HOST": "unix:///nowhere", "TMPDIR": str(tmp_path)}
    with running_demo(own, "--orders", "12") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "orders sent" in line:
                break
        children = psutil.Process(demo.pid).children(recursive=True)
        names = " ".join(" ".join(child.cmdline()) for child in children)
        assert "kafka.Kafka" in names
        assert "sidecar run" in names
        assert list(tmp_path.iterdir())
        demo.send_signal(number)
        _, err = demo.communicate(timeout=60)
        if number == signal.SIGKILL:
            wait_for(lambda: not any(child.is_running() for child in children), 20)
            wait_for(lambda: not list(tmp_path.iterdir()), 20)
        else:
            assert demo.returncode == 1
            assert err.splitlines()[-1] == "interrupted"
            assert "Traceback" not in err
    assert [child for child in children if child.is_running()] == []
    assert list(tmp_path.iterdir()) == []


def test_a_failure_shows_the_router_and_leaves_nothing(
    kafka: local_kafka.Cluster, kafka_admin: AdminClient, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = {
            local_kafka.SERVERS_VARIABLE: kafka.bootstrap,
            "TMPDIR": str(tmp_path),
            # The environment overrides the demo's file, so its router cannot listen and ends.
            "DELAY_ROUTER__HTTP__LISTEN": f"127.0.0.1:{taken.getsockname()[1]}",
        }
        with running_demo(given) as demo:
            out, err = demo.communicate(timeout=120)
    assert demo.returncode == 1, out
    first, second, *log = err.splitlines()
    assert re.fullmatch(r"the demo failed: the router ended with exit code \d", first)
    assert second == "the last lines of the router's log:"
    assert "127.0.0.1" in "\n".join(log)
    assert list(tmp_path.iterdir()) == []
    wait_for(lambda: not topics_of_demos(kafka_admin))


def test_without_any_kafka_one_line_says_what_to_install_or_set(tmp_path: Path) -> None:
    nothing = {
        local_kafka.SERVERS_VARIABLE: "",
        "DOCKER_HOST": "unix:///nowhere",
        "PATH": str(tmp_path),
        "JAVA_HOME": "",
        "HOME": str(tmp_path),
    }
    with running_demo(nothing) as demo:
        _, err = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert len(err.splitlines()) == 1
    assert "KAFKA_BOOTSTRAP_SERVERS" in err
    assert "Java 17" in err

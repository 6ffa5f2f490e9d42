"""Tests that Prometheus' own linter accepts the exported metrics, and that no useless ones are exported."""

import subprocess
from typing import Final

import pytest
from prometheus_client import generate_latest

from tests.helm import exported, tools

PROCESS: Final = ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds")


@pytest.fixture(scope="module")
def scraped() -> bytes:
    return generate_latest(exported.registry())


def _lint(scraped: bytes) -> "subprocess.CompletedProcess[bytes]":
    call = [tools.program("promtool"), "check", "metrics"]
    return subprocess.run(call, input=scraped, capture_output=True, timeout=60, check=False)


def test_promtool_finds_nothing(scraped: bytes) -> None:
    done = _lint(scraped)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_promtool_finds_a_label_of_histograms_elsewhere(scraped: bytes) -> None:
    done = _lint(scraped.replace(b'within="', b'le="'))
    assert done.returncode != 0
    assert b"delay_router_pending_by_due" in done.stdout + done.stderr


def test_there_is_the_process_and_no_second_sample_of_each_counter(scraped: bytes) -> None:
    names = {line.split(b" ")[0].split(b"{")[0].decode() for line in scraped.splitlines() if not line.startswith(b"#")}
    assert names.issuperset(PROCESS)
    assert [name for name in names if name.endswith("_created")] == []

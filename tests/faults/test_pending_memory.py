"""Tests millions of pending records in a process with the default memory of the chart."""

import re
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from sidecar.config.units import parse_size_bytes
from tests.faults.stage import FaultStage
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import TIMEOUT_S, wait_until
from tests.integration.stored_buckets import state

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

PENDING = 5_000_000
MIB = 1_048_576
VALUES = Path(__file__).parents[2] / "helm" / "delay-router" / "values.yaml"
SEALED_WITHIN_S = 900.0


def test_five_million_pending_records_are_sealed_within_the_memory_of_the_chart(lone: FaultStage) -> None:
    """Small records of one delay, which segments only point to: the process that seals them, and the next one."""
    out = lone.target()
    delay = lone.delay(default_target=out, placement="pointer")
    series = f'pending_records{{topic="{delay}"}}'
    with lone.router() as router:
        router.start_and_wait()
        _send_pending(lone, delay)
        wait_until(lambda: _is_sealed(lone, delay), "all are in buckets", SEALED_WITHIN_S)
        assert router.metric(series) == PENDING
        _is_within_the_limit(router)
        router.kill()
        router.start_and_wait()
        assert router.metric(series) == PENDING
        lone.send(delay, value=b"at once")
        assert [each.value for each in lone.wait_records(out, 1)] == [b"at once"]
        _is_within_the_limit(router)
        assert router.stop() == 0


def _send_pending(stage: FaultStage, delay: str) -> None:
    producer = Producer({**stage.kafka, "linger.ms": 20, "compression.type": "lz4"})
    headers: list[tuple[str, str | bytes | None]] = [("deliver-after", b"P7D")]
    for number in range(PENDING):
        while True:
            try:
                producer.produce(delay, b"%d" % number, partition=0, headers=headers)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    assert producer.flush(TIMEOUT_S) == 0


def _is_sealed(stage: FaultStage, delay: str) -> bool:
    found = state(stage, delay)
    return found.progress.sealed_to == PENDING and sum(each.entries for each in found.buckets) == PENDING


def _is_within_the_limit(router: RouterProcess) -> None:
    """Assert that the peak memory of the process stays below the limit of its container."""
    limit_mib = parse_size_bytes(f"{yaml.safe_load(VALUES.read_text())['resources']['limits']['memory']}B") // MIB
    status = Path(f"/proc/{router.pid}/status").read_text()
    most = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert most is not None
    most_mib = int(most[1]) * 1_024 // MIB
    print(f"at most {most_mib} MiB of {limit_mib} MiB")
    assert most_mib < limit_mib

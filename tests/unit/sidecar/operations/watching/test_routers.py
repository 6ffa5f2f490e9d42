"""The answer about the routers of a group, and the measurement of a process."""

import time
from pathlib import Path

import pytest

from sidecar import __version__
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.operations.status.reports import Reported, Vitals
from sidecar.operations.watching import vitals
from sidecar.operations.watching.routers import routers_answer
from sidecar.operations.watching.vitals import AGAIN_AFTER_S, VitalsProbe, memory_bytes
from tests.support.hand_clock import HandClock


def reported(topic: str, partition: int, instance: str) -> Reported:
    return Reported(PartitionStatus(topic, partition, PartitionState.ACTIVE, pending=5), instance, 1_000, 7)


def test_each_router_has_its_partitions_and_what_it_tells_of_itself() -> None:
    partitions = [reported("d", 2, "a"), reported("d", 0, "a"), reported("c", 1, "a"), reported("d", 1, "gone")]
    told = {"a": Vitals("0.2.0", "one", 5, 0.25, 7), "gone": Vitals("", "", None, None, None)}
    first, second = routers_answer(partitions, {"b": "", "a": "native"}, told).routers
    assert (first.instance, first.kernel, first.version, first.host) == ("a", "native", "0.2.0", "one")
    assert (first.since_ms, first.cpu_cores, first.memory_bytes) == (5, 0.25, 7)
    assert (first.partitions, first.pending) == ({"c": (1,), "d": (0, 2)}, 15)
    assert (second.instance, second.version, second.since_ms, second.partitions) == ("b", "", None, {})


def test_a_process_is_measured_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, used_s = HandClock(), 3.0
    monkeypatch.setattr(time, "process_time", lambda: used_s)
    probe = VitalsProbe(clock)
    since_ms = clock.now_ms()
    clock.go_on(2)
    used_s = 4.0
    first = probe.take()
    assert first[:4] == (__version__, first.host, since_ms, 0.5)
    assert (first.memory_bytes or 0) > 1_000_000
    clock.go_on(AGAIN_AFTER_S - 1)
    assert probe.take() is first
    clock.go_on(1)
    used_s = 5.0
    assert probe.take().cpu_cores == 1 / AGAIN_AFTER_S


def test_memory_is_told_where_the_system_has_no_file_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    present = memory_bytes()
    monkeypatch.setattr(vitals, "_STATM", Path("/nowhere"))
    assert memory_bytes() > 0.5 * present

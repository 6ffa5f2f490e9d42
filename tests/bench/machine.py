"""Describes the machine of the measurement."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka import libversion

from sidecar.dev.local_kafka.maven import kafka_version

CORES: Final = 2
"""The figures of the design are for two cores with the broker on them."""

GIB: Final = 1 << 30


def confine() -> None:
    """Keep this process and its children on two cores, if the machine has more and allows the choice."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


def cpu_s(process: psutil.Process) -> float:
    """Return the time of CPU that a process has used, in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


def describe(origin: str) -> dict[str, object]:
    """Return machine, versions and date; ``origin`` tells the origin of the broker."""
    return {
        "cpu": _cpu_model(),
        "cores_used": _usable_cores(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / GIB, 1),
        "python": platform.python_version(),
        "librdkafka": libversion()[0],
        # A given cluster does not tell its version to this client.
        "kafka": f"given ({origin})" if origin == "given" else kafka_version(),
        "system": platform.platform(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def line(machine: dict[str, object]) -> str:
    """Return the machine in one line."""
    return (
        f"{machine['cpu']}, {machine['cores_used']} of {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"Python {machine['python']}, librdkafka {machine['librdkafka']}, Kafka {machine['kafka']}, {machine['date']}"
    )


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for entry in cpuinfo.read_text().splitlines():
            name, _, value = entry.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()

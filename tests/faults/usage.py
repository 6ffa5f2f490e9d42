"""Samples memory, open files and threads of routers over a soak, and finds growth."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

import psutil

from tests.integration.router_process import RouterProcess

GROWTH_BYTES = 64 * 1_048_576
"""A leak: the minimum of the last third of a life exceeds the median of the first by this. A router that takes over
the partitions of an absent one needs some 25 files and 12 threads for each, for a while.
"""

GROWTH_COUNT = 20
FEWEST_SAMPLES = 120
"""Shorter lives say nothing about growth: for the last third of one, another router may be absent, and this one may
take its partitions over all the time. With a sample in 5 seconds, a third is at least 200 seconds."""


class Sample(NamedTuple):
    """The resources of a process at one moment."""

    resident_bytes: int
    files: int
    threads: int


class Usage:
    """Samples of each life of each router; a restart begins a new life."""

    def __init__(self) -> None:
        self._lives: defaultdict[tuple[str, int], list[Sample]] = defaultdict(list)

    def sample(self, routers: Iterable[RouterProcess]) -> None:
        """Sample the running routers."""
        for router in routers:
            if router.running:
                process = psutil.Process(router.pid)
                with process.oneshot():
                    now = Sample(process.memory_info().rss, process.num_fds(), process.num_threads())
                self.add(str(router.config), router.pid, now)

    def add(self, name: str, pid: int, sample: Sample) -> None:
        """Add one sample of a life."""
        self._lives[name, pid].append(sample)

    def complaints(self) -> list[str]:
        """Return a line for each life in which a resource grew."""
        found: list[str] = []
        for (name, pid), samples in self._lives.items():
            if len(samples) < FEWEST_SAMPLES:
                continue
            third = len(samples) // 3
            for field, most in zip(Sample._fields, (GROWTH_BYTES, GROWTH_COUNT, GROWTH_COUNT), strict=True):
                first = median(getattr(sample, field) for sample in samples[:third])
                last = min(getattr(sample, field) for sample in samples[-third:])
                if last - first > most:
                    found.append(f"{field} of {name} (pid {pid}) grew from {first:.0f} to {last}")
        return found

    def summary(self) -> str:
        """Return the peak of each resource, and the length of the longest life."""
        samples = [sample for life in self._lives.values() for sample in life]
        longest = max((len(life) for life in self._lives.values()), default=0)
        most = Sample(*(max(column) for column in zip(*samples, strict=True))) if samples else Sample(0, 0, 0)
        return (
            f"at most {most.resident_bytes / 1_048_576:.0f} MiB, {most.files} files and {most.threads} threads"
            f" a router; {len(self._lives)} lives, the longest of {longest} samples"
        )

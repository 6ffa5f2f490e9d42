"""Memory, open files and threads of routers over a soak, and whether they grew."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

import psutil

from tests.integration.router_process import RouterProcess

GROWTH_BYTES = 64 * 1_048_576
"""When even the least of the last third of a life is that much more than what was usual in the first, it has a leak.
What a router takes for partitions of another that is away, some 25 files and 12 threads for each, comes and goes."""

GROWTH_COUNT = 20
FEWEST_SAMPLES = 30
"""Processes that were killed sooner say nothing about growth."""


class Sample(NamedTuple):
    """What a process had at one moment."""

    resident_bytes: int
    files: int
    threads: int


class Usage:
    """Samples of each life of each router; a restart begins a new one."""

    def __init__(self) -> None:
        self._lives: defaultdict[tuple[str, int], list[Sample]] = defaultdict(list)

    def sample(self, routers: Iterable[RouterProcess]) -> None:
        """Look at those that run."""
        for router in routers:
            if router.running:
                process = psutil.Process(router.pid)
                with process.oneshot():
                    now = Sample(process.memory_info().rss, process.num_fds(), process.num_threads())
                self.add(str(router.config), router.pid, now)

    def add(self, name: str, pid: int, sample: Sample) -> None:
        """Take in one sample of this life."""
        self._lives[name, pid].append(sample)

    def complaints(self) -> list[str]:
        """A line for each life in which something grew."""
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
        """The most of each, and how long the longest life was looked at."""
        samples = [sample for life in self._lives.values() for sample in life]
        longest = max((len(life) for life in self._lives.values()), default=0)
        most = Sample(*(max(column) for column in zip(*samples, strict=True))) if samples else Sample(0, 0, 0)
        return (
            f"at most {most.resident_bytes / 1_048_576:.0f} MiB, {most.files} files and {most.threads} threads"
            f" a router; {len(self._lives)} lives, the longest of {longest} samples"
        )

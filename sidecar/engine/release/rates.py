"""Rate limits of targets: one token bucket for each target and process, shared by all partitions of the process.

A limit is for the whole group, and processes do not talk to each other. The share of a process is its share of the
partitions that may deliver to the target. Together the processes never pass the limit; under uneven load they use less
than the limit.

Rejected: a share for each partition, since uneven keys would leave most of the limit unused; and a shared counter,
since it needs a round trip for each batch and a rule for the time when it is away.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

BURST_S: Final = 0.25
"""The most that an idle target gets at once, in seconds of its rate; also bridges the time between transactions."""


@dataclass(frozen=True, slots=True)
class TargetLimit:
    """The limits of a target by its policy; 0 is no limit. ``sources`` are the delay topics that may deliver there."""

    records_per_second: int = 0
    bytes_per_second: int = 0
    paused: bool = False
    sources: tuple[str, ...] = ()


class _RateBucket:
    def __init__(self, now_s: float) -> None:
        self.records = self.size = 1.0
        self.filled_s = now_s


class RateLimits:
    """The buckets of a process; any thread may use them.

    ``now_s`` returns seconds that only go forward. ``lock`` makes the buckets safe to use from several threads.
    """

    def __init__(self, now_s: Callable[[], float], lock: AbstractContextManager[object]) -> None:
        self._now_s = now_s
        self._lock = lock
        self._buckets: dict[str, _RateBucket] = {}
        self._own: Counter[str] = Counter()
        self._partitions: dict[str, int] = {}

    def enter(self, topic: str) -> None:
        """Note that the process serves one more partition of this delay topic."""
        with self._lock:
            self._own[topic] += 1

    def leave(self, topic: str) -> None:
        """Note that the process serves one partition of this delay topic less."""
        with self._lock:
            self._own[topic] -= 1

    def learn(self, topic: str, partitions: int) -> None:
        """Note the number of partitions that a delay topic has in all."""
        with self._lock:
            self._partitions[topic] = partitions

    def share(self, limit: TargetLimit) -> float:
        """Return the share of a limit that this process may use, 0 to 1; 1 while the partitions are not known."""
        total = sum(self._partitions.get(topic, 0) for topic in limit.sources)
        own = sum(self._own[topic] for topic in limit.sources)
        return min(1.0, own / total) if total else 1.0

    def take(self, targets: Sequence[tuple[str, TargetLimit]], size_bytes: int) -> bool:
        """Take the tokens of a record from all targets, or from none if one has none left; say if they were taken."""
        with self._lock:
            buckets = [self._filled(target, limit) for target, limit in targets]
            for bucket, (_, limit) in zip(buckets, targets, strict=True):
                # Bytes may be overdrawn: the next record waits then, and a record above the burst can leave at all.
                if (limit.records_per_second and bucket.records < 1) or (limit.bytes_per_second and bucket.size <= 0):
                    return False
            for bucket in buckets:
                bucket.records -= 1
                bucket.size -= size_bytes
            return True

    def wait_s(self, targets: Sequence[tuple[str, TargetLimit]]) -> float:
        """Return the seconds until all of these targets may be given a record."""
        with self._lock:
            waits = [0.0]
            for target, limit in targets:
                bucket, share = self._filled(target, limit), max(self.share(limit), 1e-6)
                if limit.records_per_second:
                    waits.append((1 - bucket.records) / (limit.records_per_second * share))
                if limit.bytes_per_second:
                    waits.append((1 - bucket.size) / (limit.bytes_per_second * share))
            return max(waits)

    def _filled(self, target: str, limit: TargetLimit) -> _RateBucket:
        now_s = self._now_s()
        bucket = self._buckets.get(target)
        if bucket is None:
            bucket = self._buckets[target] = _RateBucket(now_s)
        passed_s, share = max(0.0, now_s - bucket.filled_s), self.share(limit)
        bucket.filled_s = now_s
        records, size = limit.records_per_second * share, limit.bytes_per_second * share
        bucket.records = min(bucket.records + passed_s * records, max(1.0, records * BURST_S))
        bucket.size = min(bucket.size + passed_s * size, max(1.0, size * BURST_S))
        return bucket

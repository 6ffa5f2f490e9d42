"""How much may go to a target: one token bucket a target and process, shared by all its partitions.

A limit is for the whole group, and processes do not talk to each other: each takes the part of it that it has of the
partitions which may deliver there. Together they never pass the limit; where the load is uneven, less than the limit is
used. Rejected: a part for each partition, which would leave most of it unused as soon as keys are uneven; and a shared
counter, which needs a round trip for each batch and an answer to what holds when it is away.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

BURST_S: Final = 0.25
"""What an idle target may be given at once, in seconds of its rate; also bridges the time between transactions."""


@dataclass(frozen=True, slots=True)
class TargetLimit:
    """What a policy says of a target; 0 is no limit. ``sources`` are the delay topics that may deliver there."""

    records_per_second: int = 0
    bytes_per_second: int = 0
    paused: bool = False
    sources: tuple[str, ...] = ()


class _Bucket:
    def __init__(self, now_s: float) -> None:
        self.records = self.size = 1.0
        self.filled_s = now_s


class RateLimits:
    """The buckets of a process; ``now_s`` are seconds that only go forward. ``lock`` makes them safe to use
    from any thread.
    """

    def __init__(self, now_s: Callable[[], float], lock: AbstractContextManager[object]) -> None:
        self._now_s = now_s
        self._lock = lock
        self._buckets: dict[str, _Bucket] = {}
        self._own: Counter[str] = Counter()
        self._partitions: dict[str, int] = {}

    def enter(self, topic: str) -> None:
        """A partition of this delay topic is served here from now on."""
        with self._lock:
            self._own[topic] += 1

    def leave(self, topic: str) -> None:
        """A partition of this delay topic is no longer served here."""
        with self._lock:
            self._own[topic] -= 1

    def learn(self, topic: str, partitions: int) -> None:
        """How many partitions a delay topic has in all."""
        with self._lock:
            self._partitions[topic] = partitions

    def share(self, limit: TargetLimit) -> float:
        """The part of a limit that is this process's."""
        total = sum(self._partitions.get(topic, 0) for topic in limit.sources)
        own = sum(self._own[topic] for topic in limit.sources)
        return min(1.0, own / total) if total else 1.0

    def take(self, targets: Sequence[tuple[str, TargetLimit]], size_bytes: int) -> bool:
        """Take a record's tokens of all targets, or of none when one of them has none left."""
        with self._lock:
            buckets = [self._filled(target, limit) for target, limit in targets]
            for bucket, (_, limit) in zip(buckets, targets, strict=True):
                # Bytes may be overdrawn: the next record then waits, and one larger than the burst leaves at all.
                if (limit.records_per_second and bucket.records < 1) or (limit.bytes_per_second and bucket.size <= 0):
                    return False
            for bucket in buckets:
                bucket.records -= 1
                bucket.size -= size_bytes
            return True

    def wait_s(self, targets: Sequence[tuple[str, TargetLimit]]) -> float:
        """How long until these may be given a record."""
        with self._lock:
            waits = [0.0]
            for target, limit in targets:
                bucket, share = self._filled(target, limit), max(self.share(limit), 1e-6)
                if limit.records_per_second:
                    waits.append((1 - bucket.records) / (limit.records_per_second * share))
                if limit.bytes_per_second:
                    waits.append((1 - bucket.size) / (limit.bytes_per_second * share))
            return max(waits)

    def _filled(self, target: str, limit: TargetLimit) -> _Bucket:
        now_s = self._now_s()
        bucket = self._buckets.get(target)
        if bucket is None:
            bucket = self._buckets[target] = _Bucket(now_s)
        passed_s, share = max(0.0, now_s - bucket.filled_s), self.share(limit)
        bucket.filled_s = now_s
        records, size = limit.records_per_second * share, limit.bytes_per_second * share
        bucket.records = min(bucket.records + passed_s * records, max(1.0, records * BURST_S))
        bucket.size = min(bucket.size + passed_s * size, max(1.0, size * BURST_S))
        return bucket

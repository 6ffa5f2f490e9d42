"""Computes how many processes, and how much memory, traffic, disk and threads a load takes.

Rates and bytes of a record were measured (BENCHMARKS.md, which a test compares); everything else follows from the
limits, rules and defaults that a router runs with.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from index.buckets.bucket import Placement, SegmentRef
from index.buckets.bucket_rules import count_segments, rewrites
from index.buckets.due_marks import MOST_MARKS, marks_of
from index.pending.progress import Position
from sidecar.cluster.topics.retention import DEFAULT_MAX_MESSAGE_BYTES, wanted_retention_ms
from sidecar.cluster.topics.topics import COMPACTED_SEGMENT_BYTES
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.librdkafka_keys import most_unpacked_bytes
from sidecar.config.model import RouterConfig
from sidecar.config.units import format_duration
from sidecar.engine.ownership.rounds import MS_PER_S, SHARED_BY
from sidecar.engine.release.transaction import SETTLE_S
from sidecar.operations.sizing.clients import connections, recommended_lanes, threads
from sidecar.operations.sizing.memory import ANY_CODEC, PARTITION_BYTES, PROCESS_BYTES, unpacked_bytes

DUE_A_SECOND: Final = 152_000
INCOMING_A_SECOND: Final = 194_000
OVERDUE_A_SECOND: Final = 209_000
"""Rates of one process: fixed delay, index + seal, catch-up."""

PENDING_BYTES: Final = 8
SCATTERED_BYTES: Final = 4.61
"""Bytes of a pending record in memory, its share of the manifests included, and in a snapshot with pointers."""

COLUMN_BYTES: Final = 30
"""Bytes of a record in an inline segment, beside its value."""

WHILE_MERGING: Final = 2
"""Copies of a segment on disk while the bucket that replaces it is written."""

WHILE_COMPACTING: Final = 2
"""Files of a state partition: brokers write to one, and have not compacted the one before."""

MOST_REPLICAS: Final = 3

COMMIT_S: Final = 0.004
"""The time of a transaction of one record on an idle broker."""

BROKER_TRANSACTIONS: Final = (200, 1_000)
"""Least and most transactions a second that a broker on two cores took."""

PROCESS_COMMITS: Final = 1_400
"""Commits of partitions a second that fill a process with many partitions, each with few records."""

MOST_PARTITIONS: Final = 300
"""The largest number of partitions of a process that was measured."""


@dataclass(frozen=True, slots=True)
class Load:
    """A steady load of one delay topic: as many records are due as come in; each counts as waiting ``delay_ms``."""

    rate_s: int
    delay_ms: int
    size_bytes: int
    partitions: int
    brokers: int

    @property
    def pending(self) -> int:
        """Records that wait at any moment."""
        return self.rate_s * self.delay_ms // MS_PER_S

    @property
    def replicas(self) -> int:
        """Copies of a record, its own included."""
        return min(self.brokers, MOST_REPLICAS)

    @property
    def inline_bytes(self) -> int:
        """Bytes of a record in an inline segment."""
        return self.size_bytes + COLUMN_BYTES

    def topic(self) -> DelayTopicConfig:
        """Return the delay topic as it is configured for this delay, everything else by default."""
        longest_ms = max(DelayTopicConfig.model_fields["max_delay_ms"].default, self.delay_ms)
        return DelayTopicConfig.model_validate({"name": "delay", "max_delay": format_duration(longest_ms)})


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Memory of a process at most, while one process is away."""

    payload_bytes: int
    process_bytes: int
    partitions_bytes: int
    index_bytes: int
    manifests_bytes: int
    fetch_bytes: int

    @property
    def total_bytes(self) -> int:
        """The sum, which is the limit of the container."""
        return (
            self.payload_bytes
            + self.process_bytes
            + self.partitions_bytes
            + self.index_bytes
            + self.manifests_bytes
            + self.fetch_bytes
        )


@dataclass(frozen=True, slots=True)
class BrokerTraffic:
    """Bytes a second of values, all brokers together, with the payload inline in snapshots."""

    written_bytes_s: int
    replicated_bytes_s: int
    read_bytes_s: int


@dataclass(frozen=True, slots=True)
class TransactionRates:
    """Transactions and their markers a second, all partitions together.

    ``markers_s`` holds for a target with the partitions and keys of the delay topic, ``scattered_markers_s`` for a
    target with as many partitions whose keys are placed in another way.
    """

    transactions_s: int
    markers_s: int
    scattered_markers_s: int

    @property
    def commits_s(self) -> int:
        """Commits of partitions, each of which marks the state and one partition of the target."""
        return self.markers_s // 2


@dataclass(frozen=True, slots=True)
class DiskNeed:
    """Disk of all brokers, replicas included."""

    delay_topic_kept_ms: int
    delay_topic_bytes: int
    pointer_snapshots_bytes: int
    inline_snapshots_bytes: int
    state_bytes: int


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """All that a load takes; memory, lanes, threads and connections are of a process while another one is away."""

    pending: int
    processes: int
    partitions_each: int
    partitions_at_most: int
    memory: MemoryNeed
    traffic: BrokerTraffic
    transactions: TransactionRates
    disk: DiskNeed
    lanes: int
    threads: int
    connections: int
    remarks: tuple[str, ...]


def plan(load: Load) -> CapacityPlan:
    """Return everything that a load takes, by the defaults of the configuration."""
    count = processes(load.rate_s)
    at_most = math.ceil(load.partitions / (count - 1))
    lanes = recommended_lanes(at_most)
    transactions = _transactions(load, count * lanes)
    return CapacityPlan(
        pending=load.pending,
        processes=count,
        partitions_each=math.ceil(load.partitions / count),
        partitions_at_most=at_most,
        memory=memory(load, at_most),
        traffic=_traffic(load),
        transactions=transactions,
        disk=disk(load),
        lanes=lanes,
        threads=threads(at_most, lanes, load.brokers),
        connections=connections(at_most, lanes, load.brokers),
        remarks=tuple(_remarks(load, count, at_most, lanes, transactions)),
    )


def processes(rate_s: int) -> int:
    """Return how many processes a rate of due and incoming records takes, with one to fail."""
    return math.ceil(max(rate_s / DUE_A_SECOND, rate_s / INCOMING_A_SECOND) * 2) + 1


def catch_up_s(outage_s: float, rate_s: float) -> float:
    """Return how long a process with this rate takes to release the records that became due in an outage."""
    return outage_s * rate_s / (OVERDUE_A_SECOND - rate_s)


def memory(load: Load, partitions: int) -> MemoryNeed:
    """Return the memory of a process that has so many partitions, with the largest fetch of a topic by default."""
    own_pending = load.pending * partitions // load.partitions
    manifests = _manifests_bytes(load, partitions)
    return MemoryNeed(
        payload_bytes=RouterConfig().payload_memory_bytes,
        process_bytes=PROCESS_BYTES,
        partitions_bytes=PARTITION_BYTES * partitions,
        index_bytes=max(PENDING_BYTES * own_pending - manifests, 0),
        manifests_bytes=manifests,
        fetch_bytes=unpacked_bytes(DEFAULT_MAX_MESSAGE_BYTES, ANY_CODEC, most_unpacked_bytes({})),
    )


def disk(load: Load) -> DiskNeed:
    """Return the disk of all brokers; snapshots are nothing where records leave before any is sealed."""
    kept_ms = wanted_retention_ms(load.topic())
    stored = load.pending * WHILE_MERGING * load.replicas if _is_sealed(load) else 0
    return DiskNeed(
        delay_topic_kept_ms=kept_ms,
        delay_topic_bytes=delay_topic_bytes(load, kept_ms),
        pointer_snapshots_bytes=round(stored * SCATTERED_BYTES),
        inline_snapshots_bytes=stored * load.inline_bytes,
        state_bytes=load.partitions * load.replicas * WHILE_COMPACTING * COMPACTED_SEGMENT_BYTES,
    )


def delay_topic_bytes(load: Load, kept_ms: int) -> int:
    """Return the disk of a delay topic that keeps its records so long."""
    return load.rate_s * load.size_bytes * kept_ms // MS_PER_S * load.replicas


def _is_sealed(load: Load) -> bool:
    return load.delay_ms > load.topic().seal_beyond_ms


def _seals(load: Load) -> float:
    """Return how many buckets of a partition are sealed within the longest delay."""
    if not _is_sealed(load):
        return 0
    topic = load.topic()
    every_ms = min(topic.seal_age_ms, topic.seal_records * MS_PER_S * load.partitions / load.rate_s)
    return max(load.delay_ms / every_ms, 1)


def _manifests_bytes(load: Load, partitions: int) -> int:
    """Return the memory of the manifests of so many partitions."""
    topic = load.topic()
    buckets = math.ceil(min(_seals(load), topic.max_buckets))
    entries = load.pending // load.partitions // max(buckets, 1)
    if not entries:
        return 0
    segments = count_segments(entries, load.delay_ms, topic.seal_rules, load.inline_bytes)
    dues_ms = range(0, load.delay_ms, max(load.delay_ms * segments // entries, 1))[: math.ceil(entries / segments)]
    marks = marks_of(dues_ms)
    # A manifest has room for a limited number of marks.
    marks = marks._replace(at_ms=marks.at_ms[: MOST_MARKS // segments])
    place = Position(load.delay_ms, entries)
    ref = SegmentRef(place, Position(*place), entries, topic.segment_bytes, entries, Placement.INLINE, dues=marks)
    return partitions * buckets * segments * _held_bytes(ref)


def _held_bytes(value: object) -> int:
    """Return the memory of a tuple with all that is in it."""
    return sys.getsizeof(value) + (sum(map(_held_bytes, value)) if isinstance(value, tuple) else 0)


def _traffic(load: Load) -> BrokerTraffic:
    values_s = load.rate_s * load.size_bytes
    segments_s = load.rate_s * load.inline_bytes if _is_sealed(load) else 0
    merged_s = round(segments_s * rewrites(_seals(load), load.topic().max_buckets))
    # Producers write a value to the delay topic, the router writes it to the target, and each is read once.
    written_bytes_s = 2 * values_s + segments_s + merged_s
    return BrokerTraffic(written_bytes_s, written_bytes_s * (load.replicas - 1), written_bytes_s)


def _transactions(load: Load, lanes: int) -> TransactionRates:
    """Return the rates of all processes together, which have so many lanes, or none."""
    partition_s = load.rate_s / load.partitions
    quick_s = SETTLE_S + COMMIT_S
    tick_s = max(RouterConfig().tick_ms / MS_PER_S, quick_s)
    # After a batch of many records the next one gets a tick to fill.
    each_s = 1 / tick_s if partition_s * tick_s >= SHARED_BY else min(partition_s, 1 / quick_s)
    commits_s = math.ceil(each_s * load.partitions)
    transactions_s = min(commits_s, math.ceil(lanes / quick_s)) if lanes else commits_s
    targets = min(math.ceil(load.rate_s / transactions_s), load.partitions)
    # A transaction of a lane marks the state and the target of each partition that it commits.
    return TransactionRates(transactions_s, 2 * commits_s, commits_s + targets * transactions_s)


def _remarks(load: Load, count: int, at_most: int, lanes: int, rates: TransactionRates) -> Iterator[str]:
    """Yield remarks; ``at_most`` is the number of partitions of a process while another one is away."""
    if load.partitions < count:
        yield f"a partition has one process: of {count} processes only {load.partitions} work, the others stand by"
    if at_most > MOST_PARTITIONS:
        yield f"no process with more than {MOST_PARTITIONS} partitions was measured: run more processes"
    elif rates.commits_s * at_most > PROCESS_COMMITS * load.partitions:
        yield (
            f"a process commits for some {PROCESS_COMMITS:,} partitions a second, and {at_most} partitions ask for"
            " more: records leave later, at p99 by some hundred milliseconds; have fewer partitions, or more processes"
        )
    least, most = (each * load.brokers for each in BROKER_TRANSACTIONS)
    if rates.transactions_s > least and not lanes:
        yield (
            f"so many brokers, each on two cores, take {least:,} to {most:,} transactions a second; with more, records"
            " leave up to seconds late: have fewer partitions, or let them share transactions (router.lanes)"
        )
    if rates.scattered_markers_s > rates.markers_s:
        yield "give the target as many partitions as the delay topic, with the same keys: fewer markers"
    if load.size_bytes > DEFAULT_MAX_MESSAGE_BYTES:
        yield f"brokers refuse records over {DEFAULT_MAX_MESSAGE_BYTES:,} B by default: raise max.message.bytes"
    elif load.inline_bytes > load.topic().segment_bytes:
        yield "records larger than segment_bytes stay in the delay topic, and are read again when they are due"

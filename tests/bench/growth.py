"""Measures many partitions in one process: memory and threads at rest, and lateness and restart under a load."""

import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import compress
from operator import sub
from typing import Any, Final, NamedTuple

import psutil
from confluent_kafka import Consumer, KafkaError, TopicPartition

from sidecar.dev.local_kafka import BENCH_JVM, cluster
from tests.bench import router, workload
from tests.bench.context import Context
from tests.bench.machine import cpu_s
from tests.bench.released import CHUNK, CONSUMER, Lateness, lateness_between
from tests.bench.results import MIB, BenchmarkFailed, Goal, Row, at_most

PER_PARTITION: Final = 50
"""Records that fall due in each second in each partition."""

BUSY: Final = 100, 200
"""The number of partitions, and of records a second in each, of the run with the highest rate."""

BUSY_MIB: Final = 400.0
"""Most memory of the process in that run."""

LEAD_S: Final = 20
"""Time from the first write to the first due time: the records are written, and indexed, by then."""

WARM_S: Final = 30
"""Time under the load before the measurement begins. The broker compiles its code for many partitions meanwhile: on two
cores p99 is three times as high in the first ten seconds."""

AT_REST_S: Final = 5
"""Time from the last active partition to the look at a process without records."""

READ_TIMEOUT_S: Final = 60.0
RESTART_S: Final = 5.0
"""Time that a restart may take, from the start of the process to the last active partition."""

LANES: Final = 2
"""The number of lanes in the runs with lanes."""

GOALS: Final[dict[tuple[int, int], tuple[int, int]]] = {(100, PER_PARTITION): (15, 60), BUSY: (25, 100)}
"""Lateness in ms that may not be exceeded in lanes, as p50 and p99, by the number of partitions and their rate."""


class Size(NamedTuple):
    """The memory and the threads of a process at one moment."""

    resident_mib: float
    threads: int

    def __str__(self) -> str:
        return f"{self.resident_mib:.0f} MiB, {self.threads} threads"


class Load(NamedTuple):
    """The result of one run."""

    lateness: Lateness
    transactions_per_s: float
    cpu_share: float
    rest: Size
    busy: Size
    restart_s: float

    @property
    def detail(self) -> str:
        """The cost of the process in words."""
        return (
            f"{self.transactions_per_s:.0f} commits/s of partitions, {self.cpu_share:.0%} of a core, {self.busy};"
            f" at rest before it {self.rest}"
        )


def growth(context: Context) -> Iterator[Row]:
    """Measure processes of different size, each partition with the same rate, with lanes and without them."""
    for count in context.sizes.growing:
        for lanes in (LANES, 0) if count > LANES else (0,):
            load = _load(context, count, lanes, PER_PARTITION)
            name = f"{count} partitions x {PER_PARTITION}/s" + (f", {lanes} lanes" if lanes else "")
            yield from _rows(name, load, _goals(count, lanes, PER_PARTITION))
            yield _restart(name, load)
    count, per_s = BUSY
    if count in context.sizes.growing:
        load = _load(context, count, LANES, per_s)
        name = f"{count} partitions x {per_s}/s, {LANES} lanes"
        yield from _rows(name, load, _goals(count, LANES, per_s))
        yield Row("growth", f"{name}: memory", load.busy.resident_mib, "MiB", goal=at_most(BUSY_MIB))


def replicated(context: Context) -> Iterator[Row]:
    """Measure many partitions in lanes on three brokers of their own, with a replica of each topic on every broker."""
    count = many(context)
    with cluster(3, own_nodes=True, jvm=BENCH_JVM) as kafka:
        load = _load(replace(context, bootstrap=kafka.bootstrap), count, LANES, PER_PARTITION)
    name = f"{count} partitions x {PER_PARTITION}/s, {LANES} lanes, three brokers"
    yield from _rows(name, load, (None, None))
    yield Row("growth", f"{name}: memory", load.busy.resident_mib, "MiB")
    yield Row("growth", f"{name}: threads", load.busy.threads, "threads")
    yield _restart(name, load)


def many(context: Context) -> int:
    """Return the number of partitions that the benchmarks with a goal have: 100, or fewer in a quick run."""
    return min(BUSY[0], max(context.sizes.growing))


def _restart(name: str, load: Load) -> Row:
    what = f"{name}: from kill -9 and start to the last active partition"
    return Row("growth", what, load.restart_s, "s", goal=at_most(RESTART_S))


def _rows(name: str, load: Load, goals: tuple[Goal | None, Goal | None]) -> Iterator[Row]:
    for percent, goal in zip((50, 99), goals, strict=True):
        late_ms = load.lateness.percentile(percent)
        yield Row("growth", f"{name}: p{percent}", late_ms, "ms", goal=goal, detail=load.detail)


def _goals(count: int, lanes: int, rate: int) -> tuple[Goal | None, Goal | None]:
    if (count, rate) not in GOALS or not lanes:
        return None, None
    p50_ms, p99_ms = GOALS[count, rate]
    return at_most(p50_ms), at_most(p99_ms)


def _load(context: Context, count: int, lanes: int, rate: int) -> Load:
    # A member with a name gets its partitions back at its start, so the restart includes no wait for the group.
    settings = {"lanes": lanes, "instance_id": "one"}
    with router.running(context.bootstrap, partitions=count, router=settings) as running:
        time.sleep(AT_REST_S)
        process = psutil.Process(running.process.pid)
        rest = _size(process)
        seconds, per_s = context.sizes.growing_s, rate * count
        warm_ms = workload.now_ms() + LEAD_S * 1_000
        first_ms, records = warm_ms + WARM_S * 1_000, per_s * (WARM_S + seconds)
        between_ms = [warm_ms, first_ms + seconds * 1_000]
        fill(context, running.delay_topic, running.target, between_ms, range(count), records)
        workload.sleep_until(first_ms)
        began, used_s = running.metric("delay_router_transactions_total"), cpu_s(process)
        workload.sleep_until(first_ms + seconds * 1_000)
        commits = (running.metric("delay_router_transactions_total") - began) / seconds
        share = (cpu_s(process) - used_s) / seconds
        busy = _size(process)
        lateness = read(context, running.target, records, first_ms)
        running.process.kill()
        started_ms = running.start()
        restart_s = (workload.now_ms() - started_ms) / 1_000
    return Load(lateness, commits, share, rest, busy, restart_s)


def fill(
    context: Context, topic: str, target: str, between_ms: Sequence[int], partitions: Sequence[int], records: int
) -> None:
    """Write records to these partitions in turn, with random due times between the first and the second one."""
    producer = workload.ordered_producer(context.bootstrap, workload.FILL_LINGER_MS)
    for number in range(records):
        headers = workload.headers(context.random.randint(*between_ms), target)
        workload.produce(producer, topic, headers, partitions[number % len(partitions)])
    workload.flush(producer)


def read(context: Context, target: str, expected: int, first_ms: int, left_out: str | None = None) -> Lateness:
    """Read the target to its end, and return the lateness of the records due from ``first_ms`` on.

    Records of the delay partition ``left_out`` ("topic/partition") are counted, but their lateness is left out. Raise
    BenchmarkFailed if any record is lost, doubled or early.
    """
    consumer = Consumer({"bootstrap.servers": context.bootstrap, **CONSUMER})
    consumer.assign([TopicPartition(target, 0, 0)])
    due_ms, appended_ms, sources, is_at_end = array("q"), array("q"), list[bytes](), False
    until_s = time.monotonic() + READ_TIMEOUT_S
    while (len(due_ms) < expected or not is_at_end) and time.monotonic() < until_s:
        for message in consumer.consume(CHUNK, 0.05):
            error = message.error()
            is_at_end = error is not None
            if error is None:
                headers: Any = dict(message.headers() or [])
                sources.append(headers["delay-source"])
                due_ms.append(int(headers["delay-due"]))
                appended_ms.append(message.timestamp()[1])
            elif error.code() != KafkaError._PARTITION_EOF:
                raise BenchmarkFailed(f"{target}: {error}")
    consumer.close()
    different = len({*sources})
    if len(due_ms) != expected or different != expected:
        raise BenchmarkFailed(f"{expected} records were sent, {len(due_ms)} released, {different} different ones")
    early_ms = max(map(sub, due_ms, appended_ms))
    if early_ms > 0:
        raise BenchmarkFailed(f"released {early_ms} ms before it was due")
    if left_out is not None:
        kept = [not source.startswith(f"{left_out}/".encode()) for source in sources]
        due_ms, appended_ms = array("q", compress(due_ms, kept)), array("q", compress(appended_ms, kept))
    return lateness_between(due_ms, appended_ms, first_ms, max(due_ms))


def _size(process: psutil.Process) -> Size:
    return Size(process.memory_info().rss / MIB, process.num_threads())

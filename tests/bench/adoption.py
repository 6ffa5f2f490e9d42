"""Measures how soon a router that is catching up with a long log adopts the buckets staged for it.

The staged buckets are the ones that ``index`` would stage for the same log, in its default size, but without Spark. The
segments are pointers of minimal size, and an adoption reads none of them. The router has begun to index the log by
itself when the manifests are committed, so it has to seal its own entries first.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import psutil
from confluent_kafka import Producer

from index.buckets.bucket import Manifest
from snapshots.state.staged import StagedBucket, encode_staged, staged_key
from spark_backfill import cluster, settings
from spark_backfill.buckets.plan import buckets_of
from spark_backfill.build.index_job import Options
from spark_backfill.source import OffsetRange
from tests.bench import adoption_segments, child, router, scatter, workload
from tests.bench.context import Context
from tests.bench.machine import cpu_s
from tests.bench.results import BenchmarkFailed, Row, at_most
from tests.bench.router import Router

JOB: Final = "adoption"
GOAL_S: Final = 3.0
GOAL_RECORDS: Final = 10_000_000
LEAD_MS: Final = 1_800_000
"""The time to the first due record, longer than the measurement."""

BEGUN_RECORDS: Final = 200_000
"""The number of records in the router's memory or buckets when the buckets are staged; fewer for a short log."""

STAGING_TIMEOUT_S: Final = 600.0
WRITERS: Final = 2
"""The number of processes that write segments at the same time."""

TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.02


def run(context: Context, sizes: Iterable[int]) -> Iterator[Row]:
    """Stage each number of entries for a running router, and wait until it has adopted them."""
    for count in sizes:
        context.say(f"measuring adoption of {count:,} staged entries ...")
        with router.prepared(context.bootstrap) as made:
            staged = stage(context, made, count, LEAD_MS, scatter.HOUR_MS)
            made.start()
            steps_s, detail = adopt(context, made, staged)
        yield Row(
            "spark adoption",
            f"{count:,} staged entries, {len(staged)} buckets",
            steps_s[-1],
            "s",
            goal=at_most(GOAL_S) if count == GOAL_RECORDS else None,
            detail=detail,
        )


def adopt(context: Context, made: Router, staged: Sequence[StagedBucket]) -> tuple[Sequence[float], str]:
    """Hand staged buckets to a router that indexes their log. Return the time until it has adopted each, and details.

    The times are in s and begin with the commit of the manifests.
    """
    count = staged[-1].manifest.to_offset
    producer = Producer(workload.QUIET | {"bootstrap.servers": context.bootstrap, "transactional.id": made.delay_topic})
    producer.init_transactions(workload.REQUEST_TIMEOUT_S)
    begun = min(BEGUN_RECORDS, count // 10)
    made.wait_standing("begun", lambda at: at.pending >= begun, workload.now_ms() + int(TIMEOUT_S * 1_000))
    before, used_s = made.standing(), _cpu_s(made)
    committed_s = _commit(producer, made, staged)
    steps_s = [_wait_cursor(made, each.manifest.to_offset) - committed_s for each in staged]
    used_s = _cpu_s(made) - used_s
    adopted, pending = _adopted_count(made), made.pending()
    if adopted != len(staged) or pending < count:
        raise BenchmarkFailed(f"{adopted} of {len(staged)} buckets were adopted, {pending:,} records are pending")
    segments = sum(len(each.manifest.segments) for each in staged)
    return steps_s, (
        f"{segments:,} segments; C at {before.cursor:,}, S at {before.sealed_to:,} when they were staged; adopted"
        f" after {', '.join(f'{step_s:.2f}' for step_s in steps_s)} s, {used_s:.2f} s of a core"
    )


def _cpu_s(made: Router) -> float:
    """Return the CPU time in s that the router has used."""
    return cpu_s(psutil.Process(made.process.pid))


def _adopted_count(made: Router) -> int:
    """Return the number of buckets that the router reports as adopted."""
    _, text = made.process.http("/metrics")
    lines = (line for line in text.splitlines() if line.startswith("delay_router_backfills_total{"))
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if 'outcome="adopted"' in line)


def stage(context: Context, made: Router, count: int, lead_ms: int, spread_ms: int) -> list[StagedBucket]:
    """Write the log, and the segments of the buckets for it. Return the buckets; their manifests are not written yet.

    The first record is due ``lead_ms`` from now on, and the last one ``spread_ms`` later.
    """
    configured = settings.load(made.process.config, {})
    topic = configured.delay_topic(made.delay_topic)
    topic_id = cluster.topic(cluster.connect(configured), topic.name).topic_id
    first_ms = workload.now_ms() + lead_ms
    began_s = time.monotonic()
    buckets = buckets_of([OffsetRange(0, 0, count)], Options().bucket_records)
    write_segments = partial(
        child.run,
        "tests.bench.adoption_segments",
        STAGING_TIMEOUT_S,
        bootstrap=context.bootstrap,
        topic=topic.snapshots,
        job=JOB,
        first_ms=first_ms,
        spread_ms=spread_ms,
    )
    with ThreadPoolExecutor(WRITERS) as pool:
        writers = [pool.submit(write_segments, start=each.from_offset, end=each.to_offset) for each in buckets]
        due_ms = partial(adoption_segments.due_ms, first_ms=first_ms, spread_ms=spread_ms)
        workload.fill(context.bootstrap, topic.name, count, lambda at: workload.headers(due_ms(at), made.target))
        told = [writer.result() for writer in writers]
    context.say(f"{count:,} records and their segments written in {time.monotonic() - began_s:.0f} s")
    manifests = [
        Manifest(0, bucket.from_offset, bucket.to_offset, bucket.from_offset, adoption_segments.refs_of(each))
        for bucket, each in zip(buckets, told, strict=True)
    ]
    return [StagedBucket(JOB, topic_id, topic.rules, manifest, restores=False) for manifest in manifests]


def _commit(producer: Producer, made: Router, staged: Sequence[StagedBucket]) -> float:
    """Commit the manifests as the job does. Return the start of the commit by the monotonic clock in s."""
    producer.begin_transaction()
    for each in staged:
        key = staged_key(JOB, each.manifest.from_offset)
        producer.produce(f"{made.delay_topic}.delay-backfill", encode_staged(each), key, 0)
    workload.flush(producer)
    committed_s = time.monotonic()
    producer.commit_transaction(workload.REQUEST_TIMEOUT_S)
    return committed_s


def _wait_cursor(made: Router, offset: int) -> float:
    """Wait until the committed cursor has reached an offset. Return the time by the monotonic clock in s."""
    until_s = time.monotonic() + TIMEOUT_S
    while (standing := made.standing()).cursor < offset:
        if time.monotonic() > until_s:
            raise BenchmarkFailed(f"the buckets were not adopted in {TIMEOUT_S:.0f} s: {standing}")
        time.sleep(POLL_S)
    return time.monotonic()

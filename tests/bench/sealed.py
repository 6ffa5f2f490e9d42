"""Measures indexing and sealing: the rate, and the size of the stored buckets."""

from collections.abc import Iterable, Iterator
from typing import Final

from snapshots.segments.manifest import MANIFEST_PREFIX, decode_manifest
from tests.bench import router, scatter, workload
from tests.bench.compacted import contents
from tests.bench.context import Context
from tests.bench.results import Row, at_least, at_most

TIMEOUT_MS: Final = 300_000
SEAL_RECORDS: Final = 200_000
"""The default of ``seal_records``."""

POINTER_BYTES: Final = 6

FIXED_RATE_PER_MS: Final = 20


def index_and_seal(context: Context) -> Iterator[Row]:
    """Measure from the first start of a router until all is indexed, and all but less than a bucket is sealed.

    The rate counts the records sealed by then: the others wait in memory for more to come, and are sealed by age.
    """
    count = context.sizes.sealed_records
    with router.prepared(context.bootstrap) as made:
        first_ms = workload.now_ms() + scatter.HOUR_MS
        scatter.write(context, made, scatter.due_times(context, count, first_ms, scatter.HOUR_MS))
        made.start()
        began_ms = workload.now_ms()
        made.wait_standing("indexed", lambda at: at.pending >= count, began_ms + TIMEOUT_MS, context.say)
        indexed_ms = workload.now_ms()
        standing = made.wait_standing(
            "sealed",
            lambda at: at.cursor >= count and at.sealed_to > count - SEAL_RECORDS,
            began_ms + TIMEOUT_MS,
            context.say,
        )
        elapsed_ms = workload.now_ms() - began_ms
        seals, sealing_s = (made.metric(f"delay_router_seal_seconds_{name}") for name in ("count", "sum"))
    rate_per_s = standing.sealed_to * 1_000 / elapsed_ms
    yield Row(
        "index",
        f"{count // 1000} k scattered, indexed and sealed",
        rate_per_s,
        "records/s",
        context.of_consume(rate_per_s),
        "raw consume",
        at_least(0.3),
        f"{standing.sealed_to:,} sealed in {elapsed_ms} ms; all indexed after {indexed_ms - began_ms} ms; "
        f"{seals:.0f} seals, {sealing_s:.1f} s in all",
    )


def snapshot_bytes(context: Context) -> Iterator[Row]:
    """Measure the size of buckets with pointers in the snapshots topic, manifests included."""
    count = context.sizes.snapshot_records
    first_ms = workload.now_ms() + scatter.HOUR_MS
    fixed = (first_ms + number // FIXED_RATE_PER_MS for number in range(count))
    scattered = scatter.due_times(context, count, first_ms, scatter.HOUR_MS)
    for what, due_times_ms in (
        (f"fixed delay at {FIXED_RATE_PER_MS} k/s", fixed),
        ("scattered over an hour", scattered),
    ):
        size_bytes, entries = _sizes(context, count, due_times_ms)
        yield Row(
            "snapshots",
            f"a pending record, pointer, {what}",
            size_bytes / entries,
            "B",
            goal=at_most(POINTER_BYTES),
            detail=f"{size_bytes:,} B of segments and manifests for {entries:,} records",
        )


def _sizes(context: Context, count: int, due_times_ms: Iterable[int]) -> tuple[int, int]:
    # The bucket has its full size; a bucket sealed by age could have any size.
    bucket = min(count, SEAL_RECORDS)
    topic = {"placement": "pointer", "seal_records": bucket, "seal_age": "1h"}
    with router.running(context.bootstrap, topic=topic) as running:
        due_in_order = iter(due_times_ms)
        workload.fill(
            context.bootstrap,
            running.delay_topic,
            count,
            lambda _: workload.headers(next(due_in_order), running.target),
        )
        until_ms = workload.now_ms() + TIMEOUT_MS
        running.wait_standing(
            "sealed", lambda at: at.cursor >= count and at.sealed_to > count - bucket, until_ms, context.say
        )
        running.process.stop()
        state = contents(context.bootstrap, f"{running.delay_topic}.delay-state")
        manifests = {key: value for key, value in state.items() if key.startswith(MANIFEST_PREFIX)}
        segments = contents(context.bootstrap, f"{running.delay_topic}.delay-snapshots")
    entries = sum(decode_manifest(key, value).entries for key, value in manifests.items())
    stored = [*manifests.items(), *segments.items()]
    return sum(len(key) + len(value) for key, value in stored), entries

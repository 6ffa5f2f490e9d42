"""Records that become many segments: more buckets, or a refusal that names the remedy."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from index.buckets.bucket import Placement, SegmentRef
from index.buckets.bucket_rules import SealRules, cut
from index.pending.pending import Entry
from index.pending.progress import Position
from index.rules.rules import Rules
from spark_backfill.buckets import sink, staging
from spark_backfill.buckets.job import Job
from spark_backfill.buckets.plan import BucketRange, Slots, buckets_of, segments_of
from spark_backfill.buckets.sampling import Sampled
from spark_backfill.build import index_job
from spark_backfill.build.index_job import MOST_SEGMENTS, Options
from spark_backfill.errors import JobError
from spark_backfill.settings import Settings
from spark_backfill.source import OffsetRange

SEAL = SealRules(time_step_ms=60_000, segment_entries=500, segment_bytes=100_000, placement="inline")
RULES = Rules("d", default_target="t")
SETTINGS = Settings({"bootstrap.servers": "b:1"}, "g", (), "test")


@pytest.mark.parametrize("spread_ms", [1_000, 3_600_000, 400_000_000])
@pytest.mark.parametrize("most_bytes", [50, 5_000, 150_000])
def test_the_estimate_is_near_what_is_cut(rng: random.Random, spread_ms: int, most_bytes: int) -> None:
    count = 20_000
    entries: list[Entry[int]] = sorted(
        (rng.randrange(spread_ms), offset, rng.randrange(24, most_bytes)) for offset in range(count)
    )
    found = sum(1 for _ in cut([entries], SEAL, lambda size: size))
    seen = rng.sample(entries, 500)
    estimate = segments_of(count, [due_ms for due_ms, _, _ in seen], [size for _, _, size in seen], SEAL)
    assert found / 2 <= estimate <= found * 2 + 2, (estimate, found)


def test_nothing_seen_is_nothing_to_cut() -> None:
    assert segments_of(100, [], [], SEAL) == 0


def divided(monkeypatch: pytest.MonkeyPatch, span: int, size_bytes: int, rules: SealRules = SEAL) -> Slots:
    """Divide a range of records of one size."""

    def sample(
        settings: object, rules: object, buckets: Sequence[BucketRange], slot_records: int
    ) -> Mapping[BucketRange, list[Sampled]]:
        del settings, rules, slot_records
        return {bucket: [Sampled(Position(due_ms, 0), size_bytes) for due_ms in range(10)] for bucket in buckets}

    monkeypatch.setattr(index_job, "sample", sample)
    return index_job.divided(SETTINGS, RULES, [OffsetRange(0, 0, span)], Options(), rules)


@pytest.mark.parametrize("size_bytes", [30, 2_000, 30_000, 99_000, 5_000_000])
def test_large_records_are_divided_into_more_buckets(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    span = 2_000_000
    buckets = divided(monkeypatch, span, size_bytes).buckets
    assert buckets[0].from_offset == 0
    assert buckets[-1].to_offset == span
    a_segment = min(SEAL.segment_entries, max(1, SEAL.segment_bytes // size_bytes))
    assert max(bucket.span for bucket in buckets) / a_segment <= MOST_SEGMENTS
    assert len(buckets) <= 4 * span / a_segment / MOST_SEGMENTS + 1, "and not into more than it takes"


def test_pointers_take_no_more_segments_for_large_records(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(divided(monkeypatch, 2_000_000, 99_000, replace(SEAL, placement="pointer")).buckets) == 1


def job(span: int) -> Job:
    buckets = tuple(buckets_of([OffsetRange(3, 0, span)], span))
    return Job(
        name="index", run="r", kafka={}, group_id="g", delay_topic="d", delay_topic_id="i", snapshots="d.s",
        backfill="d.b", rules_json=RULES.to_json(), seal_rules=SEAL, slots=Slots(buckets, ((),)), slot_keys=(0,),
        restores=False, report="",
    )  # fmt: skip


def test_too_many_for_a_manifest_is_refused_before_anything_is_staged() -> None:
    ref = SegmentRef(Position(1, 1), Position(1, 1), 1, 1, 1, Placement.INLINE)
    with pytest.raises(JobError, match=r"d/3: offsets 0 to 40000 .* --bucket-records 10000"):
        staging.stage(job(40_000), [(0, ref)] * 20_001, [], {}, "")


def test_a_task_that_writes_too_many_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Producing:
        def __init__(self, *_: object) -> None:
            self.sent = 0

        def produce(self, *_: object, **__: object) -> None:
            self.sent += 1

        def poll(self, *_: object) -> int:
            return 0

        flush = poll

        def purge(self) -> None:
            pass

    made: list[Producing] = []

    def producer(settings: Any) -> Producing:
        made.append(Producing(settings))
        return made[-1]

    monkeypatch.setattr(sink, "Producer", producer)
    monkeypatch.setattr(sink, "MAX_SEGMENTS", 10)
    batch = pa.RecordBatch.from_pydict(
        {
            "bucket": pa.array([0] * 30, pa.int32()),
            # Each record begins a new time step.
            "due_ms": pa.array([number * 100_000_000 for number in range(30)], pa.int64()),
            "offset": pa.array(range(30), pa.int64()),
            "size_bytes": pa.array([24] * 30, pa.int32()),
            "timestamp_ms": pa.array([0] * 30, pa.int64()),
            "names": pa.array([None] * 30, pa.string()),
            "record": pa.array([None] * 30, pa.binary()),
        }
    )
    short = replace(job(40), seal_rules=replace(SEAL, segment_entries=1))
    with pytest.raises(JobError, match="--bucket-records 10"):
        sink.write_segments(short, "1", iter([batch]))
    assert made[0].sent == 10

"""Tests of ``index``: it stages the same entries that the router would have indexed, despite failures of its tasks."""

import re
import time
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from index.buckets.bucket import Placement
from index.named.id_pages import place_in, rows_of
from index.named.names import hash_of
from index.named.places import HASH_BYTES
from index.partition.partition import PartitionIndex
from index.pending.progress import start_of
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE
from snapshots.segments.id_pages import decode_page
from snapshots.state.staged import Intent, StagedBucket, encode_intent, intent_key
from spark_backfill.build import index_job
from spark_backfill.build.index_job import Options
from spark_backfill.build.scope import Asked
from spark_backfill.errors import JobError
from tests.integration.scenario import Header, Stage, now_ms
from tests.spark.backfill import Wanted, delay_topic, entries_of, index, same, settings_of, staged, wanted

DAY_MS = 86_400_000


def headers_of(rng: Random, number: int) -> list[Header]:
    """Return headers of every kind: due now or within a day, at once, and rejected ones."""
    headers: list[Header] = [("n", b"%d" % number), ("n", None), ("e", b"")]
    match rng.randrange(10):
        case 0:
            return headers
        case 1:
            return [*headers, ("deliver-after", b"soon")]
        case 2:
            return [("deliver-after", b"P30D"), *headers]
        case 3:
            return [("deliver-to", b"elsewhere"), *headers]
        case 4:
            return []
        case 5:
            return [*headers, ("deliver-at", b"%d" % (now_ms() - rng.randrange(DAY_MS)))]
        case _:
            return [*headers, ("deliver-at", b"%d" % (now_ms() + rng.randrange(6 * DAY_MS)))]


def fill(stage: Stage, topic: str, rng: Random, count: int, partitions: int = 1) -> None:
    """Write records of every kind, some of them in transactions that are aborted."""
    steady = Producer({**stage.kafka, "linger.ms": 5})
    producer = Producer({**stage.kafka, "transactional.id": f"{topic}.fill"})
    producer.init_transactions(30)
    for number in range(count):
        key = rng.choice([None, b"", b"%d" % rng.randrange(50)])
        value = rng.choice([None, b"", b"%d" % number, rng.randbytes(100)])
        partition = rng.randrange(partitions)
        steady.produce(topic, value, key, partition, headers=list(headers_of(rng, number)))
        if number % 400 == 0:
            steady.flush(30)
            producer.begin_transaction()
            for _ in range(5):
                producer.produce(topic, b"never", b"aborted", partition)
            producer.flush(30)
            producer.abort_transaction(30)
    assert steady.flush(30) == 0


def check(stage: Stage, directory: Path, delay: str, partition: int, found: list[StagedBucket]) -> list[Wanted]:
    """Assert that every staged bucket matches the rules in its range. Return all entries in release order."""
    rules = settings_of(stage, directory).delay_topic(delay).rules
    everything: list[Wanted] = []
    for each in found:
        expected = wanted(stage, delay, rules, partition, each.manifest.from_offset, each.manifest.to_offset)
        assert same(entries_of(stage, delay, each.manifest, partition), expected)
        assert each.rules == rules
        everything += expected
    return sorted(everything, key=lambda entry: entry[:2])


def test_what_is_staged_is_what_the_router_would_have_indexed(
    spark: SparkSession, stage: Stage, tmp_path: Path, rng: Random
) -> None:
    delay = delay_topic(stage, partitions=2, default_target="out", placement="inline")
    fill(stage, delay, rng, 1_500, partitions=2)

    outcome = index(spark, stage, tmp_path, delay)

    entries = 0
    for partition in (0, 1):
        found, intents = staged(stage, delay, partition)
        assert intents == []
        ranges = [(each.manifest.from_offset, each.manifest.to_offset) for each in found]
        assert ranges[0][0] == 0
        assert all(one[1] == two[0] for one, two in pairwise(ranges))
        assert len(ranges) > 1, "it was to be more than one bucket"
        entries += len(check(stage, tmp_path, delay, partition, found))
    assert outcome.entries == entries == len(stage.records(delay))


def test_the_order_is_that_of_the_routers_own_index(
    spark: SparkSession, stage: Stage, tmp_path: Path, rng: Random
) -> None:
    delay = delay_topic(stage, default_target="out", placement="inline")
    fill(stage, delay, rng, 1_000)
    index(spark, stage, tmp_path, delay, options=Options(task_records=150))

    own: PartitionIndex[Record, int] = PartitionIndex(start_of(0), lambda _: 1)
    (only,), _ = staged(stage, delay)
    expected = check(stage, tmp_path, delay, 0, [only])
    for due_ms, offset, record in sorted(expected, key=lambda entry: entry.offset):
        if record is None:
            own.reject(offset, offset)
        else:
            own.add([(due_ms, offset, record)])
    own.advance(only.manifest.to_offset)
    batch = own.plan(now_ms() + 30 * DAY_MS, 1 << 30, 1 << 30)

    found = entries_of(stage, delay, only.manifest)
    rejected = [(AT_ONCE, offset) for offset, _ in batch.rejected]
    assert [entry[:2] for entry in found if entry[2] is None] == rejected
    assert rejected, "nothing was rejected"
    assert [entry[:2] for entry in found if entry[2] is not None] == [entry[:2] for entry in batch.due]


def test_pointers_and_absent_records(spark: SparkSession, stage: Stage, tmp_path: Path, rng: Random) -> None:
    delay = delay_topic(stage, default_target="out", placement="pointer")
    fill(stage, delay, rng, 400)
    index(spark, stage, tmp_path, delay)

    (only,), _ = staged(stage, delay)
    assert {ref.placement for ref in only.manifest.segments} == {Placement.POINTER}
    assert only.manifest.needs_from == 0
    rules = settings_of(stage, tmp_path).delay_topic(delay).rules
    expected = wanted(stage, delay, rules, 0, 0, only.manifest.to_offset)
    assert [entry[:2] for entry in entries_of(stage, delay, only.manifest)] == [entry[:2] for entry in expected]


def test_records_too_large_for_a_segment_stay_in_the_delay_topic(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    delay = delay_topic(stage, default_target="out", placement="inline", segment_bytes="2KiB")
    for size in (10, 3_000, 20, 2_500):
        stage.send(delay, ("deliver-after", b"60000"), value=bytes(size))
    index(spark, stage, tmp_path, delay)
    (only,), _ = staged(stage, delay)
    found = entries_of(stage, delay, only.manifest)
    assert {offset: record is None for _, offset, record in found} == {0: False, 1: True, 2: False, 3: True}
    assert only.manifest.needs_from == 1


def test_the_ids_of_a_bucket_are_staged_in_pages(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    delay = delay_topic(stage, default_target="out")
    due_ms = now_ms() + 60_000
    ids = [None if number % 3 == 0 else b"id %d" % (number % 150) for number in range(900)]
    named: list[list[Header]] = [[] if each is None else [("deliver-id", each)] for each in ids]
    times: list[Header] = [("deliver-at", b"%d" % (due_ms + number * 7 % 1_000)) for number in range(900)]
    stage.send_many(delay, [[time, *more] for time, more in zip(times, named, strict=True)])
    index(spark, stage, tmp_path, delay, options=Options(task_records=200))
    (only,), _ = staged(stage, delay)
    assert only.manifest.entries == 900
    values = {each.offset: each.value for each in stage.records(f"{delay}.delay-snapshots")}
    pages = only.manifest.id_pages or ()
    found = [row for ref in pages for row in rows_of(decode_page(ref, values[ref.record_offset]))]
    assert found == sorted(found)
    expected = [(hash_of(each), number) for number, each in enumerate(ids) if each is not None]
    assert sorted((row[:HASH_BYTES], place_in(row).offset) for row in found) == sorted(expected)
    due = {place_in(row).offset: place_in(row).due_ms for row in found}
    assert all(due_ms + number * 7 % 1_000 == due[number] for _, number in expected)


def test_a_range_in_which_nothing_is_pending(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    delay = delay_topic(stage, default_target="out")
    producer = Producer({**stage.kafka, "transactional.id": f"{delay}.none"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(delay, b"never")
    producer.flush(30)
    producer.abort_transaction(30)
    assert index(spark, stage, tmp_path, delay) == index_job.IndexOutcome(buckets=1)
    (only,), _ = staged(stage, delay)
    assert only.manifest.segments == ()
    assert (only.manifest.from_offset, only.manifest.to_offset) == (0, 2)


def test_run_twice_the_second_takes_the_place_of_the_first(
    spark: SparkSession, stage: Stage, tmp_path: Path, rng: Random
) -> None:
    delay = delay_topic(stage, default_target="out", placement="inline")
    fill(stage, delay, rng, 400)
    index(spark, stage, tmp_path, delay, options=Options(bucket_records=210))
    first, _ = staged(stage, delay)
    assert len(first) == 2
    index(spark, stage, tmp_path, delay)
    (second,), _ = staged(stage, delay)
    assert second.manifest.segments[0] != first[0].manifest.segments[0]
    check(stage, tmp_path, delay, 0, [second])
    # Both are whole: the router may have adopted the first while the second was made.
    check(stage, tmp_path, delay, 0, first)
    keys = [each.key for each in stage.records(f"{delay}.delay-snapshots")]
    assert len(set(keys)) == len(keys), "a key was used twice, and compaction removes the first"


def test_unknown_partitions_and_ranges_are_refused_before_anything_is_written(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    delay = delay_topic(stage, default_target="out")
    stage.send_many(delay, [[("deliver-after", b"60000")]] * 20)
    for asked, message in (
        (Asked(ends={0: 21}), "ends at offset 20"),
        (Asked(starts={0: 5}, ends={0: 4}), "nothing lies between"),
        (Asked(partitions=(1,)), "no partition 1"),
    ):
        with pytest.raises(JobError, match=message):
            index(spark, stage, tmp_path, delay, asked)
    assert stage.records(f"{delay}.delay-backfill") == []
    assert stage.records(f"{delay}.delay-snapshots") == []


def test_missing_topics_are_named(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    delay = delay_topic(stage, default_target="out")
    stage.delete(f"{delay}.delay-backfill")
    with pytest.raises(JobError, match=r"delay-backfill has 0 partitions.*delay-router init"):
        index(spark, stage, tmp_path, delay)
    stage.create([NewTopic(f"{delay}.delay-backfill", 3, 1)])
    with pytest.raises(JobError, match="delay-backfill has 3 partitions and"):
        index(spark, stage, tmp_path, delay)
    stage.delete(delay)
    with pytest.raises(JobError, match="does not exist"):
        index(spark, stage, tmp_path, delay)


def test_intents_of_others_stay_until_they_are_over(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    delay = delay_topic(stage, default_target="out")
    stage.send_many(delay, [[("deliver-after", b"60000")]] * 20)
    running, over = Intent("0f.index", 3, now_ms() + 600_000), Intent("0e.index", 2, now_ms() - 1)
    producer = Producer(stage.kafka)
    for each in (running, over):
        producer.produce(f"{delay}.delay-backfill", encode_intent(each), intent_key(each.run), 0)
    assert producer.flush(10) == 0
    index(spark, stage, tmp_path, delay)
    assert staged(stage, delay)[1] == [running]


def test_time_of_the_intent_covers_the_job(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    delay = delay_topic(stage, default_target="out")
    stage.send_many(delay, [[("deliver-after", b"60000")]] * 20)
    began_ms = time.time_ns() // 1_000_000
    index(spark, stage, tmp_path, delay)
    key = re.compile(rb"intent/[0-9a-f]{12}\.index")
    history = [each for each in stage.records(f"{delay}.delay-backfill") if key.fullmatch(each.key or b"")]
    assert [each.value is None for each in history] == [False, True], "written, and removed with what was staged"
    assert began_ms < history[0].timestamp_ms

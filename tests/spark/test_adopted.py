"""Tests of backfills that a running router adopts: every record is released once, despite concurrent events."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from spark_backfill.build import index_job
from spark_backfill.build.index_job import Options
from spark_backfill.build.scope import Asked
from spark_backfill.source import connector_options, read_ranges
from tests.integration.scenario import Header, Load, Stage, now_ms, wait_until
from tests.spark.backfill import adopted, delay_topic, prepared, settings_of, staged
from tests.wire import Broker, WireBatch, WireRecord
from tests.wire.batch import encode_headers


def post(stage: Stage, delay: str, rng: Random, count: int, *, due_in_ms: tuple[int, int]) -> None:
    """Send records due in a span around now; some are to be rejected."""
    began_ms = now_ms()
    for number in range(count):
        headers: list[Header] = [("deliver-at", b"%d" % (began_ms + rng.randint(*due_in_ms))), ("n", b"%d" % number)]
        if number % 50 == 0:
            headers[0] = ("deliver-after", b"soon")
        stage.post(delay, *headers, value=b"%d" % number)
    stage.flush()


def test_a_backlog_is_indexed_by_spark_and_released_by_the_router(
    spark: SparkSession, stage: Stage, tmp_path: Path, rng: Random
) -> None:
    delay = delay_topic(stage, default_target=stage.target())
    # Overdue while the job runs, and due after it.
    post(stage, delay, rng, 3_000, due_in_ms=(-60_000, 60_000))
    settings = settings_of(stage, tmp_path)
    options = Options(bucket_records=1_500, task_records=1_000)
    index_job.index(spark, settings, settings.delay_topic(delay), Asked(), options, print)
    assert len(staged(stage, delay)[0]) == 2

    with stage.router() as router:
        router.start_and_wait()
        post(stage, delay, rng, 200, due_in_ms=(-1_000, 3_000))
        stage.settle(timeout_s=150)
        assert staged(stage, delay) == ([], []), "what was staged has been taken or refused"
        assert adopted(router, delay) == 2
        # A second run finds nothing to do.
        outcome = index_job.index(spark, settings, settings.delay_topic(delay), Asked(), options, print)
        assert outcome == index_job.IndexOutcome()


def test_a_job_that_the_router_has_overtaken(spark: SparkSession, stage: Stage, tmp_path: Path, rng: Random) -> None:
    delay = delay_topic(stage, default_target=stage.target(), seal_age="1s", seal_records=200)
    post(stage, delay, rng, 1_500, due_in_ms=(-5_000, 40_000))
    job, ranges = prepared(stage, tmp_path, delay)
    records = read_ranges(spark, connector_options(job.kafka), delay, ranges, 1_000)
    with stage.router() as router, Load(stage, [delay], rng, a_second=50, delays_ms=(0, 10_000)):
        router.start_and_wait()
        stage.wait_records(stage.targets[0], 1)
        # The job began when nothing was indexed, and stages the whole range beside the router's own buckets.
        index_job.run(spark, job, records, print)
        wait_until(lambda: staged(stage, delay) == ([], []), "what was staged is gone", 60)
    with stage.router() as router:
        router.start_and_wait()
        stage.settle(timeout_s=150)


def test_controls_are_left_to_the_router_and_all_between_them_is_staged(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    delay = delay_topic(stage, default_target=stage.target())
    soon_ms = now_ms() + 30_000
    far_ms = soon_ms + 3_600_000
    # These are pending when the router reads their controls, however long the jobs take.
    controlled = {7, 8, 9, 1_005, 1_500}

    def post(first: int, count: int) -> None:
        for number in range(first, first + count):
            due_ms = far_ms if number in controlled else soon_ms
            due: Header = ("deliver-at", b"%d" % (due_ms + number))
            stage.post(delay, ("deliver-id", b"%d" % number), due, value=b"%d" % number)

    post(0, 1_000)
    stage.post(delay, ("deliver-cancel", b"7"), value=b"")
    post(1_001, 9)
    # Ids of both stretches and of the records between them, and an id that only a later record has.
    for number in (8, 1_005, 2_000):
        stage.post(delay, ("deliver-cancel", b"%d" % number), value=b"")
    post(1_013, 987)
    stage.post(delay, ("deliver-move", b"1500"), ("deliver-at", b"%d" % (soon_ms + 2_500)), value=b"")
    instead: Header = ("deliver-at", b"%d" % (soon_ms + 3_000))
    stage.post(delay, ("deliver-replace", b"true"), ("deliver-id", b"9"), instead, value=b"instead")
    post(2_002, 500)
    stage.flush()
    settings = settings_of(stage, tmp_path)
    options = Options(bucket_records=700, task_records=400, stretch_records=400)
    said: list[str] = []

    too_short = replace(options, stretch_records=1_001)
    outcome = index_job.index(spark, settings, settings.delay_topic(delay), Asked(), too_short, said.append)
    assert (outcome, staged(stage, delay)) == (index_job.IndexOutcome(), ([], []))
    index_job.index(spark, settings, settings.delay_topic(delay), Asked(), options, said.append)

    waiting, intents = staged(stage, delay)
    ranges = [(each.manifest.from_offset, each.manifest.to_offset) for each in waiting]
    assert ranges == [(0, 500), (500, 1_000), (1_013, 1_506), (1_506, 2_000), (2_002, 2_502)]
    assert sum(each.manifest.entries for each in waiting) == 1_000 + 987 + 500
    assert not intents
    assert any("15 offsets are left to the router" in line for line in said)
    with stage.router() as router:
        router.start_and_wait()
        outcomes = {each.key: json.loads(each.value or b"") for each in stage.wait_records(f"{delay}.receipts", 6)}
        report = stage.settle(timeout_s=150)
        assert staged(stage, delay) == ([], []), "what was staged has been taken, or the router was there first"
        assert adopted(router, delay) >= 2
    told = {(key, each["outcome"]): len(each["cancelled"]) for key, each in outcomes.items()}
    assert told == {
        (b"7", "cancelled"): 1,
        (b"8", "cancelled"): 1,
        (b"1005", "cancelled"): 1,
        (b"2000", "not-pending"): 0,
        (b"1500", "moved"): 1,
        (b"9", "replaced"): 1,
    }
    assert (report.cancelled, report.replaced, report.moved) == (3, 1, 1)


def test_headers_that_no_client_hands_over_are_left_to_the_router(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    """Spark's client replaces invalid text by U+FFFD; the router reads the record again, and rejects it unchanged."""
    delay = delay_topic(stage, default_target=stage.target(), config={"max.message.bytes": "2000000"})
    due = (b"deliver-at", b"%d" % (now_ms() + 1_000))
    names = [b"fine", b"\xff", b"trace\0id", b"\xed\xa0\x80", "\N{REPLACEMENT CHARACTER}".encode(), b""]
    headers = [[due, (name, b"1")] for name in names] + [[due, *[(b"n", None)] * 100_000]]
    with Broker(stage.bootstrap) as broker:
        for number, each in enumerate(headers):
            broker.produce(delay, 0, WireBatch([WireRecord(b"k", b"%d" % number, each)]).encode())
        settings = settings_of(stage, tmp_path)
        options = Options(bucket_records=100, task_records=100)
        index_job.index(spark, settings, settings.delay_topic(delay), Asked(), options, print)
        with stage.router() as router:
            router.start_and_wait()
            wait_until(lambda: len(stage.records(f"{delay}.rejected")) == 5, "five rejected records", 60)
            wait_until(lambda: len(stage.records(stage.targets[0])) == 2, "two released records", 60)
            assert adopted(router, delay) == 1
        rejected = {
            each.value or b"": dict(each.headers) for each in broker.records(f"{delay}.rejected", committed=True)
        }
    assert sorted(rejected) == [b"1", b"2", b"3", b"4", b"6"]
    for value, found in rejected.items():
        assert found[b"delay-error"] == b"UNREADABLE"
        assert found[b"delay-unreadable-headers"] == encode_headers(headers[int(value)])

"""Tests that attempts which are killed, repeated or refused at the end leave no trusted buckets."""

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from spark_backfill.buckets.deciding import DECIDED_SCHEMA, DecideTask
from spark_backfill.buckets.sink import SegmentsWriter, write_segments
from spark_backfill.build import index_job
from spark_backfill.build.index_job import Options
from spark_backfill.build.scope import Asked
from spark_backfill.errors import JobError
from spark_backfill.source import connector_options, read_ranges
from tests.integration.scenario import TIMEOUT_S, Stage, now_ms, wait_until
from tests.spark.backfill import config_file, delay_topic, entries_of, prepared, same, settings_of, staged, wanted
from tests.spark.conftest import CONF

OPTIONS = Options(task_records=1_500)


def filled(stage: Stage, rng: Random, count: int) -> str:
    delay = delay_topic(stage, default_target="out", placement="inline")
    dues = [now_ms() + rng.randrange(86_400_000) for _ in range(count)]
    stage.send_many(delay, [[("deliver-at", b"%d" % due_ms)] for due_ms in dues])
    return delay


def check_whole(stage: Stage, directory: Path, delay: str, count: int) -> None:
    (only,), _ = staged(stage, delay)
    rules = settings_of(stage, directory).delay_topic(delay).rules
    assert only.manifest.entries == count
    assert same(entries_of(stage, delay, only.manifest), wanted(stage, delay, rules, 0, 0, count))


def failing_after(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise ZeroDivisionError


def test_a_killed_job_has_staged_nothing_and_is_run_again(
    spark: SparkSession, stage: Stage, tmp_path: Path, rng: Random
) -> None:
    delay = filled(stage, rng, 6_000)
    command = [sys.executable, "-m", "spark_backfill", "index", "--topic", delay, "--task-records", "1000"]
    command += ["--config", str(config_file(stage, tmp_path))]
    for each in (*CONF, "spark.master=local[1]"):
        command += ["--conf", each]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as job:
        try:
            wait_until(lambda: bool(stage.records(f"{delay}.delay-snapshots")), "the first segment", 120)
        finally:
            # The JVM and the workers, too: the job has its own session.
            os.killpg(job.pid, signal.SIGKILL)
    found, intents = staged(stage, delay)
    assert found == []
    assert [each.run[12:] for each in intents] == [".index"], "what it was about to write is protected until it expires"

    settings = settings_of(stage, tmp_path)
    index_job.index(spark, settings, settings.delay_topic(delay), Asked(), OPTIONS, print)
    check_whole(stage, tmp_path, delay, 6_000)
    _, left = staged(stage, delay)
    assert left == intents, "for all that another run of the job knows, this one still writes"


def test_a_job_refused_at_its_commit_takes_everything_back(
    spark: SparkSession, stage: Stage, tmp_path: Path, rng: Random
) -> None:
    delay = filled(stage, rng, 2_000)
    job, ranges = prepared(stage, tmp_path, delay)
    read_before = dataclasses.replace(job, delay_topic_id="of-a-topic-that-was-there-before")
    records = read_ranges(spark, connector_options(job.kafka), delay, ranges, 1_000)
    with pytest.raises(JobError, match="deleted and created again while the job ran"):
        index_job.run(spark, read_before, records, print)
    assert staged(stage, delay) == ([], [])
    latest = {each.key: each.value for each in stage.records(f"{delay}.delay-snapshots")}
    assert set(latest.values()) == {None}, "segments that nothing names were left"


def test_two_attempts_of_a_task_and_one_of_them_counts(
    spark: SparkSession, stage: Stage, tmp_path: Path, rng: Random
) -> None:
    delay = filled(stage, rng, 900)
    job, ranges = prepared(stage, tmp_path, delay)
    deciding = DecideTask(job.rules_json, job.slots, job.slot_keys, keeps_payload=True)
    columns = ("partition", "offset", "timestamp", "key", "value", "headers")
    records = read_ranges(spark, connector_options(job.kafka), delay, ranges, 1_000).select(*columns)
    rows = records.mapInArrow(deciding, DECIDED_SCHEMA).sort("due_ms", "offset").toArrow()
    halves: list[list[pa.RecordBatch]] = [rows.slice(at, 450).to_batches() for at in (0, 450)]

    twice = [write_segments(job, attempt, iter(halves[0])) for attempt in ("speculative", "first")]
    other = write_segments(job, "second", iter(halves[1]))
    with pytest.raises(ZeroDivisionError):
        write_segments(job, "third", failing_after(halves[1]))
    SegmentsWriter(job).commit([other, twice[1]])

    check_whole(stage, tmp_path, delay, 900)
    latest = {each.key: each.value for each in stage.records(f"{delay}.delay-snapshots")}
    assert all(value is None for key, value in latest.items() if b"/third" in (key or b""))
    assert sum(value is not None for value in latest.values()) == len(
        twice[0].segments + twice[1].segments + other.segments
    )


def test_retention_that_cuts_into_what_a_job_reads_fails_it(
    spark: SparkSession, stage: Stage, tmp_path: Path, rng: Random
) -> None:
    delay = filled(stage, rng, 500)
    job, ranges = prepared(stage, tmp_path, delay)
    records = read_ranges(spark, connector_options(job.kafka), delay, ranges, 1_000)
    (future,) = stage.admin.delete_records([TopicPartition(delay, 0, 100)]).values()
    future.result(TIMEOUT_S)
    with pytest.raises(JobError, match="retention has removed records while the job read them"):
        index_job.run(spark, job, records, print)
    assert staged(stage, delay) == ([], [])
    with pytest.raises(JobError, match="retention has removed the records below offset 100, and 50 was asked for"):
        index_from(spark, stage, tmp_path, delay, 50)


def index_from(spark: SparkSession, stage: Stage, directory: Path, delay: str, start: int) -> None:
    settings = settings_of(stage, directory)
    asked = Asked(starts={0: start})
    index_job.index(spark, settings, settings.delay_topic(delay), asked, OPTIONS, print)

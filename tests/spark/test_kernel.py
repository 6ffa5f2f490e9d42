"""Tests that ``index`` writes the same bytes with the kernel and without it, and reports which it used."""

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from spark_backfill.build import index_job
from spark_backfill.build.index_job import Options
from spark_backfill.build.scope import Asked
from spark_backfill.kernel import SWITCH
from tests.integration.scenario import Header, Stage, now_ms
from tests.spark.backfill import delay_topic, settings_of, staged
from tests.support.kernel import native_kernel

MINUTE_MS = 60_000


def some_headers(rng: Random, number: int) -> list[Header]:
    headers: list[Header] = [("trace", b"%d" % number)] * rng.randrange(3)
    match rng.randrange(10):
        case 0:
            return [*headers, ("deliver-after", b"soon")]
        case 1:
            return [("deliver-after", b"PT15M"), ("deliver-id", b"%d" % rng.randrange(9)), *headers]
        case 2:
            return [*headers, ("note", None), ("deliver-after", b"90s")]
        case _:
            return [("deliver-at", b"%d" % (now_ms() + MINUTE_MS + rng.randrange(60 * MINUTE_MS))), *headers]


def indexed(
    spark: SparkSession, stage: Stage, directory: Path, delay: str
) -> tuple[list[bytes | None], list[bytes | None], str, list[str]]:
    """Return the staged segments and pages of ids, the job's report of its kernel, and its messages."""
    settings, said = settings_of(stage, directory), list[str]()
    topic, options = settings.delay_topic(delay), Options(task_records=700)
    outcome = index_job.index(spark, settings, topic, Asked(), options, said.append)
    (only,), _ = staged(stage, delay)
    values = {each.offset: each.value for each in stage.records(f"{delay}.delay-snapshots")}
    segments = [values[ref.record_offset] for ref in only.manifest.segments]
    return segments, [values[ref.record_offset] for ref in only.manifest.id_pages or ()], outcome.kernel, said


@pytest.mark.parametrize("placement", ["inline", "pointer"])
def test_the_same_is_staged_with_and_without_it(
    spark: SparkSession, stage: Stage, tmp_path: Path, rng: Random, monkeypatch: pytest.MonkeyPatch, placement: str
) -> None:
    native_kernel()
    delay = delay_topic(stage, default_target="out", placement=placement)
    stage.send_many(delay, [some_headers(rng, number) for number in range(3_000)])
    native = indexed(spark, stage, tmp_path, delay)
    monkeypatch.setenv(SWITCH, "off")
    python = indexed(spark, stage, tmp_path, delay)
    assert native[:2] == python[:2]
    assert len(native[0]) > 1
    assert native[1], "no ids"
    assert native[2] == "native"
    assert python[2] == "python, since it is switched off by DELAY_ROUTER_KERNEL=off on the driver"
    assert f"kernel: {native[2]}" in native[3]
    assert f"kernel: {python[2]}" in python[3]

"""Tests of ``rebuild`` with recurring schedules: they continue, or the number of ended ones is reported."""

from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from tests.integration.scenario import Header, Stage, header
from tests.spark.backfill import COMPACT, rebuild, staged, wait_for_end_of_session


def _lose(stage: Stage, *topics: str) -> None:
    stage.delete(*topics)
    stage.create([NewTopic(name, 1, 1, config=COMPACT) for name in topics])


@pytest.mark.parametrize("has_copy", [True, False])
def test_recurring_schedules_go_on_or_it_is_told_how_many_end(
    spark: SparkSession, stage: Stage, tmp_path: Path, has_copy: bool
) -> None:
    out = stage.target("out")
    delay = stage.delay("delay", default_target=out, recurring=True, max_delay="1h")
    stage.create([NewTopic(f"{delay}.delay-backfill", 1, 1, config=COMPACT)])
    with stage.router() as router:
        router.start_and_wait()
        # The record that begins a series by cron is copied to no target, and is not pending either.
        cron: list[Header] = [("deliver-cron", b"* * * * *"), ("deliver-after", b"PT10M")]
        stage.send(delay, *cron, value=b"cron")
        stage.send(delay, ("deliver-every", b"3s"), value=b"every")
        stage.wait_records(out, 3)
        router.stop()
    wait_for_end_of_session(stage, tmp_path)
    _lose(stage, f"{delay}.delay-state", *([] if has_copy else [f"{delay}.delay-snapshots"]))
    said: list[str] = []
    rebuild(spark, stage, tmp_path, delay, say=said.append)
    assert any("at most 2 recurring schedules" in line for line in said) is not has_copy
    if not has_copy:
        return
    released = len(stage.records(out))
    with stage.router() as router:
        router.start_and_wait()
        assert staged(stage, delay) == ([], [])
        stage.wait_records(out, released + 3)
        _, body = router.http("/readyz")
        router.stop()
    numbers = [int(header(each, "delay-occurrence") or b"") for each in stage.records(out)]
    assert numbers == list(range(1, len(numbers) + 1)), body
    begun = [each for each in stage.records(delay) if each.value == b"cron"]
    assert len(begun) == 2, "a series by cron has begun twice"
    assert stage.records(f"{delay}.rejected") == []

"""Tests of ``rebuild`` with recurring schedules: they continue, or the number of ended ones is reported."""

from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from spark_backfill import cluster
from spark_backfill.build import rebuild_job
from spark_backfill.build.index_job import Options
from spark_backfill.build.scope import Asked
from tests.integration.scenario import Header, Stage, header, wait_until
from tests.spark.backfill import COMPACT, settings_of, staged


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
    admin = cluster.connect(settings_of(stage, tmp_path))
    wait_until(lambda: not cluster.group_members(admin, stage.group_id), "end of the router's session")
    _lose(stage, f"{delay}.delay-state", *([] if has_copy else [f"{delay}.delay-snapshots"]))
    said: list[str] = []
    settings = settings_of(stage, tmp_path)
    options = Options("rebuild", bucket_records=400, task_records=200)
    rebuild_job.rebuild(spark, settings, settings.delay_topic(delay), Asked(), options, said.append)
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

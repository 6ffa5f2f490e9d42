"""Tests the program of OPERATIONS that makes a table to restore of an older table of pending records."""

import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from spark_backfill.cli import cli
from tests.docs.documents import blocks
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Header, Stage, now_ms, wait_until
from tests.spark.backfill import delay_topic
from tests.support.paths import ROOT

pytestmark = pytest.mark.timeout(600)


def program(folder: Path, stage: Stage, target: str, *, without_released: bool) -> Path:
    """Write the program of OPERATIONS, with the paths and topics of the test."""
    whole, part = [block.text for block in blocks(ROOT / "OPERATIONS.md") if block.language == "python"]
    if without_released:
        whole = whole.replace("moving.write", f"{part}moving.write")
    for name in ("pending", "moving"):
        whole = whole.replace(f'parquet("{name}")', f'parquet("{folder / name}")')
    file = folder / "moving.py"
    file.write_text(whole.replace("localhost:9092", stage.bootstrap).replace('"orders"', f'"{target}"'))
    return file


def job(router: RouterProcess, *arguments: str) -> None:
    done = CliRunner().invoke(cli, [*arguments, "--config", str(router.config)])
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"


def two_topics(stage: Stage, out: str, other: str) -> tuple[str, str]:
    options: dict[str, Any] = {
        "default_target": out,
        "allowed_targets": [other],
        "recurring": True,
        "seal_age": "1s",
        "seal_records": 20,
    }
    return delay_topic(stage, 3, **options), delay_topic(stage, 2, name="new", **options)


def due(after_ms: int) -> Header:
    return "deliver-at", b"%d" % (now_ms() + after_ms)


def test_a_table_that_is_older_leaves_out_what_has_left_since(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    out, other = stage.target(), stage.target("other")
    old, _ = two_topics(stage, out, other)
    with stage.router() as router:
        router.start_and_wait()
        for number in range(40):
            stage.post(old, due(60_000 if number % 2 else 3_600_000), value=b"%d" % number, partition=number % 3)
        stage.flush()
        wait_until(lambda: router.metric(f'pending_records{{topic="{old}"}}') == 40, "all are indexed")
        job(router, "export", str(tmp_path / "pending"), "--topic", old, "--with", "value", "--with", "headers")
        stage.wait_records(out, 20, timeout_s=120)
    runpy.run_path(str(program(tmp_path, stage, out, without_released=True)))
    rows = spark.read.parquet(str(tmp_path / "moving")).collect()
    assert Counter(bytes(row.value) for row in rows) == Counter(b"%d" % number for number in range(0, 40, 2))

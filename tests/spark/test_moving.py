"""Plays the procedures of OPERATIONS that move pending records as a table: to another cluster, and to another topic."""

import runpy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sidecar.dev.audit import AuditedRecord
from spark_backfill.cli import cli
from tests.conftest import StartCluster
from tests.docs.documents import blocks
from tests.docs.procedures import DOCUMENT, Procedure
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Header, Stage, header, now_ms, wait_until
from tests.spark.backfill import delay_topic

pytestmark = pytest.mark.timeout(600)

MOVING = "Moving to another cluster"
LATER_MS = 60_000
NEVER_MS = 3_600_000


@pytest.fixture
def elsewhere(kafka_factory: StartCluster, stage: Stage, tmp_path: Path) -> Stage:
    """Return a stage on another cluster, with the names of the first one and without topics."""
    made = Stage(kafka_factory().bootstrap, tmp_path / "elsewhere")
    made.word = stage.word
    return made


def job(*arguments: str) -> str:
    """Run a job in the session of the tests."""
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done.output


def program(folder: Path, stage: Stage, *, without_released: bool) -> Path:
    """Write the program of OPERATIONS, with the paths and topics of the test."""
    whole, part = [block.text for block in blocks(DOCUMENT) if block.language == "python"]
    if without_released:
        whole = whole.replace("moving.write", f"{part}moving.write")
    for name in ("pending", "moving"):
        whole = whole.replace(f'parquet("{name}")', f'parquet("{folder / name}")')
    file = folder / "moving.py"
    file.write_text(whole.replace("localhost:9092", stage.bootstrap).replace('"orders"', f'"{stage.targets[0]}"'))
    return file


def steps(section: str, folder: Path, delay: str, old: RouterProcess, new: RouterProcess) -> Procedure:
    """Return a procedure with the configurations of two routers, whose tables are in a folder."""

    def run_program(_: Sequence[str]) -> str:
        runpy.run_path(str(folder / "moving.py"))
        return ""

    tables = {name: str(folder / name) for name in ("pending", "moving")}
    names = {"orders.delay": delay, "old.toml": str(old.config), "new.toml": str(new.config), **tables}
    programs = {"spark_backfill": lambda given: job(*given), "moving.py": run_program}
    return Procedure(section, old.config, names, programs)


def options(out: str, other: str) -> dict[str, Any]:
    return {
        "default_target": out,
        "allowed_targets": [other],
        "recurring": True,
        "seal_age": "1s",
        "seal_beyond": "0ms",
        "seal_records": 20,
    }


def due(after_ms: int) -> Header:
    return "deliver-at", b"%d" % (now_ms() + after_ms)


def post(stage: Stage, delay: str) -> Counter[bytes]:
    """Write records of which a third is due at once, and return the values of all."""
    for number in range(60):
        headers = [due(100 if number % 3 == 0 else LATER_MS), ("deliver-id", b"%d" % number), ("n", b"%d" % number)]
        if number % 4 == 0:
            headers.append(("deliver-to", stage.targets[1].encode()))
        stage.post(delay, *headers, value=b"%d" % number, key=b"k%d" % (number % 7), partition=number % 3)
    stage.flush()
    return Counter(b"%d" % number for number in range(60))


def released(stage: Stage) -> list[AuditedRecord]:
    return [record for target in stage.targets for record in stage.records(target)]


def values(records: Sequence[AuditedRecord]) -> Counter[bytes]:
    return Counter(record.value or b"" for record in records)


def test_pending_records_move_to_another_cluster(
    spark: SparkSession, stage: Stage, elsewhere: Stage, tmp_path: Path
) -> None:
    out, other = stage.target(), stage.target("other")
    delay = delay_topic(stage, 3, **options(out, other))
    elsewhere.delays, elsewhere.targets = dict(stage.delays), [out, other]
    program(tmp_path, stage, without_released=False)
    with stage.router("old") as old, elsewhere.router("new") as new:
        old.init()
        old.start_and_wait()
        sent = post(stage, delay)
        # A recurring schedule does not move.
        stage.send(delay, due(NEVER_MS), ("deliver-every", b"1h"), value=b"series")
        moves = steps(MOVING, tmp_path, delay, old, new)
        moves.run("delay-router init")
        new.start_and_wait()
        elsewhere.send(delay, due(100), value=b"new")
        wait_until(lambda: len(released(stage)) == 20, "the first third has left")
        moves.run("delay-router pause")
        moves.run("delay-router status", until="paused")
        moves.run("python -m spark_backfill export")
        moves.run("python moving.py")
        moves.run("python -m spark_backfill schedule moving")
        assert values(elsewhere.records(delay)) == Counter([b"new"]), "the trial wrote"
        written = moves.run("python -m spark_backfill schedule moving")
        assert "40 of 40 rows written" in written
        assert old.stop() == 0
        elsewhere.settle(timeout_s=240)
        moves.run("python -m spark_backfill audit")
        moves.finish()
        assert new.stop() == 0
    assert values(released(stage)) + values(released(elsewhere)) == sent + Counter([b"new"])
    at = {record.value: record for record in stage.records(delay)}
    for record in released(elsewhere):
        if record.value != b"new":
            assert (record.key, header(record, "n")) == (at[record.value].key, record.value)
            assert header(record, "delay-due") == header(at[record.value], "deliver-at")
            assert (record.topic == other) is (int(record.value or b"") % 4 == 0)


def test_a_table_is_restored_in_another_cluster(
    spark: SparkSession, stage: Stage, elsewhere: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is older than some releases; they are left out by the targets."""
    out, other = stage.target(), stage.target("other")
    delay = delay_topic(stage, 3, **options(out, other))
    elsewhere.delays, elsewhere.targets = dict(stage.delays), [out, other]
    program(tmp_path, stage, without_released=True)
    with stage.router("old") as old, elsewhere.router("new") as new:
        old.init()
        old.start_and_wait()
        for number in range(40):
            stage.post(delay, due(LATER_MS if number % 2 else NEVER_MS), value=b"%d" % number, partition=number % 3)
        stage.flush()
        wait_until(lambda: old.metric(f'pending_records{{topic="{delay}"}}') == 40, "all are indexed")
        backup = steps("Backup, restore and disaster recovery", tmp_path, delay, old, new)
        backup.names |= {"s3a://backup/pending/2030-01-31T08": str(tmp_path / "pending")}
        backup.names |= {"delay-router.toml": str(old.config)}
        backup.run("python -m spark_backfill export")
        for kept in ("delay-router policy get", "delay-router config", "delay-router check --acls"):
            backup.run(kept)
            # The file that its output goes to.
            backup.skip("")
        backup.finish()
        stage.wait_records(out, 20, timeout_s=120)
        old.kill()
        moves = steps(MOVING, tmp_path, delay, old, new)
        moves.run("delay-router init")
        for left_out in ("delay-router pause", "delay-router status", "python -m spark_backfill export"):
            moves.skip(left_out)
        moves.run("python moving.py")
        moves.run("python -m spark_backfill schedule moving")
        assert "20 of 20 rows written" in moves.run("python -m spark_backfill schedule moving")
    assert values(elsewhere.records(delay)) == Counter(b"%d" % number for number in range(0, 40, 2))


def test_pending_records_move_to_another_topic(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    out, other = stage.target(), stage.target("other")
    delay = delay_topic(stage, 3, **options(out, other))
    later = delay_topic(stage, 2, name="later", **options(out, other))
    program(tmp_path, stage, without_released=False)
    with stage.router() as router:
        router.init()
        router.start_and_wait()
        sent = post(stage, delay)
        wait_until(lambda: len(released(stage)) == 20, "the first third has left")
        moves = steps(MOVING, tmp_path, delay, router, router)
        moves.skip("delay-router init")
        moves.run("delay-router pause")
        moves.run("delay-router status", until="paused")
        moves.run("python -m spark_backfill export")
        moves.run("python moving.py")
        moves.names["orders.delay"] = later
        moves.run("python -m spark_backfill schedule moving")
        moves.run("python -m spark_backfill schedule moving")
        wait_until(lambda: len(released(stage)) >= 60, "the others have left", 240)
        assert values(released(stage)) == sent
        moves.run("python -m spark_backfill audit")
        assert router.stop() == 0

"""Tests that turn tables into records of a delay topic on real Spark and Kafka, with a router that releases them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from index.protocol.partitioner import partition_of_key
from spark_backfill.cli import cli
from spark_backfill.errors import JobError
from spark_backfill.schedule.columns import checked, parse_mapping
from spark_backfill.schedule.job import ScheduleRequest, schedule
from spark_backfill.schedule.ledger import Ledger, group_name
from spark_backfill.schedule.source import rows, types
from tests.integration.scenario import Stage, header, now_ms, wait_until
from tests.spark.auditing import audit_stage
from tests.spark.backfill import delay_topic, settings_of
from tests.spark.conftest import CONF

# Each test runs several Spark jobs, on a machine with other work.
pytestmark = pytest.mark.timeout(600)

SCHEMA = "due timestamp, target string, key string, value string, headers array<struct<key:string,value:binary>>"


def run(stage: Stage, source: Path | str, *options: str) -> Result:
    call = ["schedule", str(source), "--config", str(stage.router("schedule").config), "--json", *options]
    return CliRunner().invoke(cli, call)


def report(done: Result, exit_code: int = 0) -> dict[str, Any]:
    assert done.exit_code == exit_code, f"{done.output}\n{done.exception!r}"
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def parquet(spark: SparkSession, path: Path, rows: list[tuple[Any, ...]], schema: str = SCHEMA) -> Path:
    spark.createDataFrame(rows, schema).write.parquet(str(path))
    return path


def ids(stage: Stage, topic: str) -> Counter[bytes | None]:
    return Counter(header(record, "deliver-id") for record in stage.records(topic))


def test_from_a_table_to_the_targets_and_not_twice(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    out, other = stage.target(partitions=2), stage.target("other")
    delay = delay_topic(stage, 3, default_target=out, allowed_targets=[other])
    now = datetime.now(UTC)
    rows: list[tuple[Any, ...]] = [
        (now + timedelta(seconds=number % 3 - 1), other if number % 5 == 0 else None, f"k{number % 7}", f"{number}",
         [("n", b"%d" % number), ("n", None)])
        for number in range(300)
    ]  # fmt: skip
    rows += [(now, None, None, None, None)] * 3  # equal in everything, without key and value
    table = parquet(spark, tmp_path / "table", rows)
    with stage.router() as router:
        router.start_and_wait()
        first = report(run(stage, table, "--job", "one"))
        again = report(run(stage, table, "--job", "one"))
        stage.settle()
        audited = audit_stage(spark, stage).total
    assert (first["rows"], first["valid"], first["invalid"], first["written"], first["before"]) == (303, 303, 0, 303, 0)
    assert first["past_due"] > 100
    assert first["targets"] == {out: 243, other: 60}
    assert (again["written"], again["before"], again["refused"]) == (0, 303, "")
    assert (audited.counts["sent"], audited.counts["released"], audited.violations) == (303, 303, 0)
    assert set(ids(stage, delay).values()) == {1}
    released = {record.value: record for topic in (out, other) for record in stage.records(topic)}
    assert len(released) == 301
    assert list(released[b"17"].headers)[:2] == [("n", b"17"), ("n", None)]
    assert released[b"17"].key == b"k3"
    assert (header(released[b"17"], "delay-id") or b"").startswith(b"one/")
    due_ms = -(-round((rows[17][0] - datetime.fromtimestamp(0, UTC)) / timedelta(microseconds=1)) // 1000)
    assert header(released[b"17"], "delay-due") == b"%d" % due_ms
    partitions = {record.key: record.partition for record in stage.records(delay) if record.key is not None}
    assert len(set(partitions.values())) > 1
    assert {key: _placed_by_kafka(stage, key, 3) for key in partitions} == partitions


def test_a_job_is_the_same_under_another_group_id(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    delay = stage.delay(partitions=2, default_target=stage.target())
    at = datetime.now(UTC) + timedelta(hours=1)
    table = parquet(spark, tmp_path / "table", [(at, None, f"k{number}", f"{number}", None) for number in range(50)])
    before = stage.group_id
    assert report(run(stage, table, "--job", "one"))["written"] == 50
    stage.group_id = f"{before}.new"
    again = run(stage, table, "--job", "one")
    assert f"job one was begun under group_id {before}, and goes on under it" in again.stderr
    assert (report(again)["written"], report(again)["before"]) == (0, 50)
    assert len(stage.records(delay)) == 50


def _placed_by_kafka(stage: Stage, key: bytes, partitions: int) -> int:
    """Return the partition of a key by librdkafka's own partitioner."""
    probe = f"{stage.word}.probe"
    if probe not in stage.admin.list_topics(timeout=10).topics:
        stage.create([NewTopic(probe, partitions, 1)])
    placed: list[int] = []
    producer = Producer({**stage.kafka, "partitioner": "murmur2_random", "linger.ms": 0})
    producer.produce(probe, b"", key, on_delivery=lambda _, sent: placed.append(sent.partition() or 0))
    assert producer.flush(10) == 0
    return placed[0]


def test_rows_that_must_not_be_written(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out, allowed_targets=[f"{stage.word}.*"], max_delay="7d")
    schema = "fire bigint, target string, key string, value string"
    soon, past = now_ms() + 3_600_000, now_ms() - 1_000
    rows = [
        (soon, None, "k", "good"),
        (past, None, "k", "past"),
        (soon * 1_000, None, "k", "in microseconds"),
        (soon + 8 * 86_400_000, None, "k", "far"),
        (None, None, "k", "never"),
        (soon, "elsewhere", "k", "not allowed"),
        (soon, f"{stage.word}.gone", "k", "unknown"),
    ]
    table = parquet(spark, tmp_path / "table", rows, schema)
    options = ["--column", "due=fire", "--without", "headers", "--job", "one"]
    refused = report(run(stage, table, *options), 1)
    assert refused["reasons"] == {
        "UNIT_SUSPECTED": 1,
        "MAX_DELAY_EXCEEDED": 1,
        "MALFORMED_ROW": 1,
        "TARGET_NOT_ALLOWED": 1,
        "TARGET_UNKNOWN": 1,
    }
    assert "Exceeds max allowed delivery delay" in refused["samples"]["MAX_DELAY_EXCEEDED"][0]
    assert "5 rows are invalid" in refused["refused"]
    assert report(run(stage, table, *options, "--on-invalid", "skip", "--on-past", "fail"), 1)["past_due"] == 1
    dry = report(run(stage, table, *options, "--on-invalid", "skip", "--dry-run"))
    assert (dry["valid"], dry["written"]) == (2, 0)
    assert stage.records(delay) == []

    aside = tmp_path / "aside"
    divert = ["--on-invalid", "divert", "--divert-to", str(aside), "--on-past", "skip"]
    done = report(run(stage, table, *options, *divert))
    assert (done["written"], done["left_out"]) == (1, 6)
    assert [record.value for record in stage.records(delay)] == [b"good"]
    invalid = spark.read.parquet(str(aside)).collect()
    assert {(bytes(row["value"]), row["reason"]) for row in invalid} == {
        (b"in microseconds", "UNIT_SUSPECTED"),
        (b"far", "MAX_DELAY_EXCEEDED"),
        (b"never", "MALFORMED_ROW"),
        (b"not allowed", "TARGET_NOT_ALLOWED"),
        (b"unknown", "TARGET_UNKNOWN"),
    }
    again = report(run(stage, table, *options, *divert))
    assert (again["written"], again["before"]) == (0, 7)
    assert len(stage.records(delay)) == 1


def test_csv_and_json(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out)
    csv = tmp_path / "table.csv"
    csv.write_text(
        "id,due,target,key,value,headers\n"
        f'1,2030-01-31T08:00:00Z,{out},k,"say ""hi"",\nplease","{{""a"": ""1""}}"\n'
        '2,1896076800000,,,"",\n'
        "3,1896076800000\n"
    )
    max_delay = ["--job", "csv", "--format", "csv", "--id", "id", "--on-invalid", "skip"]
    found = report(run(stage, csv, *max_delay), 0)
    assert found["reasons"] == {"MAX_DELAY_EXCEEDED": 2, "MALFORMED_ROW": 1}
    at = now_ms() + 60_000
    csv.write_text(csv.read_text().replace("2030-01-31T08:00:00Z", str(at)).replace("1896076800000", str(at)))
    done = report(run(stage, csv, *max_delay[:1], "csv2", *max_delay[2:]))
    assert (done["written"], done["left_out"]) == (2, 1)
    records = {record.value: record for record in stage.records(delay)}
    assert set(records) == {b'say "hi",\nplease', b""}
    assert records[b""].key is None
    assert ("a", b"1") in records[b'say "hi",\nplease'].headers

    lines = tmp_path / "table.json"
    plain = {"due": at, "target": None, "key": "k", "value": {"n": 1.50}, "headers": {"b": "2", "a": None}}
    lines.write_text(f'{json.dumps(plain)}\n{{"due": oops\n')
    done = report(run(stage, lines, "--job", "json", "--format", "json", "--on-invalid", "skip"))
    assert (done["written"], done["reasons"]) == (1, {"MALFORMED_ROW": 1})
    record = next(record for record in stage.records(delay) if (record.value or b"").startswith(b"{"))
    assert json.loads(record.value or b"") == {"n": 1.5}
    assert list(record.headers)[1:3] == [("b", b"2"), ("a", None)]


def test_wrong_input_is_refused_before_work_begins(
    spark: SparkSession, stage: Stage, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.delay(default_target=stage.target())
    table = parquet(spark, tmp_path / "table", [(1, "v")], "due bigint, value string")
    of_ints = parquet(spark, tmp_path / "ints", [(1, "v")], "due int, value string")
    without = ["--without", "target", "--without", "key", "--without", "headers"]
    for source, options, message in (
        (table, ["--job", "a/b"], "--job 'a/b'"),
        (table, ["--job", "j", "--on-invalid", "divert"], "--divert-to PATH go together"),
        (table, ["--job", "j", "--topic", "nope"], "is not a configured delay topic"),
        (table, ["--job", "j"], "column 'target' is missing; name it with --column target="),
        (of_ints, ["--job", "j", *without], "is of type int"),
    ):
        done = run(stage, source, *options)
        assert (done.exit_code, message in done.stderr) == (2, True), done.output
    for nothing in ("nothing", "nothing*"):
        capfd.readouterr()
        done = run(stage, f"{tmp_path}/{nothing}", "--job", "j")
        said = "".join(capfd.readouterr())
        assert (done.exit_code, "there is no such file or directory" in done.stderr) == (2, True), done.output
        assert "\tat " not in said, "a stack trace of Spark's log"


def test_any_format_of_sparks_reader(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    """ORC, which is Spark's own; XML, of strings; JDBC by Derby, whose driver is among Spark's jars."""
    delay = stage.delay(default_target=stage.target())
    at_ms = now_ms() + 3_600_000
    columns = "due bigint, target string, key string, value string"
    spark.createDataFrame([(at_ms, None, "k", "of orc")], columns).write.orc(str(tmp_path / "orc"))
    (tmp_path / "rows.xml").write_text(
        f"<rows><row><due>{at_ms}</due><key>k</key><value>007</value></row><row><due>soon</due></row></rows>"
    )
    assert spark._jvm is not None
    spark._jvm.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    url = f"jdbc:derby:{tmp_path}/database;create=true"
    rows = spark.createDataFrame(
        [(at_ms, "k", "of a database", 1), (at_ms, "k", "left out", 2)], "due bigint, k string, v string, n int"
    )
    rows.write.format("jdbc").options(url=url, dbtable="REMINDERS").save()
    (tmp_path / "url").write_text(f"{url}\n")
    jdbc = ["--format", "jdbc", "--option-file", f"url={tmp_path}/url", "--without", "target", "--without", "headers"]
    names = ["--column", "key=k", "--column", "value=v"]
    query = ["--option", 'query=SELECT * FROM REMINDERS WHERE "n" = 1']

    orc = report(run(stage, tmp_path / "orc", "--job", "orc", "--format", "orc", "--without", "headers"))
    xml = ["--format", "xml", "--option", "rowTag=row", "--without", "headers", "--without", "target"]
    of_xml = report(run(stage, tmp_path / "rows.xml", "--job", "xml", *xml, "--on-invalid", "skip"))
    call = ["schedule", "--config", str(stage.router("schedule").config), "--json", "--job", "db"]
    of_database = report(CliRunner().invoke(cli, [*call, *jdbc, *names, *query]))
    none = CliRunner().invoke(cli, [*call, "NOTHING", *jdbc, *names])
    misspelt = CliRunner().invoke(cli, [*call, "REMINDERS", *jdbc, "--column", "key=k"])

    assert [each["written"] for each in (orc, of_xml, of_database)] == [1, 1, 1]
    assert of_xml["reasons"] == {"INVALID_SCHEDULE": 1}
    assert {record.value for record in stage.records(delay)} == {b"of orc", b"007", b"of a database"}
    assert (none.exit_code, "Table/View 'NOTHING' does not exist" in none.stderr) == (1, True), none.output
    assert (misspelt.exit_code, "column 'value' is missing" in misspelt.stderr) == (2, True), misspelt.output
    (tmp_path / "url").write_text(f"jdbc:derby:{tmp_path}/gone")
    gone = CliRunner().invoke(cli, [*call, "REMINDERS", *jdbc, *names])
    assert (gone.exit_code, "not found" in gone.stderr, "\n\tat" in gone.stderr) == (1, True, False), gone.output


def test_what_a_format_lacks_is_said_in_a_line(
    spark: SparkSession, stage: Stage, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.delay(default_target=stage.target())
    here = tmp_path / "here"
    here.write_text("x")
    for source, options, message in (
        (here, ["--format", "avro"], "org.apache.spark:spark-avro_2.13"),
        (here, ["--format", "orcc"], "did you mean orc?"),
        ("a.b", ["--format", "iceberg"], "iceberg-spark-runtime"),
        (f"{here}s.csv", ["--format", "csv"], "there is no such file or directory"),
        ("t", ["--format", "jdbc", "--option", "url=jdbc:none:x"], "--option driver=CLASS"),
        ("t", ["--format", "jdbc"], "say which database"),
        ("s3a://lake/x", [], "class org.apache.hadoop.fs.s3a.S3AFileSystem is not on Spark's class path"),
    ):
        capfd.readouterr()
        done = run(stage, source, "--job", "j", *options)
        said = done.stderr + "".join(capfd.readouterr())
        assert (done.exit_code, message in done.stderr) == (2, True), done.output
        assert done.stderr.count("error: ") == 1
        assert "\tat " not in said, "a stack trace"
        assert "Traceback" not in said


def test_killed_in_the_middle_and_run_again(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out)
    count, at = 20_000, datetime.now(UTC) + timedelta(hours=1)
    rows = spark.range(count).selectExpr(
        f"timestamp'{at:%Y-%m-%d %H:%M:%S}' due", "cast(null as string) target", "cast(id as string) key",
        "cast(id as string) value",
    )  # fmt: skip
    table = tmp_path / "table"
    rows.write.parquet(str(table))
    options = [str(table), "--config", str(stage.router("schedule").config), "--job", "big", "--without", "headers"]
    conf = [word for setting in CONF for word in ("--conf", setting)]
    call = [sys.executable, "-m", "spark_backfill", "schedule", *options, "--batch", "20", *conf]
    with (tmp_path / "killed.log").open("w") as log:
        job = subprocess.Popen(call, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ})
    try:
        with Ledger(stage.kafka, group_name(stage.group_id, "big"), delay, settled=False) as ledger:

            def done() -> int:
                return sum(each.done for each in ledger.read([0, 1]).values())

            wait_until(lambda: done() > 200 or job.poll() is not None, "the job writes", 120)
            # Spark's Python workers have their own process groups and live on for a moment: they must be shut out.
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            assert 200 < done() < count, (tmp_path / "killed.log").read_text()
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    found = report(run(stage, table, "--job", "big", "--without", "headers"))
    assert found["before"] + found["written"] == count
    assert 0 < found["before"] < count
    time.sleep(1)
    assert set(ids(stage, delay).values()) == {1}
    assert {record.value for record in stage.records(delay)} == {b"%d" % number for number in range(count)}
    other = parquet(spark, tmp_path / "other", [(at, None, "k", "v", None)])
    done_otherwise = run(stage, other, "--job", "big")
    assert (done_otherwise.exit_code, "of another table" in done_otherwise.stderr) == (1, True), done_otherwise.output


@pytest.mark.parametrize("partitions", [1, 2])
def test_rows_that_vanish_between_the_readings_end_the_job(
    partitions: int, spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    """All rows of a delay partition vanish: of one of two, or of the only one, and so of the table."""
    delay = stage.delay(partitions=partitions, default_target=stage.target())
    vanished, at_ms = tmp_path / "vanished", now_ms() + 3_600_000

    def table(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys = [f"k{number}".encode() for number in batch.column("id").to_pylist()]
            if vanished.exists():
                keys = [key for key in keys if partition_of_key(key, partitions) != 0]
            yield pa.RecordBatch.from_pydict({"due": [at_ms] * len(keys), "key": keys, "value": keys})

    def say(line: str) -> None:
        if "valid" in line and not vanished.exists():
            vanished.touch()

    frame = spark.range(50).mapInArrow(table, "due bigint, key binary, value binary")
    given = rows(frame, checked(types(frame), parse_mapping([]), ["target", "headers"], None))
    settings = settings_of(stage, tmp_path)
    request = ScheduleRequest(settings.delay_topic(delay), "one")
    with pytest.raises(JobError, match=r"rows of delay partition 0 are not those that were surveyed \(0 now\)"):
        schedule(settings, request, given, say)
    left = len(stage.records(delay))
    assert (left > 0) == (partitions > 1)
    vanished.unlink()
    done = schedule(settings, request, given, lambda _: None)
    assert (done.before, done.written) == (left, 50 - left)
    assert set(ids(stage, delay).values()) == {1}
    assert len(ids(stage, delay)) == 50

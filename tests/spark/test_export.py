"""Tests of the table of pending records, beside a running router, against the records in the topics."""

import json
from base64 import b64decode
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from snapshots.segments.manifest import decode_manifest
from spark_backfill.build import index_job
from spark_backfill.build.index_job import Options
from spark_backfill.build.scope import Asked
from spark_backfill.cli import cli
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Header, Load, Stage, header, now_ms, wait_until
from tests.spark.backfill import config_file, delay_topic, settings_of, staged

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 3
FAR_MS = 3_600_000


class Place(NamedTuple):
    """The place of a record in the delay topic."""

    partition: int
    offset: int


def export(stage: Stage, folder: Path, delay: str, *options: str) -> dict[str, int]:
    config = folder / "export"
    config.mkdir(exist_ok=True)
    call = ["export", "--topic", delay, "--config", str(config_file(stage, config)), "--json", *options]
    done = CliRunner().invoke(cli, call)
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def rows(spark: SparkSession, path: Path) -> dict[Place, Any]:
    """Return the rows by their place; no place may occur twice."""
    found = spark.read.parquet(str(path)).collect()
    by_place = {Place(row.partition, row.offset): row for row in found}
    assert len(by_place) == len(found)
    return by_place


def pending(stage: Stage, delay: str) -> dict[Place, Any]:
    """Return the expected rows by place: the schedules sent, except if they have left or a receipt names them."""
    sent = {Place(each.partition, each.offset): each for each in stage.records(delay)}
    gone = set()
    for topic in (*stage.targets, f"{delay}.rejected"):
        for each in stage.records(topic):
            name, partition, offset = (header(each, "delay-source") or b"").decode().rsplit("/", 2)
            assert name == delay
            gone.add(Place(int(partition), int(offset)))
    for each in stage.records(f"{delay}.receipts"):
        cancelled = json.loads(each.value or b"{}")["cancelled"]
        gone |= {Place(each.partition, one["offset"]) for one in cancelled}
    controls = {place for place, each in sent.items() if {name for name, _ in each.headers} & set(CONTROLS)}
    return {place: each for place, each in sent.items() if place not in gone | controls}


CONTROLS = ("deliver-cancel", "deliver-move")


def far(number: int, rng: Random | None, began_ms: int) -> Header:
    """Return a due time: scattered, or in the order of the log, which makes segments with pointers."""
    after_ms = rng.randrange(FAR_MS) if rng else number
    return "deliver-at", b"%d" % (began_ms + FAR_MS + after_ms)


def act(stage: Stage, delay: str, began_ms: int) -> int:
    """Cancel and move some schedules of each partition. Return the number of expected receipts."""
    controls = 0
    for partition in range(PARTITIONS):
        for number in range(0, 300, 20):
            stage.post(delay, ("deliver-cancel", b"%d-%d" % (partition, number)), value=b"", partition=partition)
        for number in range(5, 300, 50):
            moved: Header = ("deliver-at", b"%d" % (began_ms + 3 * FAR_MS + number))
            stage.post(delay, ("deliver-move", b"%d-%d" % (partition, number)), moved, value=b"", partition=partition)
        controls += len(range(0, 300, 20)) + len(range(5, 300, 50))
    stage.flush()
    return controls


def post(stage: Stage, delay: str, rng: Random, first: int, count: int, began_ms: int) -> None:
    for partition in range(PARTITIONS):
        for number in range(first, first + count):
            named: Header = ("deliver-id", b"%d-%d" % (partition, number))
            due = far(number, None if partition == 2 else rng, began_ms)
            stage.post(delay, named, due, value=b"%d" % number, partition=partition)
    stage.flush()


def test_beside_a_running_router_it_is_what_was_sent_and_neither_left_nor_cancelled(
    spark: SparkSession, stage: Stage, tmp_path: Path, rng: Random
) -> None:
    out, gated = stage.target(), stage.target("gated")
    options = {"seal_age": "1s", "seal_records": 100, "recurring": True, "max_delay": "7d"}
    delay = delay_topic(stage, PARTITIONS, default_target=out, allowed_targets=[gated], **options)
    policies = f"__{stage.word}.policies"
    stage.create([NewTopic(policies, 1, 1, config={"cleanup.policy": "compact"})])
    began_ms = now_ms()
    post(stage, delay, rng, 0, 150, began_ms)
    # Enough records in due order, so that a segment prefers pointers.
    for number in range(1_000, 1_500):
        stage.post(delay, far(number, None, began_ms), value=b"%d" % number, partition=2)
    stage.flush()
    settings = settings_of(stage, tmp_path)
    # Adopted buckets, each with its own watermark at first.
    index_job.index(spark, settings, settings.delay_topic(delay), Asked(), Options(task_records=1_000), print)
    with stage.router(policies_topic=policies) as router:
        router.start_and_wait()
        wait_until(lambda: all(staged(stage, delay, each) == ([], []) for each in range(PARTITIONS)), "adopted", 60)
        pause(router, gated)
        post(stage, delay, rng, 150, 150, began_ms)
        for number in range(30):
            soon: Header = ("deliver-at", b"%d" % (now_ms() + rng.randrange(500)))
            stage.post(delay, soon, value=b"soon", partition=number % PARTITIONS)
        for partition in range(PARTITIONS):
            stage.post(delay, ("deliver-to", gated.encode()), value=b"held", partition=partition)
            stage.post(delay, ("deliver-after", b"soon"), value=b"", partition=partition)
        first = stage.send(delay, ("deliver-every", b"PT2H"), ("deliver-at", b"%d" % now_ms()), value=b"again")
        receipts = act(stage, delay, began_ms)
        stage.wait_records(f"{delay}.receipts", receipts)
        stage.wait_records(out, 31)
        wait_until(lambda: held(stage, delay) == PARTITIONS, "all of them are held")
        before, known = pending(stage, delay), {Place(each.partition, each.offset) for each in stage.records(delay)}
        with Load(stage, [delay], rng, partitions=PARTITIONS, a_second=200, delays_ms=(FAR_MS, 2 * FAR_MS)):
            told = export(stage, tmp_path, delay, str(tmp_path / "table"), "--with", "value", "--with", "headers")
        found = rows(spark, tmp_path / "table")
        kinds = bucket_kinds(stage, delay)
        halted(router, stage, delay, tmp_path, spark)

    assert kinds == {"inline", "pointer"}, "both kinds of segments are there"
    assert before.keys() <= found.keys()
    came = {Place(each.partition, each.offset) for each in stage.records(delay)} - known
    assert found.keys() - before.keys() <= came, "what came in meanwhile, and nothing else"
    states = [row.state for row in found.values()]
    assert told == {
        **{state: states.count(state) for state in ("held", "indexed", "not_indexed", "gone")},
        "controls_not_indexed": 0,
    }
    assert (told["held"], told["gone"]) == (PARTITIONS, 0)
    for place, record in before.items():
        row, headers = found[place], dict(record.headers)
        assert (row.topic, row.targets) == (delay, [gated if record.value == b"held" else out])
        assert (bytes(row.key), bytes(row.value)) == (record.key, record.value)
        assert [(each["key"], bytes(each["value"])) for each in row.headers] == list(record.headers)
        assert row.id == (headers["deliver-id"].decode() if "deliver-id" in headers else None)
        if "deliver-at" in headers and record.value != b"again":
            assert row.due.timestamp() * 1_000 == pytest.approx(int(headers["deliver-at"]))
    (again,) = [row for row in found.values() if row.value is not None and bytes(row.value) == b"again"]
    assert (again.series, again.offset > again.series) == (int(first.rpartition("/")[2]), True)
    moved = [row for row in found.values() if row.due.timestamp() * 1_000 >= began_ms + 3 * FAR_MS]
    assert len(moved) == PARTITIONS * len(range(5, 300, 50))


def halted(router: RouterProcess, stage: Stage, delay: str, folder: Path, spark: SparkSession) -> None:
    """Export from a stopped router: the export reports the records that it has not indexed."""
    router.stop()
    # Records indexed since its last transaction are not in its state: indexing alone commits nothing.
    left = export(stage, folder, delay, str(folder / "stopped"), "--partition", "1")["not_indexed"]
    stage.send(delay, ("deliver-at", b"%d" % (now_ms() + FAR_MS)), value=b"late one", partition=1)
    stage.send(delay, ("deliver-cancel", b"1-1"), value=b"", partition=1)
    told = export(stage, folder, delay, str(folder / "halted"), "--partition", "1")
    assert (told["not_indexed"], told["controls_not_indexed"]) == (left + 1, 1)
    found = rows(spark, folder / "halted")
    assert {place.partition for place in found} == {1}
    assert {row.id for row in found.values()} >= {"1-1"}
    assert not {"value", "headers"} & set(spark.read.parquet(str(folder / "halted")).columns)
    into_a_database(stage, delay, folder, spark)


def into_a_database(stage: Stage, delay: str, folder: Path, spark: SparkSession) -> None:
    """Export the same to Derby, which Spark includes: without lists, and never over existing rows without a request."""
    assert spark.sparkContext._jvm is not None
    # Otherwise its log would lie in the folder where the tests were started.
    spark.sparkContext._jvm.System.setProperty("derby.stream.error.file", str(folder / "derby.log"))
    url = f"jdbc:derby:{folder / 'database'};create=true"
    of_database = ("pending", "--format", "jdbc", "--option", f"url={url}", "--partition", "1")
    whole = str(folder / "whole")
    told = export(stage, folder, delay, whole, "--partition", "1", "--with", "value", "--with", "headers")
    assert export(stage, folder, delay, *of_database, "--with", "value", "--with", "headers") == told

    def stored() -> list[Any]:
        return spark.read.format("jdbc").options(url=url, dbtable="pending").load().collect()

    found, expected = {row.offset: row for row in stored()}, rows(spark, Path(whole))
    assert found.keys() == {place.offset for place in expected}
    for place, row in expected.items():
        same = found[place.offset]
        plain = ("topic", "partition", "due", "state", "id", "series", "key", "value")
        assert [same[name] for name in plain] == [row[name] for name in plain]
        assert same.targets == ",".join(row.targets)
        headers = [(each["key"], each["value"]) for each in json.loads(same.headers)]
        assert [(name, None if raw is None else b64decode(raw)) for name, raw in headers] == [*map(tuple, row.headers)]
    call = ["export", "--topic", delay, "--config", str(folder / "export" / "jobs.toml"), *of_database]
    again = CliRunner().invoke(cli, call)
    assert again.exit_code == 1, again.stderr
    assert again.stderr.splitlines()[-1].startswith(
        "error: pending (--format jdbc): Table or view 'pending' already exists"
    )
    export(stage, folder, delay, *of_database, "--with", "value", "--with", "headers", "--mode", "append")
    assert len(stored()) == 2 * len(found)
    export(stage, folder, delay, *of_database, "--mode", "overwrite")
    assert "value" not in spark.read.format("jdbc").options(url=url, dbtable="pending").load().columns


def pause(router: RouterProcess, target: str) -> None:
    """Pause a target, and wait until the router knows of it."""
    paused = router.command("pause", "--target", target)
    assert paused.returncode == 0, paused.stderr
    wait_until(lambda: router.events("policy_changed") != [], "the router knows of the pause")


def held(stage: Stage, delay: str) -> int:
    """Return the number of records that wait for their targets."""
    return sum(key.startswith(b"held/") for _, key in latest(stage, delay))


def latest(stage: Stage, delay: str) -> dict[tuple[int, bytes], bytes]:
    """Return the content of the state topic, by partition and key."""
    state: dict[tuple[int, bytes], bytes | None] = {}
    for each in stage.records(f"{delay}.delay-state"):
        state[each.partition, each.key or b""] = each.value
    return {place: value for place, value in state.items() if value is not None}


def bucket_kinds(stage: Stage, delay: str) -> set[str]:
    """Return the placements of the segments in present manifests."""
    return {
        ref.placement.name.lower()
        for (_, key), value in latest(stage, delay).items()
        if key.startswith(b"bucket/")
        for ref in decode_manifest(key, value).segments
    }

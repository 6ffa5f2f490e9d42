"""Tests of the jobs on a broker with TLS, SASL/SCRAM and ACLs, each with just the rights of ``check --acls --job``."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException
from pyspark.sql import SparkSession

from sidecar.cli.program import cli as router_cli
from sidecar.cluster.rights.acls import Acl
from sidecar.dev.demo.router import config_text
from snapshots.state.staged import StagedBucket
from spark_backfill import settings
from spark_backfill.build import index_job, rebuild_job
from spark_backfill.build.index_job import Options
from spark_backfill.build.scope import Asked
from spark_backfill.cli import cli
from tests.integration.scenario import Stage, now_ms, wait_until
from tests.integration.secured import Secured, secured_or_skip
from tests.spark.backfill import delay_topic, staged

USER = "jobs"
RECORDS = 300

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    yield from secured_or_skip(request, tmp_path_factory, USER)


@pytest.fixture
def stage(broker: Secured, tmp_path: Path) -> Stage:
    """Return a stage behind the plain listener, where the test has all rights."""
    return Stage(broker.plain, tmp_path)


def configuration(broker: Secured, stage: Stage, folder: Path) -> Path:
    """Write the configuration of the jobs, which connect through the secured listener. Return the file."""
    file = folder / "jobs.toml"
    tables: dict[str, Any] = {
        "kafka": {"bootstrap.servers": broker.bootstrap, **broker.client(USER)},
        "router": {"group_id": stage.group_id},
        "delay_topics": list(stage.delays.values()),
    }
    file.write_text(config_text(tables))
    return file


def grant(broker: Secured, config: Path, job: str) -> None:
    """Grant the rights that are listed for the job, and no others."""
    if left := [Acl(*each, why="") for each in broker.granted(USER)]:
        broker.revoke(USER, *left)
    done = CliRunner().invoke(router_cli, ["check", "--acls", "--json", "--job", job, "--config", str(config)])
    assert done.exit_code == 0, done.output
    listed = [Acl(**each) for each in json.loads(done.stdout)["acls"]]
    broker.grant(USER, *listed)
    wanted = {(acl.resource_type, acl.name, acl.pattern_type, acl.operation) for acl in listed}
    wait_until(lambda: broker.granted(USER) == wanted, f"the brokers have {wanted}")


def run(job: str, config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [job, *arguments, "--config", str(config)])


def succeeded(done: Result) -> str:
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done.output


def test_each_job_with_exactly_the_rights_that_are_listed(
    spark: SparkSession, broker: Secured, stage: Stage, tmp_path: Path
) -> None:
    delay = delay_topic(stage, default_target=stage.target(), recurring=True, begun=False)
    config = configuration(broker, stage, tmp_path)
    table = tmp_path / "rows.csv"
    with table.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["due", "key", "value"])
        rows.writerows([now_ms() + 3_600_000 + number, number, f"order {number}"] for number in range(RECORDS))
    written = ("--format", "csv", "--without", "target", "--without", "headers", "--job", "rows", "--topic", delay)

    refused = run("schedule", config, str(table), *written)
    assert refused.exit_code == 1
    grant(broker, config, "schedule")
    assert f"{RECORDS} of {RECORDS} rows written" in succeeded(run("schedule", config, str(table), *written))

    loaded = settings.load(config, {})
    topic = loaded.delay_topic(delay)
    with pytest.raises(KafkaException):
        index_job.index(spark, loaded, topic, Asked(), Options(), print)
    grant(broker, config, "index")
    assert index_job.index(spark, loaded, topic, Asked(), Options(), print).entries == RECORDS
    assert [each.manifest.entries for each in waiting(stage, delay)] == [RECORDS]

    grant(broker, config, "audit")
    audited = json.loads(succeeded(run("audit", config, "--topic", delay, "--grace", "0s", "--json")).splitlines()[-1])
    assert audited["total"]["pending"] == RECORDS

    grant(broker, config, "export")
    exported = json.loads(
        succeeded(run("export", config, str(tmp_path / "t"), "--topic", delay, "--json")).splitlines()[-1]
    )
    assert exported["not_indexed"] == RECORDS

    # The job reads the receipts only where it meets a control.
    control = stage.send(delay, ("deliver-cancel", b"nobody"))
    said = b'{"action": "cancel", "outcome": "not-pending", "cancelled": [], "due": null}'
    stage.send(f"{delay}.receipts", ("delay-source", control.encode()), value=said)
    grant(broker, config, "rebuild")
    assert rebuild_job.rebuild(spark, loaded, topic, Asked(), Options("rebuild"), print).entries == RECORDS
    assert {each.restores for each in waiting(stage, delay)} == {False, True}


def waiting(stage: Stage, delay: str) -> list[StagedBucket]:
    return staged(stage, delay)[0]

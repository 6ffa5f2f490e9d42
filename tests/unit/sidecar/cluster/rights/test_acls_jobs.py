"""The rights of the Spark jobs, from the configuration alone."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sidecar.cli.program import cli
from sidecar.cluster.rights import acls_jobs
from sidecar.config.model import load
from tests.support.configuration import configured
from tests.support.rights import by_resource


def rights(file: Path, *jobs: str) -> dict[tuple[str, str, str], str]:
    """Return the operations of each resource, sorted."""
    return by_resource(acls_jobs.needed(load(file, {}), jobs).acls)


SPARK = [job for job in acls_jobs.JOBS if job != "redrive"]
INDEX = {
    ("topic", "orders.delay", "literal"): "DescribeConfigs Read",
    ("topic", "orders.delay.delay-state", "literal"): "Read",
    ("topic", "orders.delay.delay-snapshots", "literal"): "Write",
    ("topic", "orders.delay.delay-backfill", "literal"): "Read Write",
    ("transactional-id", "delay-router~orders.delay~", "prefixed"): "Write",
    ("group", "delay-router", "literal"): "Describe",
}
RELEASED = {
    ("topic", "orders.delay.rejected", "literal"): "DescribeConfigs Read",
    ("topic", "orders", "literal"): "DescribeConfigs Read",
    ("topic", "eu.", "prefixed"): "DescribeConfigs Read",
}
RECEIPTS = {("topic", "orders.delay.receipts", "literal"): "DescribeConfigs Read"}
AUDIT = {
    ("topic", "orders.delay", "literal"): "DescribeConfigs Read",
    **RECEIPTS,
    **RELEASED,
    ("group", "delay-router", "literal"): "Describe",
}
SCHEDULE = {
    ("topic", "orders.delay", "literal"): "DescribeConfigs Read Write",
    ("topic", "orders", "literal"): "Describe",
    ("topic", "eu.", "prefixed"): "Describe",
    ("group", "delay-router.schedule.", "prefixed"): "Read",
    ("transactional-id", "delay-router.schedule.", "prefixed"): "Write",
}

REDRIVE = {
    ("topic", "orders.delay.rejected", "literal"): "Read Write",
    ("topic", "orders.delay", "literal"): "Write",
    ("transactional-id", "delay-router.orders.delay.rejected.redrive", "literal"): "Write",
    ("group", "delay-router", "literal"): "Describe",
}


@pytest.mark.parametrize(
    ("job", "wanted"),
    [
        ("index", INDEX),
        ("rebuild", {**INDEX, **RECEIPTS, **RELEASED, ("topic", "__delay_router_policies", "literal"): "Read"}),
        ("audit", AUDIT),
        ("schedule", SCHEDULE),
        ("redrive", REDRIVE),
    ],
)
def test_a_job_needs_this_and_nothing_else(tmp_path: Path, job: str, wanted: dict[tuple[str, str, str], str]) -> None:
    assert rights(configured(tmp_path, "eu.*"), job) == wanted


def test_index_need_not_ask_where_the_payload_goes_when_it_is_told(tmp_path: Path) -> None:
    file = configured(tmp_path)
    file.write_text(file.read_text() + 'placement = "inline"\n')
    assert rights(file, "index")["topic", "orders.delay", "literal"] == "Read"


def test_rebuild_reads_the_copy_of_the_key_where_schedules_recur(tmp_path: Path) -> None:
    file = configured(tmp_path)
    file.write_text(file.read_text() + "recurring = true\n")
    assert rights(file, "rebuild")["topic", "orders.delay.delay-snapshots", "literal"] == "Read Write"


def test_several_jobs_of_one_principal_need_each_right_once(tmp_path: Path) -> None:
    found = rights(configured(tmp_path), *SPARK)
    assert found["topic", "orders.delay", "literal"] == "DescribeConfigs Read Write"
    assert set(found) == {key for job in ("audit", "rebuild", "schedule") for key in rights(configured(tmp_path), job)}


def test_no_job_may_write_state_or_release(tmp_path: Path) -> None:
    for (kind, name, _), operations in rights(configured(tmp_path, "eu.*"), *SPARK).items():
        if name in ("orders", "eu.", "orders.delay.rejected", "orders.delay.delay-state"):
            assert "Write" not in operations, name
        if (kind, name) == ("group", "delay-router"):
            assert operations == "Describe"


def test_what_no_acl_can_say_is_told_in_the_words_of_the_job(tmp_path: Path) -> None:
    config = load(configured(tmp_path, "*.out"), {})
    assert acls_jobs.needed(config, ["index"]).notes == ()
    (note,) = acls_jobs.needed(config, ["schedule"]).notes
    assert "grant Describe on each" in note
    (note,) = acls_jobs.needed(config, ["audit", "rebuild"]).notes
    assert "grant Read and DescribeConfigs on each" in note


def test_they_are_printed_as_those_of_the_router(tmp_path: Path) -> None:
    call = ["check", "--config", str(configured(tmp_path)), "--job", "index"]
    refused = CliRunner().invoke(cli, call)
    assert refused.exit_code == 2
    assert "--job belongs to --acls" in refused.output
    done = CliRunner().invoke(cli, [*call, "--acls", "--principal", "User:spark"])
    assert done.exit_code == 0, done.output
    assert "--operation Describe --group delay-router" in done.output
    assert "--transactional-id 'delay-router~orders.delay~' --resource-pattern-type prefixed" in done.output
    plain = json.loads(CliRunner().invoke(cli, [*call, "--acls", "--json"]).stdout)
    assert {acl["name"] for acl in plain["acls"]} == {name for _, name, _ in INDEX}

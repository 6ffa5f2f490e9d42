"""The list of rights, from the configuration alone, and how it is printed."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sidecar.cli.program import cli
from sidecar.cluster.rights import acls, acls_jobs
from sidecar.cluster.rights.acls import Acl
from sidecar.config.model import load
from tests.support.configuration import configured
from tests.support.rights import by_resource


def rights(file: Path) -> dict[tuple[str, str, str], str]:
    """Return the operations of each resource, in the order printed."""
    return by_resource(acls.needed(load(file, {})).acls)


def notes(file: Path) -> tuple[str, ...]:
    return acls.needed(load(file, {})).notes


def run(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["check", "--acls", "--config", str(file), *arguments])


def test_a_router_needs_this_and_nothing_else(tmp_path: Path) -> None:
    assert rights(configured(tmp_path)) == {
        ("topic", "orders.delay", "literal"): "Read Write DescribeConfigs",
        ("topic", "orders.delay.delay-state", "literal"): "Read Write DescribeConfigs",
        ("topic", "orders.delay.delay-snapshots", "literal"): "Read Write Delete DescribeConfigs",
        ("topic", "orders.delay.delay-backfill", "literal"): "Read Write DescribeConfigs",
        ("topic", "orders.delay.rejected", "literal"): "Read Write DescribeConfigs",
        ("topic", "orders.delay.receipts", "literal"): "Read Write DescribeConfigs",
        ("topic", "__delay_router_policies", "literal"): "Read DescribeConfigs",
        ("topic", "__delay_router_status", "literal"): "Read Write DescribeConfigs",
        ("topic", "orders", "literal"): "Write Read",
        ("group", "delay-router", "literal"): "Read",
        ("transactional-id", "delay-router.", "prefixed"): "Write",
    }


def test_only_trimming_needs_to_delete_from_the_delay_topic(tmp_path: Path) -> None:
    assert "Delete" in rights(configured(tmp_path, trim=True))["topic", "orders.delay", "literal"]


def test_the_admin_api_writes_rejected_records_to_the_delay_topic_and_needs_no_more(tmp_path: Path) -> None:
    without = rights(configured(tmp_path))
    file = configured(tmp_path)
    file.write_text(file.read_text() + '\n[admin]\ntoken_file = "/tokens"\n')
    assert rights(file) == without
    # Its transactional id has a prefix that a router may use already.
    ids = [name for (kind, name, _), _ in rights(file).items() if kind == "transactional-id"]
    redrive = acls_jobs.needed(load(file, {}), ["redrive"]).acls
    assert [each.name.startswith(tuple(ids)) for each in redrive if each.resource_type == "transactional-id"] == [True]


def test_a_router_without_policies_needs_no_topic_of_them(tmp_path: Path) -> None:
    file = configured(tmp_path)
    file.write_text(file.read_text().replace("[router]", '[router]\npolicies_topic = ""'))
    assert not [resource for resource in rights(file) if "polic" in resource[1]]


def targets(file: Path) -> set[tuple[str, str]]:
    return {(name, pattern) for (_, name, pattern), operations in rights(file).items() if operations == "Write Read"}


def test_patterns_become_prefixes_and_nothing_is_said_twice(tmp_path: Path) -> None:
    file = configured(tmp_path, "orders", "billing.*", "billing.eu", "bill*", "bill*", "audit")
    assert targets(file) == {("orders", "literal"), ("bill", "prefixed"), ("audit", "literal")}
    assert notes(file) == ()


def test_the_dead_letter_topic_is_a_target(tmp_path: Path) -> None:
    file = configured(tmp_path, "orders")
    file.write_text(file.read_text() + 'retry = {attempts = 3, dead_letter = "orders.dlq"}\n')
    assert targets(file) == {("orders", "literal"), ("orders.dlq", "literal")}


def test_what_no_acl_can_say_is_told(tmp_path: Path) -> None:
    file = configured(tmp_path, "*.out", "eu.*.out", "orders*")
    assert targets(file) == {("eu.", "prefixed"), ("orders", "prefixed")}
    open_end, wide, own = notes(file)
    assert open_end == "no ACL says '*.out' of orders.delay: grant Write and Read on each of its targets by name"
    assert wide == "an ACL on the prefix 'eu.' is wider than the allowed target 'eu.*.out'"
    assert own.startswith("the prefix 'orders' of the allowed target 'orders*' also covers orders.delay, ")


def test_what_delay_topics_share_is_listed_once(tmp_path: Path) -> None:
    shared = 'default_target = "orders"\nrejected_topic = "orders.delay.rejected"\n'
    more = f'[[delay_topics]]\nname = "refunds.delay"\n{shared}'
    file = configured(tmp_path, more=more)
    found = acls.needed(load(file, {})).acls
    assert len(set(found)) == len(found)
    assert [acl.operation for acl in found if acl.name == "orders.delay.rejected"] == [
        "Read",
        "Write",
        "DescribeConfigs",
    ]
    assert [acl.operation for acl in found if acl.resource_type == "topic" and acl.name == "orders"] == [
        "Write",
        "Read",
    ]


def parsed(line: str) -> list[Acl]:
    """Return the rights that ``kafka-acls.sh`` would make of a line."""
    words = shlex.split(line)
    values: dict[str, list[str]] = {}
    rest = iter(words[1:])
    for option in rest:
        values.setdefault(option, []).extend([] if option == "--add" else [next(rest)])
    (kind,) = {"--topic", "--group", "--transactional-id"} & values.keys()
    (name,), (pattern,) = values[kind], values.get("--resource-pattern-type", ["literal"])
    return [Acl(kind[2:], name, pattern, operation, "") for operation in values["--operation"]]


@pytest.mark.parametrize("group", ["delay-router", "the router's $(group)"])
def test_the_lines_are_commands_for_a_shell(tmp_path: Path, group: str) -> None:
    file = configured(tmp_path, "billing.*", "*.out", trim=True, group=group)
    lines = run(file, "--principal", "User:CN=router,O=a b").stdout.splitlines()
    commands = [line for line in lines if not line.startswith("#")]
    assert [acl for line in commands for acl in parsed(line)] == [
        acl._replace(why="") for acl in acls.needed(load(file, {})).acls
    ]
    start = ["kafka-acls.sh", "--bootstrap-server", "b:9093", "--add", "--allow-principal", "User:CN=router,O=a b"]
    assert all(shlex.split(line)[:6] == start for line in commands)
    assert [line for line in lines if line.startswith("# NOTE: ")] == [f"# NOTE: {notes(file)[0]}"]


def test_json_says_the_same(tmp_path: Path) -> None:
    file = configured(tmp_path, "*.out")
    printed: dict[str, Any] = json.loads(run(file, "--json").stdout)
    assert printed["principal"] == "User:<router>"
    assert tuple(printed["notes"]) == notes(file)
    assert [Acl(**each) for each in printed["acls"]] == [*acls.needed(load(file, {})).acls]


@pytest.mark.parametrize("principal", ["router", "User:", ""])
def test_a_principal_has_a_type_and_a_name(tmp_path: Path, principal: str) -> None:
    refused = run(configured(tmp_path), "--principal", principal)
    assert refused.exit_code == 2
    assert "write User:NAME" in refused.stderr


def test_a_principal_alone_is_wrong_usage(tmp_path: Path) -> None:
    call = ["check", "--config", str(configured(tmp_path)), "--principal", "User:a"]
    refused = CliRunner().invoke(cli, call)
    assert refused.exit_code == 2
    assert "--principal belongs to --acls" in refused.stderr

"""Tests of the operator's commands, which talk to Kafka directly, while a router runs."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import NewTopic

from sidecar.cli.program import cli
from sidecar.dev import local_kafka
from sidecar.kernel.choice import Kernel
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, Stage, wait_until


@dataclass
class Desk:
    """A stage, and the commands of an operator on it."""

    stage: Stage
    options: dict[str, str]

    def router(self) -> RouterProcess:
        return self.stage.router("router", instance_id="one", **self.options)

    def run(self, router: RouterProcess, *arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, [*arguments, "--config", str(router.config)])
        assert result.exit_code == code, result.output
        return result

    def json(self, router: RouterProcess, *arguments: str) -> Any:
        return json.loads(self.run(router, *arguments, "--json").stdout)


@pytest.fixture
def desk(kafka: local_kafka.Cluster, tmp_path: Path) -> Iterator[Desk]:
    """Yield a desk with its own status topic and policies topic."""
    stage = Stage(kafka.bootstrap, tmp_path)
    names = {"status_topic": f"__{stage.word}.status", "policies_topic": f"__{stage.word}.policies"}
    compact = {"cleanup.policy": "compact", **APPEND_TIME}
    stage.create([NewTopic(name, 1, 1, config=compact) for name in names.values()])
    yield Desk(stage, names)
    stage.print_logs()


def test_status_pending_and_lookup(desk: Desk) -> None:
    stage = desk.stage
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out)
    with desk.router() as router:
        router.start_and_wait()
        place = stage.send(delay, ("deliver-after", b"PT1H"))
        gone = stage.send(delay, ("deliver-after", b"100"), partition=1)
        stage.wait_records(out, 1)
        wait_until(lambda: desk.json(router, "pending", delay)["by_target"] == {out: 1}, "it is counted")
        answer = desk.json(router, "status")
        kernel = Kernel.chosen(os.environ).name
        assert answer["kernels"] == {"one": kernel}
        assert (answer["instances"], answer["topics"][0]["pending"]) == (["one"], 1)
        assert [each["state"] for each in answer["topics"][0]["partitions"]] == ["active", "active"]
        line, *others = desk.run(router, "status", delay).stdout.splitlines()[1:]
        assert (line.split()[:2], line.split()[-1], others) == ([delay, "1"], "active", [f"routers: one ({kernel})"])
        assert f"{delay}/1" in desk.run(router, "status", delay, "--wide").stdout
        of_router = desk.json(router, "status", "--url", f"http://127.0.0.1:{router.port}")
        assert of_router["topics"][delay]["released"] == 1
        shown = desk.run(router, "pending", delay).stdout
        assert f"{delay}: 1 pending, by time to go" in shown
        assert out in shown
        (listed,) = desk.json(router, "schedules", delay)["schedules"]
        assert f"{delay}/{listed['partition']}/{listed['offset']}" == place
        assert (listed["targets"], listed["id"]) == ([out], None)
        assert desk.json(router, "schedules", delay, "--id", "other") == {
            "topic": delay,
            "schedules": [],
            "next_from": None,
        }
        found = desk.json(router, "lookup", place)
        assert (found["fate"], found["targets"]) == ("pending", [out])
        assert desk.run(router, "lookup", gone).stdout.startswith(f"{gone}: released; due 20")
        assert "offsets begin" not in desk.run(router, "lookup", f"{delay}/0/99", code=1).stdout
        assert "has 2 partitions" in desk.run(router, "lookup", f"{delay}/2/0", code=2).stderr
        assert "not a configured delay topic" in desk.run(router, "pending", "nope", code=2).stderr
        assert router.stop() == 0
        stopped = desk.run(router, "status", delay, code=1).stdout
        assert "unserved" in stopped
        # The number of pending records varies.
        assert f"{delay}/0: no router has it: one stopped" in stopped
        assert stopped.endswith("routers: none has reported lately\n")


def test_policies_are_set_shown_and_unset(desk: Desk) -> None:
    stage = desk.stage
    out = stage.target()
    delay = stage.delay(default_target=out)
    router = desk.router()
    assert "No policy is set" in desk.run(router, "policy", "get").stdout
    told = desk.run(router, "policy", "set", f"topic/{delay}", "max_delay=1h", f"allowed_targets={out},x.*").stdout
    assert told == f"topic/{delay}: max_delay = 1h, allowed_targets = {out},x.*\n"
    desk.run(router, "policy", "set", f"target/{out}", "records_per_second=50", "bytes_per_second=1MiB")
    policies = desk.json(router, "policy", "get")["policies"]
    assert policies == {
        f"topic/{delay}": {"max_delay": "1h", "allowed_targets": [out, "x.*"]},
        f"target/{out}": {"records_per_second": 50, "bytes_per_second": "1MiB"},
    }
    assert "x.*" in desk.run(router, "policy", "get").stdout
    values = desk.json(router, "policy", "get", delay)["values"]
    assert values["max_delay"] == {"value": "1h", "origin": f"topic/{delay}", "is_default": False}
    assert values["tick"]["origin"] == "configuration"
    values = desk.json(router, "policy", "get", delay, "--target", out)["values"]
    assert values["records_per_second"] == {"value": 50, "origin": f"target/{out}", "is_default": False}
    desk.run(router, "policy", "unset", f"topic/{delay}", "max_delay")
    assert desk.json(router, "policy", "get", delay)["values"]["max_delay"]["origin"] == "configuration"
    desk.run(router, "policy", "unset", f"topic/{delay}", "--all")
    assert desk.json(router, "policy", "get")["policies"].keys() == {f"target/{out}"}
    for arguments, message in (
        (["set", f"topic/{delay}", "max_dealy=1h"], "max_dealy: unknown key; did you mean 'max_delay'?"),
        (["set", "default", "default_target=x"], "it belongs to one delay topic; set it for topic/NAME"),
        (["set", "elsewhere", "paused=true"], "no such scope; write default, topic/NAME or target/NAME"),
        (["get", "--target", out], "name the delay topic, too"),
    ):
        assert message in desk.run(router, "policy", *arguments, code=2).stderr


def test_pause_resume_drain_and_undrain(desk: Desk) -> None:
    stage = desk.stage
    out, other = stage.target(), stage.target("other")
    delay = stage.delay(partitions=2, default_target=out, allowed_targets=[other])
    with desk.router() as router:
        router.start_and_wait()
        stage.send(delay, ("deliver-after", b"PT1H"))

        def states() -> list[str]:
            return [each["state"] for each in desk.json(router, "status")["topics"][0]["partitions"]]

        desk.run(router, "pause", "--target", other, "--reason", "it is moved")
        wait_until(lambda: router.events("policy_changed") != [], "the router knows")
        stage.send(delay, ("deliver-to", other.encode()))
        wait_until(lambda: desk.json(router, "status")["topics"][0]["partitions"][0]["held"] == 1, "one is held")
        wait_until(lambda: desk.json(router, "pending", delay)["by_target"] == {out: 1, other: 1}, "it is counted")
        assert desk.json(router, "pending", delay)["by_due"][0] == {"within_s": 0.0, "records": 1}
        why = desk.json(router, "status")["topics"][0]["partitions"][0]["why"]
        assert f"target {other} is paused by policy target/{other}: it is moved" in why
        desk.run(router, "pause", delay)
        wait_until(lambda: states() == ["paused", "paused"], "it is paused")
        assert desk.json(router, "status")["topics"][0]["paused"] is True
        desk.run(router, "resume", "--target", other)
        # Longer than a router takes to notice the change.
        time.sleep(1.5)
        assert stage.records(other) == [], "the delay topic's pause is for all targets"
        said = desk.run(router, "pause", delay, "--for", "1s", "--reason", "almost done").stdout
        assert said.startswith(f"{delay}: paused until ")
        wait_until(lambda: states() == ["active", "active"], "it goes on, and nobody has resumed it")
        assert desk.json(router, "status")["topics"][0]["paused"] is False
        stage.wait_records(other, 1)

        assert desk.run(router, "drain", delay, "--wait").stdout == f"{delay}: drained\n"
        assert states() == ["drained", "drained"]
        found = desk.json(router, "status")["topics"][0]
        assert (found["drained"], found["pending"], found["partitions"][0]["buckets"]) == (True, 1, 1)
        desk.run(router, "undrain", delay)
        wait_until(lambda: states() == ["active", "active"], "it is served again")
    late = desk.run(router, "drain", delay, "--wait", "--timeout", "0", code=1).stderr
    assert late.startswith(f"error: {delay}: not drained within 0 s: partitions ")


def test_what_became_of_an_id(desk: Desk) -> None:
    stage, named = desk.stage, ("deliver-id", b"order-7")
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out)
    with desk.router() as router:
        router.start_and_wait()
        stage.send(delay, ("deliver-after", b"100"), named, partition=1)
        stage.wait_records(out, 1)
        stage.send(delay, ("deliver-at", b"soon"), named)
        stage.wait_records(f"{delay}.rejected", 1)
        stage.send(delay, ("deliver-after", b"PT1H"), named)
        desk.run(router, "cancel", delay, "order-7")
        place = stage.send(delay, ("deliver-after", b"PT1H"), named, partition=1)
        found = desk.json(router, "find", delay, "order-7")
        assert (found["traces"][0]["fate"], found["traces"][0]["place"]) == ("pending", place)
        # The other partition has answered that nothing was pending there.
        fates = sorted(each["fate"] for each in found["traces"])
        assert (fates, found["unread"]) == (["answered", "cancelled", "pending", "rejected", "released"], [])
        assert "nothing of order-8 is pending" in desk.run(router, "find", delay, "order-8", code=1).stdout
        assert router.stop() == 0


@pytest.mark.parametrize("arguments", [["pause"], ["resume", "a", "--target", "b"], ["lookup", "no-place"]])
def test_wrong_usage(desk: Desk, arguments: list[str]) -> None:
    desk.stage.delay(default_target=desk.stage.target())
    desk.run(desk.router(), *arguments, code=2)

"""Tests of the admin API of running routers: a policy set there holds, and answers cover the whole group."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import NewTopic

from sidecar import clock
from sidecar.dev import local_kafka
from sidecar.dev.demo.router import toml
from sidecar.dev.local_kafka import free_port
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, Stage, header, wait_until

READ = "reads-only-0123456789abcdef0123456789"
OPERATE = "operates-0123456789abcdef0123456789ab"
PRODUCE = "produces-0123456789abcdef0123456789ab"


@dataclass
class Served:
    router: RouterProcess
    url: str

    def ask(self, method: str, path: str, body: Any = None, token: str = OPERATE) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"}
        return httpx.request(
            method, f"{self.url}/api/v1{path}", json=body, headers=headers, timeout=30, trust_env=False
        )

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path, token=READ)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def do(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.ask(method, path, body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def holds(self, delay: str, key: str) -> Any:
        return self.get(f"/topics/{delay}/policy")["values"][key]


Serve = Callable[[str], Served]


@pytest.fixture
def stage(kafka: local_kafka.Cluster, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(kafka.bootstrap, tmp_path)
    made.create([NewTopic(_policies(made), 1, 1, config={"cleanup.policy": "compact", **APPEND_TIME})])
    yield made
    made.print_logs()


def _policies(stage: Stage) -> str:
    return f"__{stage.word}.policies"


@pytest.fixture
def serve(stage: Stage, tmp_path: Path) -> Iterator[Serve]:
    """Yield a function that starts a router of the stage with an admin API, until the end of the test."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"read {READ}\noperate {OPERATE}\nproduce {PRODUCE}\n")
    started = ExitStack()

    def start(name: str) -> Served:
        router = stage.router(name, policies_topic=_policies(stage), instance_id=name, log_level="debug")
        port = free_port()
        admin = {"listen": f"127.0.0.1:{port}", "token_file": str(tokens)}
        with router.config.open("a") as file:
            file.write("\n[admin]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in admin.items()))
        started.enter_context(router).start_and_wait()
        return Served(router, f"http://127.0.0.1:{port}")

    with started:
        yield start


def codes(stage: Stage, delay: str, count: int) -> list[bytes | None]:
    return [header(record, "delay-error") for record in stage.wait_records(f"{delay}.rejected", count)]


def test_a_policy_set_by_http_holds_in_every_router_and_is_told_by_every_one(stage: Stage, serve: Serve) -> None:
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out, max_delay="1h")
    one, two = serve("a"), serve("b")
    for each in (one, two):
        # A router is ready without a partition, too, and a change before it serves one is not reported as a change.
        wait_until(lambda each=each: each.router.events("partition_active") != [], "each serves one")  # type: ignore[misc]
    assert one.holds(delay, "max_delay") == {"value": "1h", "origin": "configuration", "is_default": False}
    assert one.ask("PUT", "/policies/default", {"max_delay": "2s"}, READ).status_code == 403
    one.do("PUT", f"/policies/topics/{delay}", {"max_delay": "2s"})
    written_s = time.monotonic()
    for each in (one, two):
        wait_until(lambda each=each: each.holds(delay, "max_delay")["value"] == "2s", "told")  # type: ignore[misc]
        wait_until(lambda each=each: each.router.events("rules_changed") != [], "in force")  # type: ignore[misc]
    print(f"told and in force on both after {time.monotonic() - written_s:.2f} s")
    for partition in (0, 1):
        stage.send(delay, ("deliver-after", b"PT8S"), partition=partition)
    assert codes(stage, delay, 2) == [b"MAX_DELAY_EXCEEDED"] * 2
    assert two.get("/policies")["policies"] == {f"topic/{delay}": {"max_delay": "2s"}}
    two.do("DELETE", f"/policies/topics/{delay}")
    wait_until(lambda: one.holds(delay, "max_delay")["origin"] == "configuration", "removed")
    (audited,) = [
        event for event in one.router.events("admin_request") if event["method"] == "PUT" and event["status"] == 200
    ]
    assert (audited["role"], audited["path"]) == ("operate", f"/api/v1/policies/topics/{delay}")
    assert OPERATE not in one.router.log_text()
    assert READ not in one.router.log_text()
    assert one.ask("PUT", f"/policies/topics/{delay}", {"default_target": f"{delay}.delay-state"}).status_code == 422


def test_a_record_written_by_http_is_delivered_as_it_was_sent(stage: Stage, serve: Serve) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out, delay="500ms", max_delay="1h")
    one = serve("a")
    path = f"/topics/{delay}/records"
    assert one.ask("POST", path, {"value": "v"}, OPERATE).status_code == 403
    refused = one.ask("POST", path, {"headers": [{"name": "deliver-after", "value": "2h"}]}, PRODUCE)
    assert (refused.status_code, "MAX_DELAY_EXCEEDED" in refused.text) == (422, True)
    answer = one.ask("POST", path, {"key": "k", "value": {"base64": "AAH/"}}, PRODUCE)
    assert answer.status_code == 201, answer.text
    place = answer.json()
    (record,) = stage.wait_records(out, 1)
    assert (record.key, record.value) == (b"k", b"\x00\x01\xff")
    assert header(record, "delay-source") == f"{delay}/{place['partition']}/{place['offset']}".encode()
    assert header(record, "delay-due") == str(place["due_ms"]).encode()
    # No other record was written, and this one was not early.
    assert stage.settle().sent == 1


def test_what_was_sent_by_http_is_cancelled_and_replaced_by_http(stage: Stage, serve: Serve) -> None:
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out, max_delay="1h")
    one = serve("a")
    path, named = f"/topics/{delay}/schedules/order-7", {"name": "deliver-id", "value": "order-7"}
    hour = {"name": "deliver-after", "value": "1h"}
    place = one.ask("POST", f"/topics/{delay}/records", {"headers": [named, hour]}, PRODUCE).json()
    assert one.ask("DELETE", path, None, READ).status_code == 403
    for control in ("deliver-cancel", "Deliver-Move", "deliver-replace"):
        headers = [{"name": control, "value": "order-7"}]
        refused = one.ask("POST", f"/topics/{delay}/records", {"headers": headers}, PRODUCE)
        assert (refused.status_code, "takes one of operate" in refused.text) == (403, True)
    assert one.ask("DELETE", f"{path}?if_due_ms=1", None, OPERATE).status_code == 409
    assert one.ask("DELETE", f"{path}?partition=99", None, OPERATE).status_code == 404
    assert one.ask("PATCH", f"{path}?partition=2", {"due_ms": clock.now_ms() + 60_000}, OPERATE).status_code == 404
    keyless = one.ask("POST", f"{path}?if_due_ms={place['due_ms']}", {"headers": [hour]}, OPERATE)
    assert keyless.status_code == 422, "it has no key to be placed by"
    answer = one.ask("DELETE", path, None, OPERATE)
    assert answer.status_code == 200, answer.text
    assert answer.json()["cancelled"] == [{key: place[key] for key in ("partition", "offset", "due_ms")}]
    assert one.ask("DELETE", path, None, OPERATE).status_code == 404
    assert one.get(f"/topics/{delay}/schedules?id=order-7")["schedules"] == []
    # Nothing is pending now, and a token that operates writes no new schedule. Each of these would leave at once.
    new, replaces = {"key": "k", "value": "new"}, [named, {"name": "deliver-replace", "value": "true"}]
    assert one.ask("POST", path, new, OPERATE).status_code == 403
    refused = one.ask("POST", f"/topics/{delay}/records", {**new, "headers": replaces}, OPERATE)
    assert (refused.status_code, "deliver-if-due" in refused.text) == (403, True)
    assert one.ask("POST", f"{path}?if_due_ms={place['due_ms']}", new, OPERATE).status_code == 404
    conditional = [*replaces, {"name": "deliver-if-due", "value": str(place["due_ms"])}]
    assert one.ask("POST", f"/topics/{delay}/records", {**new, "headers": conditional}, OPERATE).status_code == 201
    first = one.ask("POST", f"/topics/{delay}/records", {"key": "k", "headers": [named, hour]}, PRODUCE).json()
    other_time = one.ask("POST", f"{path}?if_due_ms=1", {"key": "k", "headers": [hour]}, OPERATE)
    assert other_time.status_code == 409
    second = one.ask("POST", f"{path}?if_due_ms={first['due_ms']}", {"key": "k", "value": "now"}, OPERATE).json()
    assert second["replaced"] == [{key: first[key] for key in ("partition", "offset", "due_ms")}]
    (record,) = stage.wait_records(out, 1)
    assert (record.value, header(record, "delay-id")) == (b"now", b"order-7")


def test_what_matches_and_what_waits_is_counted_before_it_is_cancelled_by_http(stage: Stage, serve: Serve) -> None:
    out, dead = stage.target(), stage.target("dead")
    retry = {"first": "10m", "jitter": 0, "attempts": 5, "dead_letter": dead}
    delay = stage.delay(partitions=2, default_target=out, retry=retry)
    one = serve("a")
    for number in range(8):
        made = ("delay-attempt", b"%d" % (number // 2)), ("deliver-id", b"order-%d" % (number % 4))
        stage.send(delay, *made, partition=number % 2)
    told = {"topic": delay, "records": 8, "by_attempt": {"1": 2, "2": 2, "3": 2, "4-7": 2}, "exhausted": 0}
    assert one.get(f"/topics/{delay}/attempts") == {**told, "is_whole": True}
    path, query = f"/topics/{delay}/cancellations", {"id_prefix": "order-1"}
    dry = one.do("POST", f"{path}/dry-run", query)
    assert (dry["matching"], dry["next_from"], [each["id"] for each in dry["first"]]) == (2, None, ["order-1"] * 2)
    assert one.do("POST", f"{path}/dry-run", {**query, "partition": 0})["matching"] == 0
    assert one.do("POST", f"{path}/dry-run", {**query, "partition": 1})["matching"] == 2
    assert one.ask("POST", f"{path}/dry-run", {**query, "partition": 2}).status_code == 404
    assert one.do("POST", path, query) == {"topic": delay, "matched": 2, "estimated": None}
    assert one.do("POST", f"{path}/dry-run", query)["matching"] == 0
    assert one.get(f"/topics/{delay}/attempts?limit=6")["records"] == 6


def test_any_router_answers_for_all_partitions_and_records(stage: Stage, serve: Serve) -> None:
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out, max_delay="1h")
    stage.create([NewTopic(f"__{delay}.status", 1, 1, config={"cleanup.policy": "compact"})])
    one, two = serve("a"), serve("b")
    released = stage.send(delay, ("deliver-after", b"1"), partition=0)
    pending = [stage.send(delay, ("deliver-after", b"PT30M"), partition=partition) for partition in (0, 1)]
    rejected = stage.send(delay, ("deliver-after", b"PT2H"), partition=1)
    stage.wait_records(out, 1)
    codes(stage, delay, 1)
    for api in (one, two):
        # A router that gives a partition away reports it once more, so the report settles only after the move.
        wait_until(lambda api=api: reported(api, delay) == (2, ["active", "active"], {"a", "b"}), "reported", 60)  # type: ignore[misc]
        assert {each["topic"] for each in api.get("/topics")["topics"]} == {delay}
        # The routers count every few seconds only.
        wait_until(lambda api=api: counted(api, delay) == (2, {out: 2}), "counted")  # type: ignore[misc]
        assert [fate(api, place) for place in (released, *pending, rejected)] == [
            "released",
            "pending",
            "pending",
            "rejected",
        ]
        assert api.ask("GET", f"/topics/{delay}/partitions/2/records/0").status_code == 404


def reported(api: Served, delay: str) -> tuple[int, list[str], set[str]]:
    topic = api.get(f"/topics/{delay}")
    partitions = topic["partitions"]
    return topic["pending"], [each["state"] for each in partitions], {each["instance"] for each in partitions}


def counted(api: Served, delay: str) -> tuple[int, dict[str, int]]:
    answer = api.get(f"/topics/{delay}/pending")
    return answer["records"], answer["by_target"]


def fate(api: Served, place: str) -> str:
    topic, partition, offset = place.split("/")
    return str(api.get(f"/topics/{topic}/partitions/{partition}/records/{offset}")["fate"])


def test_without_a_token_file_nothing_listens_and_with_a_bad_one_nothing_starts(stage: Stage, tmp_path: Path) -> None:
    stage.delay(default_target=stage.target())
    router = stage.router("a", policies_topic=_policies(stage))
    with router:
        router.start_and_wait()
        assert router.events("admin_listening") == []
        with pytest.raises(httpx.ConnectError):
            httpx.get("http://127.0.0.1:8081/api/v1/topics", trust_env=False)
    bad = tmp_path / "tokens"
    bad.write_text("operate short-and-secret\n")
    with router.config.open("a") as file:
        file.write(f'\n[admin]\nlisten = "127.0.0.1:{free_port()}"\ntoken_file = "{bad}"\n')
    done = router.command("run")
    assert done.returncode == 2
    assert "admin.token_file: line 1: the token has 16 characters and needs 32" in done.stderr
    assert "short-and-secret" not in done.stderr

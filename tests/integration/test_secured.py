"""Tests of a broker with TLS, SASL/SCRAM and ACLs, with exactly the rights that ``check --acls`` lists."""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from sidecar.cluster.rights import acls
from sidecar.cluster.rights.acls import Acl
from sidecar.cluster.topics import check
from sidecar.cluster.topics.findings import Finding, Level
from sidecar.config.model import Config, load
from sidecar.engine.limits import Limits
from sidecar.kafka.client import admin
from sidecar.operations.asking import checking
from tests.integration.one_worker import log_start, one_worker
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, Stage, wait_until
from tests.integration.secured import ADMIN, ROUTER, Secured, password, secured_or_skip
from tests.integration.stored_buckets import lanes
from tests.support import kafka_tools

BUCKETS: dict[str, Any] = {
    "placement": "inline",
    "seal_records": 100,
    "seal_age": "300ms",
    "seal_beyond": "0ms",
    "time_step": "1s",
    "segment_records": 50,
    "max_buckets": 2,
    "trim": True,
}

PARTITIONS = 2
in_a_lane = pytest.mark.parametrize("scene", [1], indirect=True, ids=["in-a-lane"])


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    yield from secured_or_skip(request, tmp_path_factory)


class Scene:
    """A delay topic created by ``init``, and the configuration of a router that has no rights yet."""

    def __init__(self, broker: Secured, folder: Path, lanes: int, **options: Any) -> None:
        self.broker = broker
        self.stage = Stage(broker.plain, folder)
        self.delay = f"{self.stage.word}.delay"
        self.target = self.stage.target()
        self.stage.delays[self.delay] = {"name": self.delay, "default_target": self.target, **options}
        administrator = self.process(folder / ADMIN, ADMIN)
        done = administrator.command("init", "--partitions", str(PARTITIONS))
        assert done.returncode == 0, done.stdout + done.stderr
        self.router = self.process(folder / ROUTER, ROUTER, lanes=lanes)

    def process(self, folder: Path, user: str, **options: Any) -> RouterProcess:
        """Return a router of that user, not started."""
        return RouterProcess(
            folder,
            self.broker.bootstrap,
            [*self.stage.delays.values()],
            kafka=self.broker.client(user),
            **{"group_id": self.stage.group_id, "session_timeout": "3s", "instance_id": "one", **options},
        )

    def listed(self, router: RouterProcess | None = None) -> list[Acl]:
        """Return the ACLs that ``check --acls`` prints for scripts."""
        done = (router or self.router).command("check", "--acls", "--json", "--principal", f"User:{ROUTER}")
        assert done.returncode == 0, done.stderr
        plain = json.loads(done.stdout)
        assert (plain["principal"], plain["notes"]) == (f"User:{ROUTER}", [])
        return [Acl(**each) for each in plain["acls"]]

    def lanes(self) -> set[str]:
        """Return the transactional ids of the lanes that the states name, with an empty text for none."""
        return {*lanes(self.stage, self.delay, PARTITIONS)}

    def count(self, histogram: str) -> float:
        """Return the number of measurements of this histogram by the running router."""
        return self.router.metric(f'{histogram}_count{{topic="{self.delay}"}}')

    @property
    def config(self) -> Config:
        """The router's configuration."""
        return load(self.router.config, {})


@pytest.fixture
def scene(broker: Secured, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Yield a scene, and revoke its rights at the end."""
    scene = Scene(broker, tmp_path, getattr(request, "param", 0), **BUCKETS)
    yield scene
    if left := [Acl(*each, why="") for each in broker.granted(ROUTER)]:
        broker.revoke(ROUTER, *left)


@in_a_lane
def test_the_whole_job_with_exactly_the_rights_that_are_listed(
    scene: Scene, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, stage, router = scene.broker, scene.stage, scene.router
    denied = router.command("check", "--json")
    assert denied.returncode == 1, denied.stdout
    told = {finding["thing"] for finding in json.loads(denied.stdout) if finding["level"] == "error"}
    shared = {f"policies topic {scene.config.router.policies_topic}", f"group {stage.group_id}"}
    beside = {f"{role} {name}" for role, _, name in scene.config.delay_topics[0].roles() if role != "backfill topic"}
    assert told == shared | beside | {f"target topic {scene.target}"}

    broker.grant(ROUTER, *scene.listed())
    wait_until(lambda: router.command("check").returncode == 0, "the ACLs are in force")
    repeated = router.command("init")
    assert repeated.returncode == 0, "init needs no more where all topics are there: " + repeated.stdout
    clean = json.loads(router.command("check", "--json").stdout)
    assert {finding["level"] for finding in clean} == {"ok"}, clean
    (unasked,) = [finding for finding in clean if finding["thing"] == "router.transaction_timeout"]
    assert "takes DescribeConfigs on the cluster to ask" in unasked["message"]

    with router:
        router.start_and_wait()
        with Load(stage, [scene.delay], rng, partitions=2, a_second=200, delays_ms=(0, 4_000)):
            wait_until(lambda: scene.count("seal_seconds") >= 4, "buckets are sealed")
            wait_until(lambda: "" not in scene.lanes(), "both states name the lane")
            before = scene.lanes()
            router.kill()
            router.start_and_wait()
            wait_until(lambda: not {"", *before} & scene.lanes(), "both states name the lane of the new process")
            wait_until(lambda: scene.count("merge_seconds") >= 1, "buckets are merged")
        report = stage.settle()
        assert report.rejected > 0
        status = router.command("status", "--url", f"http://127.0.0.1:{router.port}", "--json")
        assert status.returncode == 0, status.stderr
        assert json.loads(status.stdout)["topics"][scene.delay]["rejected"] > 0
        assert router.stop() == 0
    assert password(ROUTER) not in router.log_text() + status.stdout + denied.stdout

    with one_worker(scene.config, Limits(trim_every_s=0.3, load_lead_ms=1_000)) as worker:
        wait_until(lambda: worker.status.ready, "the partition is served")
        stage.send_many(scene.delay, [[("deliver-after", b"%d" % (4_000 + number))] for number in range(400)])
        wait_until(lambda: log_start(broker.admin, scene.delay) > 0, "the delay topic is trimmed")
        wait_until(lambda: log_start(broker.admin, f"{scene.delay}.delay-snapshots") > 0, "segments are trimmed")
        assert worker.count("trim_failures") == 0


def test_every_right_on_the_list_is_needed(scene: Scene) -> None:
    """Without any one of them ``check`` names it; the one that it cannot see stops the router with an error."""
    broker = scene.broker
    listed = scene.listed()
    broker.grant(ROUTER, *listed)
    client = admin.connect(scene.config)
    wait_until(lambda: not troubles(scene.config, client), "the ACLs are in force")
    unseen = [acl for acl in listed if acl.resource_type == acls.TRANSACTIONAL_ID]
    assert len(unseen) == 1
    for acl in listed:
        if acl in unseen:
            continue
        broker.revoke(ROUTER, acl)
        wait_until(lambda: bool(troubles(scene.config, client)), f"check misses {acl}")
        (finding,) = troubles(scene.config, client)
        assert finding.thing.endswith(f" {acl.name}"), (acl, finding)
        assert acl.operation in f"{finding.message} {finding.remedy}", (acl, finding)
        broker.grant(ROUTER, acl)
        wait_until(lambda: not troubles(scene.config, client), f"{acl} is in force again")

    broker.revoke(ROUTER, *unseen)
    with scene.router as router:
        router.start()
        wait_until(
            lambda: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in router.http("/readyz")[1], "it says what it lacks"
        )
        assert not router.ready()
        broker.grant(ROUTER, *unseen)
        router.wait_ready()


def troubles(config: Config, client: AdminClient) -> list[Finding]:
    """Return the findings of ``check`` that are not OK."""
    return [finding for finding in check.findings(config, client) if finding.level is not Level.OK]


@in_a_lane
def test_rights_that_are_taken_away_are_named_and_work_again_once_given_back(scene: Scene, rng: Random) -> None:
    broker, stage, router = scene.broker, scene.stage, scene.router
    listed = scene.listed()
    broker.grant(ROUTER, *listed)
    wait_until(lambda: router.command("check").returncode == 0, "the ACLs are in force")
    state = next(acl for acl in listed if acl.name.endswith(".delay-state") and acl.operation == "Write")
    ids = next(acl for acl in listed if acl.resource_type == acls.TRANSACTIONAL_ID)
    with router, Load(stage, [scene.delay], rng, partitions=2, a_second=100, delays_ms=(0, 3_000)) as load:
        router.start_and_wait()
        for acl, said in ((state, f"{state.name}: the router may not Write"), (ids, "TRANSACTIONAL_ID_AUTHORIZATION")):
            broker.revoke(ROUTER, acl)
            wait_until_told(router, said)
            # The partition starts again before its next write shows the lack of the right again.
            wait_until(lambda: not router.ready(), "the router is not ready")
            broker.grant(ROUTER, acl)
            router.wait_ready()
        load.finish()
        stage.settle()
        assert router.stop() == 0


@pytest.mark.parametrize("scene", [0, 1], indirect=True, ids=["with-own-producers", "in-a-lane"])
def test_after_a_change_of_group_id_the_right_to_fence_the_former_group_is_named(scene: Scene, tmp_path: Path) -> None:
    broker, stage, before = scene.broker, scene.stage, scene.router
    after = scene.process(tmp_path / "after", ROUTER, group_id=f"{stage.word}.after")
    rights = {*scene.listed(), *scene.listed(after)}
    fences = next(
        acl for acl in rights if (acl.resource_type, acl.name) == (acls.TRANSACTIONAL_ID, f"{stage.group_id}.")
    )
    broker.grant(ROUTER, *rights)
    wait_until(lambda: before.command("check").returncode == 0, "the ACLs are in force")
    with before, after:
        before.start_and_wait()
        for partition in range(PARTITIONS):
            stage.send(scene.delay, ("deliver-after", b"1"), partition=partition)
            stage.send(scene.delay, ("deliver-after", b"5000"), partition=partition)
        stage.wait_records(scene.target, PARTITIONS)
        before.kill()
        broker.revoke(ROUTER, fences)
        grant = f"--operation Write --transactional-id {fences.name} --resource-pattern-type prefixed"
        lacks = f"User:{ROUTER} may not Write transactional id {fences.name}"
        former = f"routers of group {stage.group_id} have served {scene.delay}/"
        starting_over = ("start-over", f"{scene.delay}/0", "--yes")
        told = ("--producer-id", "1", "--start-offset", "0", "--outcome", "aborted")
        ending = ("end-transaction", f"{scene.delay}/0", f"{scene.target}/0", *told)
        for router, command, said in (
            (after, starting_over, (former, lacks, grant)),
            (after, ending, (f"routers of group {stage.group_id}, not {stage.word}.after", "Nothing was changed")),
            (before, starting_over, (lacks, grant)),
            (before, ending, (lacks, grant)),
        ):
            done = router.command(*command)
            assert (done.returncode, done.stdout) == (1, ""), done
            assert all(each in done.stderr for each in said), done.stderr
        after.start()
        wait_until(lambda: len(after.events("partition_refused")) == PARTITIONS, "each partition is refused")
        for refused in after.events("partition_refused"):
            assert all(each in refused["why"] for each in (former, lacks, grant))
        broker.grant(ROUTER, fences)
        after.wait_ready()
        stage.settle()
        assert after.stop() == 0


def test_a_state_topic_that_may_not_be_written_is_named_with_the_right_and_the_command(scene: Scene) -> None:
    """The refused worker asks for a check of the topics at once, where the next regular one comes up to 15 s later."""
    broker, stage, router = scene.broker, scene.stage, scene.router
    listed = scene.listed()
    broker.grant(ROUTER, *listed)
    wait_until(lambda: router.command("check").returncode == 0, "the ACLs are in force")
    state = next(acl for acl in listed if acl.name.endswith(".delay-state") and acl.operation == "Write")
    right = f"state topic {state.name}: the router may not Write; kafka-acls.sh --bootstrap-server"
    command = f"--operation Write --topic {state.name}"
    with router:
        router.start_and_wait()
        broker.revoke(ROUTER, state)
        for partition in (0, 1):
            stage.send_many(scene.delay, [[("deliver-after", b"1")] for _ in range(2)], partition=partition)
        for _ in range(2):
            # The second time, the worker takes over again and again.
            wait_until_told(router, right)
            assert command in router.http("/readyz")[1]
        told = router.command("status", "--url", f"http://127.0.0.1:{router.port}", "--json").stdout
        assert right in told
        assert command in told
        (logged,) = [each for each in router.events("check") if each["thing"] == f"state topic {state.name}"]
        assert logged["message"] == "the router may not Write"
        assert command in logged["remedy"]
        broker.grant(ROUTER, state)
        router.wait_ready()
        stage.wait_records(scene.target, 4)
        stage.settle()
        assert router.stop() == 0


def wait_until_told(router: RouterProcess, said: str) -> None:
    wait_until(lambda: said in router.http("/readyz")[1], f"it says: {said}")


def test_a_password_that_holds_no_more_is_named_and_nothing_is_lost(scene: Scene, rng: Random) -> None:
    broker, stage, router = scene.broker, scene.stage, scene.router
    broker.grant(ROUTER, *scene.listed())
    wait_until(lambda: router.command("check").returncode == 0, "the ACLs are in force")
    with router, Load(stage, [scene.delay], rng, partitions=2, a_second=100, delays_ms=(0, 3_000)) as load:
        router.start_and_wait()
        broker.set_password(ROUTER, "another")
        try:
            wait_until_told(router, "Authentication failed")
            assert not router.ready()
        finally:
            broker.set_password(ROUTER, password(ROUTER))
        router.wait_ready()
        load.finish()
        stage.settle()
        assert router.stop() == 0
    assert password(ROUTER) not in router.log_text()


def test_a_router_with_a_wrong_password_says_so_within_seconds(scene: Scene, tmp_path: Path) -> None:
    wrong = {**scene.broker.client(ROUTER), "sasl.password": "guessed"}
    topics = [*scene.stage.delays.values()]
    with RouterProcess(tmp_path / "wrong", scene.broker.bootstrap, topics, kafka=wrong) as router:
        router.start()
        wait_until(lambda: bool(router.events("kafka_unavailable")), "it says that it waits", timeout_s=9)
        assert "Authentication failed" in router.events("kafka_unavailable")[0]["why"]
        assert router.stop() == 0


def test_the_printed_commands_do_what_the_list_says(scene: Scene) -> None:
    listed = scene.listed()
    done = scene.router.command("check", "--acls", "--principal", f"User:{ROUTER}")
    calls = [shlex.split(line, comments=True) for line in done.stdout.splitlines()]
    printed = [call for call in calls if call]
    assert sum(call.count("--operation") for call in printed) == len(listed)
    # Each call starts a JVM, so one of each kind of resource is enough.
    tried = [next(call for call in printed if f"--{kind}" in call) for kind in ("group", "transactional-id")]
    tried.append(max(printed, key=len))
    for call in tried:
        assert call[:3] == ["kafka-acls.sh", "--bootstrap-server", scene.broker.bootstrap]
        arguments = ["--bootstrap-server", scene.broker.plain, *call[3:]]
        kafka_tools.run(kafka_tools.acls(), arguments)
    names = {call[index + 1] for call in tried for index, word in enumerate(call) if word in RESOURCE_OPTIONS}
    assert len(names) == len(tried)
    wanted = {(acl.resource_type, acl.name, acl.pattern_type, acl.operation) for acl in listed if acl.name in names}
    wait_until(lambda: scene.broker.granted(ROUTER) == wanted, f"the brokers have {wanted}")


RESOURCE_OPTIONS = ("--topic", "--group", "--transactional-id")


def test_each_command_names_the_rights_that_it_lacks(scene: Scene) -> None:
    delay, state = scene.delay, f"{scene.delay}.delay-state"
    policies, status = scene.config.router.policies_topic, scene.config.router.status_topic
    lacking = {
        ("status",): ("Read", policies),
        ("pending", delay): ("Read", status),
        ("schedules", delay): ("Read", state),
        ("lookup", f"{delay}/0/0"): ("Read", state),
        ("pause", delay): ("Read and Write", policies),
        ("policy", "get"): ("Read", policies),
        ("rejected", "list", delay): ("Read", f"{delay}.rejected"),
        ("cancel", delay, "an-id"): ("Read", f"{delay}.receipts"),
        ("send", delay, "--value", "x"): ("Write", delay),
        ("verify", delay): ("Read", state),
    }
    for command, (operations, topic) in lacking.items():
        done = scene.router.command(*command)
        lines = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2 if command[0] == "verify" else 1, ""), command
        assert all(line.startswith(f"error: User:{ROUTER} may not ") for line in lines), lines
        sentence = f"error: User:{ROUTER} may not {operations} topic {topic}; to grant it: kafka-acls.sh "
        (told,) = [line for line in lines if line.startswith(sentence)]
        assert f"--allow-principal User:{ROUTER} --operation" in told
        assert ("--api URL" in told) == (command[0] not in ("send", "verify")), told


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"sasl.password": "guessed"}, "Authentication failed"), ({"ssl.ca.location": ""}, "certificate verify failed")],
    ids=["password", "authority"],
)
def test_check_says_why_the_door_stays_shut(
    broker: Secured,
    wrong: dict[str, str],
    said: str,
    unique_name: Callable[[str], str],
) -> None:
    kafka = {"bootstrap.servers": broker.bootstrap, **broker.client(ROUTER), **wrong}
    topic = {"name": unique_name("orders"), "default_target": "t"}
    config = Config.model_validate({"kafka": {key: kafka[key] for key in kafka if kafka[key]}, "delay_topics": [topic]})
    (finding,) = [each for each in checking.report(config) if each.is_error]
    assert finding.thing == "brokers"
    assert said in finding.message
    assert password(ROUTER) not in finding.message

"""Plays the procedures of OPERATIONS that change a delay topic or the group, beside records that wait."""

import re
import time
from random import Random

import pytest

from tests.docs.procedures import DOCUMENT, Procedure
from tests.integration.readiness import partitions
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Header, Load, Stage, now_ms, wait_until
from tests.integration.stored_buckets import lanes

FAR_MS = 12_000


def due(after_ms: int) -> Header:
    return "deliver-at", b"%d" % (now_ms() + after_ms)


def procedure(section: str, stage: Stage, router: RouterProcess, delay: str) -> Procedure:
    names = {"orders.delay": delay, "localhost:9092": stage.bootstrap, "delay-router": stage.group_id}
    return Procedure(section, router.config, names)


def post(stage: Stage, delay: str, count: int, partitions: int = 1) -> None:
    """Write records of which half are due at once, and half when the procedure is under way."""
    for number in range(count):
        after_ms = FAR_MS if number % 2 else 100
        stage.post(delay, due(after_ms), value=b"%d" % number, partition=number // 2 % partitions)
    stage.flush()


def test_another_group_goes_on_after_a_drain(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out)
    with stage.router("before") as before:
        before.init()
        steps = procedure("Changing `group_id`", stage, before, delay)
        before.start_and_wait()
        post(stage, delay, 40, 2)
        stage.wait_records(out, 20)
        steps.run("delay-router drain")
        steps.skip("kubectl scale")
        assert before.stop() == 0
        steps.run("kafka-consumer-groups.sh", until="has no active members")
    with stage.router("after", group_id=f"{stage.group_id}.new") as after:
        steps.config = after.config
        after.start()
        wait_until(lambda: "drained" in after.command("status", delay).stdout, "the new group has the topic")
        assert f"--transactional-id {after.group_id}." in steps.run("delay-router check --acls")
        steps.run("delay-router undrain")
        steps.finish()
        assert stage.settle().released_once == 40


def test_partitions_are_added_under_a_load(stage: Stage, rng: Random) -> None:
    delay = stage.delay(partitions=2, default_target=stage.target())
    with stage.router(kafka={"topic.metadata.refresh.interval.ms": 2_000}, lanes=1) as router:
        router.init()
        steps = procedure("Adding partitions", stage, router, delay)
        router.start_and_wait()
        with Load(stage, [delay], rng, partitions=2, a_second=100, delays_ms=(0, FAR_MS)):
            steps.run("kafka-topics.sh")
            # A load that knows the new partitions, also before they have a state.
            with Load(stage, [delay], rng, partitions=12, a_second=100, delays_ms=(0, FAR_MS)):
                steps.run("delay-router init")
                wait_until(lambda: f"{delay}/11" in partitions(router), "the group has handed out the new partitions")
                wait_until(router.ready, "every partition is active")
                assert "11" in steps.run("delay-router status")
                (lane,) = {*lanes(stage, delay, 12)}
                assert lane.startswith(f"{stage.group_id}.lane.")
        steps.finish()
        assert stage.settle().released_once > 100
        assert {each.partition for each in stage.records(delay)} == set(range(12))
        assert router.stop() == 0


def test_a_delay_topic_is_renamed(stage: Stage) -> None:
    out = stage.target()
    old = stage.delay(default_target=out)
    policies = {"policies_topic": f"__{stage.word}.policies"}
    with stage.router("before", **policies) as before:
        before.init()
        before.start_and_wait()
        post(stage, old, 20)
        stage.wait_records(out, 10)
        assert before.stop() == 0
    new = f"{stage.word}.later"
    stage.delays[new] = {"name": new, "default_target": out}
    with stage.router("both", **policies) as both:
        steps = procedure("Splitting, merging and renaming delay topics", stage, both, old)
        steps.run("delay-router init")
        both.start_and_wait()
        steps.run("delay-router check")
        post(stage, new, 20)
        steps.run("delay-router policy set")

        def is_told() -> bool:
            stage.send(old, due(100), value=b"of a forgotten producer")
            return bool(stage.records(f"{old}.rejected"))

        wait_until(is_told, "the old topic rejects")
        assert f"{old}/0/" in steps.run("delay-router rejected list")
        stage.settle()
        steps.run("delay-router pending")
        assert old in steps.run("delay-router status")
        steps.finish()
        assert both.stop() == 0
    with stage.router("after", only=[new], **policies) as after:
        after.start_and_wait()
        stage.delete(*companions(old))
        released = len(stage.records(out))
        post(stage, new, 2)
        assert len(stage.wait_records(out, released + 2)) == released + 2
        assert not [topic for topic in stage.admin.list_topics(timeout=10).topics if topic.startswith(old)]
        assert after.ready()
        assert after.stop() == 0


def companions(delay: str) -> list[str]:
    """Return a delay topic and the topics that the document lists beside it."""
    (step,) = re.findall(r"delete it with its ([^:]+?)\.\n\n", DOCUMENT.read_text(encoding="utf-8"))
    return [delay, *(f"{delay}{ending}" for ending in re.findall(r"`(\.[a-z-]+)`", step))]


@pytest.mark.parametrize("with_state", [True, False])
def test_a_mirror_is_refused(stage: Stage, with_state: bool) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out)
    with stage.router("first") as first:
        first.start_and_wait()
        for number in range(10):
            stage.post(delay, due(100), value=b"%d" % number)
        stage.flush()
        stage.wait_records(out, 10)
        assert first.stop() == 0
    mirror = stage.delay("mirror", default_target=out, begun=False)
    for name in ("", ".delay-state", ".delay-snapshots") if with_state else ("",):
        for each in stage.records(f"{delay}{name}"):
            stage.send(f"{mirror}{name}", *each.headers, value=each.value, key=each.key)
    with stage.router("second", only=[mirror]) as second:
        second.start()
        why = "was deleted and created again" if with_state else "is empty, but"
        wait_until(lambda: why in second.http("/readyz")[1], "the mirror is refused")
        stage.send(mirror, due(100), value=b"new")
        time.sleep(2)
        assert '"refused"' in second.http("/readyz")[1]
    assert len(stage.records(out)) == 10

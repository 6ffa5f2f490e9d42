"""Tests of a partition that must not start: it reports the reason and the remedy, and the others go on."""

import time

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.integration.group_offsets import group_offset
from tests.integration.readiness import partitions, refused
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, Stage, header, wait_until
from tests.integration.serving import serving


def start_over(router: RouterProcess, place: str) -> None:
    done = router.command("start-over", place, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr


def test_lost_state_and_a_recreated_delay_topic(stage: Stage) -> None:
    out = stage.target()
    healthy = stage.delay("healthy", 2, default_target=out)
    stateless = stage.delay("stateless", default_target=out)
    recreated = stage.delay("recreated", default_target=out)
    with stage.router() as router:
        router.start_and_wait()
        for delay in (healthy, stateless, recreated):
            stage.send(delay, value=b"before")
        stage.wait_records(out, 3)
        wait_until(lambda: group_offset(stage, stateless) > 0, "an offset of the group")
        assert router.stop() == 0

        stage.delete(f"{stateless}.delay-state", recreated)
        stage.create(
            [
                NewTopic(f"{stateless}.delay-state", 1, 1, config={"cleanup.policy": "compact"}),
                NewTopic(recreated, 1, 1, config=APPEND_TIME),
            ]
        )
        # The new topic gets as many records as the old one, so that offsets alone do not distinguish them.
        stage.send(recreated, value=b"in the new topic")
        router.start()
        wait_until(lambda: refused(router, f"{stateless}/0") and refused(router, f"{recreated}/0"), "two refusals")
        status, body = router.http("/readyz")
        assert status == 503
        for place, cause in ((f"{stateless}/0", "the state was lost"), (f"{recreated}/0", "deleted and created again")):
            why = partitions(router)[place]["why"]
            assert cause in why
            assert f"delay-router start-over {place}" in why
            assert any(place in event["why"] for event in router.events("partition_refused"))
        # The other partitions go on.
        wait_until(lambda: partitions(router)[f"{healthy}/1"]["state"] == "active", "the healthy one is active")
        stage.send(healthy, ("deliver-after", b"100"), value=b"meanwhile", partition=1)
        assert stage.wait_records(out, 4)[-1].value == b"meanwhile"
        assert len(stage.records(out)) == 4, f"a refused partition has released something: {body}"

        start_over(router, f"{stateless}/0")
        start_over(router, f"{recreated}/0")
        router.wait_ready(40)
        # A started-over partition releases its records again, and the message says so; the new topic's record comes
        # once.
        again = [header(record, "delay-source") for record in stage.wait_records(out, 6)[4:]]
        assert sorted(filter(None, again)) == sorted([f"{stateless}/0/0".encode(), f"{recreated}/0/0".encode()])
        assert router.stop() == 0


def test_a_delay_topic_recreated_under_a_running_router(stage: Stage) -> None:
    out = stage.target()
    recreated = stage.delay("recreated", default_target=out)
    other = stage.delay("other", default_target=out)
    with stage.router() as router:
        router.start_and_wait()
        for number in range(5):
            stage.send(recreated, value=b"%d" % number)
        stage.wait_records(out, 5)
        stage.delete(recreated)
        stage.create([NewTopic(recreated, 1, 1, config=APPEND_TIME)])
        for _ in range(10):
            stage.send(recreated, ("deliver-after", b"60000"), value=b"new")
        wait_until(lambda: refused(router, f"{recreated}/0"), "a refusal", 45)
        stage.send(other)
        time.sleep(0.5)
        assert len(stage.wait_records(out, 6)) == 6
        assert router.stop() == 0


def test_a_state_topic_with_what_this_router_does_not_know(stage: Stage) -> None:
    """A newer router wrote it, or it is damaged: the router releases nothing from a state that it cannot read."""
    with serving(stage) as (router, delay, out):
        stage.send(delay)
        stage.wait_records(out, 1)
        assert router.stop() == 0
        stage.send(f"{delay}.delay-state", key=b"progress", value=b"\x00damaged")
        stage.send(delay)
        router.start()
        wait_until(lambda: refused(router, f"{delay}/0"), "a refusal")
        why = partitions(router)[f"{delay}/0"]["why"]
        assert "cannot be trusted" in why
        assert f"delay-router start-over {delay}/0" in why
        time.sleep(0.5)
        assert len(stage.records(out)) == 1


def test_start_over_writes_nothing_while_a_transaction_hides_the_end_of_the_state(stage: Stage) -> None:
    """A key that comes to light behind the new state would make a router refuse it."""
    delay = stage.delay(default_target=stage.target())
    stranger = Producer({**stage.kafka, "transactional.id": f"{stage.word}.stranger"})
    stranger.init_transactions(20)
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay, value=b"before")
        stage.wait_records(stage.targets[0], 1)
        assert router.stop() == 0
        stranger.begin_transaction()
        stranger.produce(f"{delay}.delay-state", b"hidden", b"mask/9")
        assert stranger.flush(20) == 0
        before = stage.records(f"{delay}.delay-state")
        done = router.command("start-over", f"{delay}/0", "--yes")
        assert (done.returncode, "an open transaction hides the end" in done.stderr) == (1, True), done.stderr
        stranger.abort_transaction(20)
        assert stage.records(f"{delay}.delay-state") == before
        start_over(router, f"{delay}/0")
        router.start_and_wait()
        assert router.stop() == 0

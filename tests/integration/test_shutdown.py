"""Tests of SIGTERM: the router ends its open transaction, leaves the group, and exits with 0 within 30 s."""

import signal
import time
from pathlib import Path
from random import Random

import psutil
import pytest

from sidecar import failpoints
from sidecar.dev.demo.router import STOP_TIMEOUT_S
from tests.conftest import StartCluster
from tests.integration.scenario import Load, Stage, wait_until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle(stage: Stage, number: signal.Signals) -> None:
    stage.delay("delay", 3, default_target=stage.target())
    with stage.router() as router:
        router.start_and_wait()
        router.signal(number)
        wait_until(lambda: not router.running, "the end of the router", STOP_TIMEOUT_S)
        assert router.exit_code == 0
        assert router.events("stopped")[-1]["every_worker_finished"]


def test_under_load_and_the_next_one_goes_on(stage: Stage, rng: Random) -> None:
    delay = stage.delay("delay", 3, default_target=stage.target("out", 2))
    with Load(stage, [delay], rng, partitions=3, a_second=1_000, delays_ms=(0, 1_000)) as load:
        for round_number in range(3):
            with stage.router(f"r{round_number}", instance_id="") as router:
                router.start_and_wait()
                time.sleep(rng.uniform(0.2, 1.0))
                assert router.stop() == 0
                assert router.events("stopped")[-1]["every_worker_finished"]
        load.finish()
    with stage.router("last") as router:
        router.start_and_wait()
        # The earlier routers have left the group, so the new one waited for no session to end.
        stage.settle()
        assert router.stop() == 0


def test_told_again_and_again(stage: Stage, rng: Random) -> None:
    """A second SIGTERM, or a Ctrl-C, neither interrupts the shutdown nor begins it again."""
    stage.delay("delay", 3, default_target=stage.target("out", 2))
    with Load(stage, list(stage.delays), rng, partitions=3, a_second=1_000, delays_ms=(0, 1_000)) as load:
        for round_number in range(3):
            with stage.router(f"r{round_number}", instance_id="") as router:
                router.start_and_wait()
                time.sleep(rng.uniform(0.2, 1.0))
                began_s = time.monotonic()
                while router.running and time.monotonic() - began_s < STOP_TIMEOUT_S:
                    router.signal(rng.choice((signal.SIGTERM, signal.SIGINT)))
                    time.sleep(rng.uniform(0, 0.05))
                assert router.exit_code == 0
                assert len(router.events("stopped")) == 1
                assert not router.events("uncaught_error")
        load.finish()
    with stage.router("last") as router:
        router.start_and_wait()
        stage.settle()
        assert router.stop() == 0


@pytest.mark.parametrize("place", [place for place in failpoints.PLACES if place.startswith("recovery.")])
def test_while_it_restores(stage: Stage, rng: Random, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    delay = stage.delay("delay", 2, default_target=stage.target("out"), seal_records=300, seal_age="1s")
    with stage.router(instance_id="", lanes=1) as router:
        router.start_and_wait()
        stage.send_many(delay, [[("deliver-after", b"%d" % rng.randint(0, 5_000))] for _ in range(500)])
        time.sleep(rng.uniform(0.5, 1.5))
        router.kill()
        with monkeypatch.context() as environ:
            environ.setenv(failpoints.VARIABLE, f"{failpoints.STOP}{place}")
            router.start()
        process = psutil.Process(router.pid)
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, f"it is at {place}")
        for _ in range(2):
            # The router handles the signals when it continues.
            router.signal(signal.SIGTERM)
        router.resume()
        wait_until(lambda: not router.running, "the end of the router", 30)
        assert router.exit_code == 0
    with stage.router("next", instance_id="") as router:
        router.start_and_wait()
        stage.settle()
        assert router.stop() == 0


def test_before_anything_could_start(stage: Stage) -> None:
    stage.delay(default_target=stage.target())
    stage.bootstrap = "127.0.0.1:1"
    with stage.router() as router:
        router.start()
        wait_until(lambda: router.http("/livez")[0] == 200, "an answer of /livez")
        assert router.http("/readyz")[0] == 503
        assert router.stop() == 0


def test_while_the_broker_is_gone_or_silent(
    kafka_factory: StartCluster, tmp_path: Path, rng: Random, request: pytest.FixtureRequest
) -> None:
    stages, nodes = [], []
    for state in ("gone", "silent"):
        cluster = kafka_factory(1)
        stage = Stage(cluster.bootstrap, tmp_path / state)
        request.addfinalizer(stage.print_logs)
        stage.delay("delay", 2, default_target=stage.target())
        stages.append(stage)
        nodes.append(cluster.nodes[0])
    with stages[0].router() as first, stages[1].router() as second:
        for router, stage in ((first, stages[0]), (second, stages[1])):
            router.start_and_wait()
            with Load(stage, list(stage.delays), rng, partitions=2, delays_ms=(0, 5_000)) as load:
                time.sleep(1)
                load.finish()
        nodes[0].kill()
        nodes[1].pause()
        time.sleep(2)
        first.signal(signal.SIGTERM)
        second.signal(signal.SIGTERM)
        # The second router has the time that the first one takes, and then the remainder of the 30 s.
        began_s = time.monotonic()
        assert first.stop(STOP_TIMEOUT_S) == 0
        assert second.stop(STOP_TIMEOUT_S - (time.monotonic() - began_s)) == 0

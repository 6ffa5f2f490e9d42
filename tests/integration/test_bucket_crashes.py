"""Kills the router at every failpoint of seal, merge, removal, load and recovery: nothing lost, doubled or early."""

import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from index.errors import ConfigError
from sidecar import failpoints
from sidecar.dev import local_kafka
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, Stage

REACHED_WITHIN_S = 150.0
SMALL_BUCKETS: dict[str, Any] = {
    "seal_records": 200,
    "seal_age": "1s",
    "seal_beyond": "0ms",
    "segment_records": 50,
    "max_buckets": 3,
    "time_step": "2s",
    "segment_bytes": "16KiB",
}


class Chain:
    """A router that is killed at one failpoint after the other, each time in the state that the last crash has left."""

    def __init__(self, router: RouterProcess, places: Sequence[str], environ: pytest.MonkeyPatch) -> None:
        self._router = router
        self._left = list(places)
        self._environ = environ
        self.died_at: list[str] = []
        self._start()

    @property
    def ended(self) -> bool:
        """Says whether the router has died at every failpoint and runs on, unarmed."""
        return not self._left

    def turn(self) -> None:
        """Start a dead router again, armed for the next failpoint."""
        if self.ended or self._router.running:
            return
        assert self._router.exit_code == -signal.SIGKILL, f"ended by itself: {self._router.last_lines()}"
        self.died_at.append(self._left.pop(0))
        self._start()

    def _start(self) -> None:
        with self._environ.context() as environ:
            if self._left:
                environ.setenv(failpoints.VARIABLE, self._left[0])
            self._router.start()


@pytest.mark.timeout(500)
def test_kill_9_at_every_named_place(
    kafka: local_kafka.Cluster,
    tmp_path: Path,
    rng: Random,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    # test_adoption.py has the failpoints of adoption, tests/faults/test_forgotten.py the ones of end-transaction.
    named = [place for place in failpoints.PLACES if not place.startswith(("adopt.", "ending.", "group."))]
    # Only a router with lanes notes one. Only a restart that finds buckets loads segments: sealed records stay in
    # memory while they are due soon. A router that dies in a merge leaves several, however late the restart is.
    last = ["recovery.noted", "merge.after_manifest", "load.taken"]
    others = [place for place in named if place not in last]
    rng.shuffle(others)
    # Parallel chains save time: each has its own topics, group and load.
    lots = [others[number::3] for number in range(3)]
    lots[-1] += last
    with ExitStack() as stack:
        running = []
        for number, lot in enumerate(lots):
            stage = Stage(kafka.bootstrap, tmp_path / str(number))
            request.addfinalizer(stage.print_logs)
            out = stage.target("out", 2)
            delay = stage.delay("delay", 2, default_target=out, **SMALL_BUCKETS)
            router = stack.enter_context(stage.router(lanes=int(lot is lots[-1])))
            load = stack.enter_context(Load(stage, [delay], rng, partitions=2, a_second=100, delays_ms=(0, 8_000)))
            running.append((stage, load, router, Chain(router, lot, monkeypatch)))

        deadline = time.monotonic() + REACHED_WITHIN_S + 4 * len(lots[-1])
        while not all(chain.ended for *_, chain in running):
            for *_, chain in running:
                chain.turn()
            reached = [chain.died_at for *_, chain in running]
            assert time.monotonic() < deadline, f"of {lots} only {reached} were reached"
            time.sleep(0.05)

        for _, load, router, _ in running:
            load.finish()
            router.wait_ready()
        for stage, _, router, chain in running:
            report = stage.settle()
            assert report.sent > 300, report.summary()
            assert not router.events("segment_damaged"), "a crash must never leave a segment that cannot be read"
            assert not router.events("partition_failed")
            assert router.stop() == 0
            print(chain.died_at, report.summary(), report.percentile_ms(50), report.percentile_ms(99))
        assert sorted(place for *_, chain in running for place in chain.died_at) == sorted(named)


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ("seal.nowhere", "there is no such place"),
        ("stop@seal.nowhere", "there is no such place"),
        ("load.taken:0", "n-th"),
        ("stop@load.taken:x", "n-th"),
    ],
)
def test_a_place_that_does_not_exist_is_refused_at_start(told: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        failpoints.arm({failpoints.VARIABLE: told})

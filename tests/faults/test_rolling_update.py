"""Tests routers of an earlier and of this version in one group, while records flow: no loss, no duplicates.

Those of this version have a lane each, of which the last release knows nothing. Another earlier version reads and
writes the same state as this one.
"""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sidecar import failpoints
from tests.faults.stage import SMALL_BUCKETS, FaultStage, settled
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, now_ms, wait_until
from tests.integration.stored_buckets import lanes, state
from tests.support.paths import ROOT

pytestmark = pytest.mark.timeout(300)

RELEASED = ("v0.1.0", "0baa04afbb25a7160f9d04433eb158299b0ddaf6")
"""The tag of the last release, whose rules were of version 2; and its commit, for clones without tags."""

WITH_CLAIMS = "69fbec27e685f4be98b36d5cce931aa8741980ed"
"""The last commit to which the group in the progress was no claim; it reads the state of this version."""

ROOMS = ("index", "sidecar", "snapshots")
# Each of three members then has two partitions, so that those of this version are in its lane.
PARTITIONS = 6

TAKING_OVER = ("recovery.fenced", "recovery.state_read", "recovery.replayed")
BACKLOG = 4_000
BACKLOG_MS = 90_000
KILLS = 6


@pytest.fixture(scope="module")
def version_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the code of the last release; skip in a shallow clone, and fail there in CI."""
    return _unpacked(tmp_path_factory.mktemp("version-before"), *RELEASED)


@pytest.fixture(scope="module")
def version_with_claims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the code of WITH_CLAIMS; skip or fail as for the last release."""
    return _unpacked(tmp_path_factory.mktemp("version-with-claims"), WITH_CLAIMS)


def _unpacked(folder: Path, *names: str) -> Path:
    """Unpack the code of the first of these commits that the clone has."""
    archives = [_archive(name) for name in names]
    found = next((each for each in archives if each.returncode == 0), None)
    if found is None:
        why = f"needs {names[0]}, which a clone without the whole history lacks: git fetch --unshallow --tags"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{why} ({archives[-1].stderr.decode().strip()})")
        pytest.skip(why)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=found.stdout, check=True)
    return folder


def _archive(name: str) -> "subprocess.CompletedProcess[bytes]":
    # In a container of CI the clone may belong to another user, which git refuses otherwise.
    git = ["git", "-c", f"safe.directory={ROOT}", "archive", "--format=tar"]
    return subprocess.run([*git, name, *ROOMS], cwd=ROOT, capture_output=True, check=False)


class Fleet:
    """Routers of one group, two of each version, and a delay topic that a load writes to."""

    def __init__(
        self, stage: FaultStage, version_before: Path, *, named: bool, begun: bool = False, lanes: int = 1
    ) -> None:
        """``begun``: the partitions have a state, which is of the present version; the last release cannot read it."""
        self._version_before = version_before
        out = stage.target("out", 2)
        self.delay = stage.delay("delay", PARTITIONS, begun=begun, default_target=out, **SMALL_BUCKETS)
        self.old, self.new = (
            [
                stage.router(
                    f"{age}-{number}", instance_id=str(number) if named else "", session_timeout="3s", **options
                )
                for number in range(2)
            ]
            for age, options in (("old", {}), ("new", {"lanes": lanes}))
        )

    def start_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Start the routers of the last release, and wait until they are ready."""
        for router in self.old:
            self.start(router, monkeypatch)
        for router in self.old:
            router.wait_ready()

    def start(self, router: RouterProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        """Start a router with the code of its version."""
        with monkeypatch.context() as environ:
            if router in self.old:
                # The interpreter first looks in the folder in which its process is started.
                environ.chdir(self._version_before)
                environ.setenv("PYTHONPATH", str(self._version_before))
            router.start()


def _load(stage: FaultStage, fleet: Fleet, rng: Random) -> Load:
    return Load(stage, [fleet.delay], rng, partitions=PARTITIONS, a_second=120, delays_ms=(0, 8_000))


@pytest.mark.parametrize(
    "named", [pytest.param(True, id="with-names"), pytest.param(False, id="without-names", marks=pytest.mark.slow)]
)
def test_one_router_after_the_other_is_rolled_up_back_and_up_again(
    named: bool, version_before: Path, lone: FaultStage, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last release refuses each partition with a reason; due records wait for the second rollout."""
    fleet = Fleet(lone, version_before, named=named)
    (old, other_old), (new, other_new) = fleet.old, fleet.new
    with old, other_old, new, other_new, _load(lone, fleet, rng) as load:
        fleet.start_old(monkeypatch)
        time.sleep(6)
        for before, after in zip(fleet.old, fleet.new, strict=True):
            assert before.stop() == 0
            after.start_and_wait()
            time.sleep(rng.uniform(3, 6))
        wait_until(lambda: all(lanes(lone, fleet.delay, PARTITIONS)), "every state names a lane")
        for before, after in zip(fleet.old, fleet.new, strict=True):
            assert after.stop() == 0
            fleet.start(before, monkeypatch)
        _wait_until_rolled_back(*fleet.old, partitions=PARTITIONS)
        for before, after in zip(fleet.old, fleet.new, strict=True):
            assert before.stop() == 0
            after.start()
        load.finish()
        settled(lone)
        for router in fleet.new:
            assert not router.events("partition_refused")
            assert not router.events("partition_failed")
            assert router.stop() == 0


@pytest.mark.slow
def test_what_has_been_served_by_this_version_waits_until_the_one_before_is_gone(
    version_before: Path, lone: FaultStage, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollout may begin with one additional router, which then fails."""
    fleet = Fleet(lone, version_before, named=False)
    (old, other_old), (new, other_new) = fleet.old, fleet.new
    with old, other_old, new, other_new, _load(lone, fleet, rng) as load:
        fleet.start_old(monkeypatch)
        time.sleep(4)
        new.start_and_wait()
        wait_until(lambda: any(lanes(lone, fleet.delay, PARTITIONS)), "the new one serves partitions in its lane")
        time.sleep(rng.uniform(3, 6))
        new.kill()
        died_in_lane = sum(map(bool, lanes(lone, fleet.delay, PARTITIONS)))
        assert died_in_lane > 0
        _wait_until_rolled_back(old, other_old, partitions=died_in_lane)
        old.kill()
        new.start()
        time.sleep(rng.uniform(3, 6))
        assert other_old.stop() == 0
        other_new.start_and_wait()
        load.finish()
        settled(lone)
        for router in fleet.new:
            assert not router.events("partition_refused")
            assert router.stop() == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_upgrade_that_is_killed_rolled_back_and_made_again(
    version_before: Path, lone: FaultStage, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(lone, version_before, named=False)
    (old, other_old), (new, other_new) = fleet.old, fleet.new
    with old, other_old, new, other_new, _load(lone, fleet, rng) as load:
        fleet.start_old(monkeypatch)
        _send_backlog(lone, fleet.delay, rng)
        wait_until(lambda: _in_buckets(lone, fleet.delay) >= BACKLOG // 4, "the last release has sealed the backlog")
        old.kill()
        for place in TAKING_OVER:
            _start_and_die(new, place, monkeypatch)
        new.start()
        wait_until(lambda: bool(new.events("partition_active")), "this version serves a partition")
        fleet.start(old, monkeypatch)
        time.sleep(rng.uniform(3, 6))
        assert new.stop() == 0
        _wait_until_rolled_back(old, other_old)
        _kill_at_random(fleet, [old, new], rng, monkeypatch)
        for router in (*fleet.old, new):
            router.kill()
        new.start()
        other_new.start_and_wait()
        load.finish()
        report = settled(lone, at_least=BACKLOG, timeout_s=240)
        assert report.released_once > BACKLOG
        for router in fleet.new:
            assert not router.events("partition_refused")
            assert router.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("in_lanes", [False, True], ids=["with-own-producers", "in-lanes"])
def test_a_version_with_claims_and_this_one_take_over_from_each_other_when_killed(
    in_lanes: bool, version_with_claims: Path, lone: FaultStage, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(lone, version_with_claims, named=True, begun=True, lanes=int(in_lanes))
    (old, other_old), (new, other_new) = fleet.old, fleet.new
    with old, other_old, new, other_new, _load(lone, fleet, rng) as load:
        fleet.start_old(monkeypatch)
        for killed, follows in ((old, new), (other_old, other_new), (new, old), (other_new, other_old), (old, new)):
            time.sleep(rng.uniform(2, 4))
            killed.kill()
            fleet.start(follows, monkeypatch)
            follows.wait_ready()
            if follows is other_new:
                wait_until(
                    lambda: {*map(bool, lanes(lone, fleet.delay, PARTITIONS))} == {in_lanes},
                    "each state names a lane, or none does",
                )
        load.finish()
        settled(lone)
        for router in (other_old, new):
            assert router.stop() == 0
        for router in (*fleet.old, *fleet.new):
            assert not router.events("partition_refused")
            assert not router.events("partition_failed")


def _send_backlog(stage: FaultStage, delay: str, rng: Random) -> None:
    """Send records that are due at random times, from the time of the last release until after the rollback."""
    began_ms = now_ms()
    for number in range(BACKLOG):
        due_ms = began_ms + rng.randrange(5_000, BACKLOG_MS)
        stage.post(delay, ("deliver-at", b"%d" % due_ms), value=b"backlog %d" % number, partition=number % PARTITIONS)
    stage.flush()


def _in_buckets(stage: FaultStage, delay: str) -> int:
    """Return the number of entries in all buckets of the state."""
    return sum(each.entries for partition in range(PARTITIONS) for each in state(stage, delay, partition).buckets)


def _start_and_die(router: RouterProcess, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a router die at a failpoint of its first take-over."""
    with monkeypatch.context() as environ:
        environ.setenv(failpoints.VARIABLE, place)
        router.start()
    wait_until(lambda: not router.running, f"its end at {place}")


def _wait_until_rolled_back(*routers: RouterProcess, partitions: int = 1) -> None:
    """Wait until the last release refuses so many of the partitions served by this version, and names the remedy."""
    refused: dict[str, str] = {}

    def are_refused() -> bool:
        for router in routers:
            refused.update(_refused(router))
        return len(refused) >= partitions

    wait_until(are_refused, "the last release refuses what this one has served")
    for why in refused.values():
        # The claim of the group is a key that the last release does not know; it would also refuse the rules.
        assert "upgrade the router" in why


def _kill_at_random(
    fleet: Fleet, routers: Sequence[RouterProcess], rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(KILLS):
        router = rng.choice(routers)
        router.kill()
        time.sleep(rng.uniform(0, 2))
        fleet.start(router, monkeypatch)
        time.sleep(rng.uniform(1, 5))


def _refused(router: RouterProcess) -> dict[str, str]:
    _, body = router.http("/readyz")
    partitions: dict[str, dict[str, Any]] = json.loads(body).get("partitions", {}) if body[:1] == "{" else {}
    return {name: each["why"] for name, each in partitions.items() if each["state"] == "refused"}

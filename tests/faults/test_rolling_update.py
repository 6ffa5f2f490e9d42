"""Routers of the version before and of this one in one group, while records flow: nothing is lost or doubled."""

import json
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from index.rules import RULES_VERSION
from tests.faults.stage import SMALL_BUCKETS, FaultStage, settled
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BEFORE = "0baa04afbb25a7160f9d04433eb158299b0ddaf6"
"""A commit of the version before, whose rules were of version 2."""

ROOMS = ("index", "sidecar", "snapshots")
PARTITIONS = 4


@pytest.fixture(scope="module")
def version_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the code of the version before; skipped aloud where its history is not there."""
    folder = tmp_path_factory.mktemp("version-before")
    call = ["git", "archive", "--format=tar", BEFORE, *ROOMS]
    archive = subprocess.run(call, cwd=Path(__file__).parents[2], capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip(f"needs the history of the repository: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


class Fleet:
    """Routers of one group, two of each version, and a delay topic that a load writes to."""

    def __init__(self, stage: FaultStage, version_before: Path, *, named: bool) -> None:
        self._version_before = version_before
        out = stage.target("out", 2)
        # Without a state: one that tests begin with is of the version of now.
        self.delay = stage.delay("delay", PARTITIONS, begun=False, default_target=out, **SMALL_BUCKETS)
        self.old, self.new = (
            [
                stage.router(f"{age}-{number}", instance_id=str(number) if named else "", session_timeout="3s")
                for number in range(2)
            ]
            for age in ("old", "new")
        )

    def start_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Start those of the version before."""
        with monkeypatch.context() as environ:
            # The folder a process is started in is where its interpreter looks first.
            environ.chdir(self._version_before)
            environ.setenv("PYTHONPATH", str(self._version_before))
            for router in self.old:
                router.start()
        for router in self.old:
            router.wait_ready()


def _load(stage: FaultStage, fleet: Fleet, rng: Random) -> Load:
    return Load(stage, [fleet.delay], rng, partitions=PARTITIONS, a_second=120, delays_ms=(0, 8_000))


@pytest.mark.parametrize("named", [True, False], ids=["with-names", "without-names"])
def test_one_router_after_the_other_is_brought_up_to_date(
    named: bool, version_before: Path, lone: FaultStage, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(lone, version_before, named=named)
    (old, other_old), (new, other_new) = fleet.old, fleet.new
    with old, other_old, new, other_new, _load(lone, fleet, rng) as load:
        fleet.start_old(monkeypatch)
        time.sleep(6)
        for before, after in zip(fleet.old, fleet.new, strict=True):
            assert before.stop() == 0
            after.start_and_wait()
            time.sleep(rng.uniform(3, 6))
        load.finish()
        settled(lone)
        for router in fleet.new:
            assert not router.events("partition_refused")
            assert not router.events("partition_failed")
            assert router.stop() == 0


def test_what_has_been_served_by_this_version_waits_until_the_one_before_is_gone(
    version_before: Path, lone: FaultStage, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a rollout that begins with one router more, which then fails."""
    fleet = Fleet(lone, version_before, named=False)
    (old, other_old), (new, other_new) = fleet.old, fleet.new
    with old, other_old, new, other_new, _load(lone, fleet, rng) as load:
        fleet.start_old(monkeypatch)
        time.sleep(4)
        new.start_and_wait()
        wait_until(lambda: bool(new.events("partition_active")), "the new one serves a partition")
        time.sleep(rng.uniform(3, 6))
        new.kill()
        refused: dict[str, str] = {}

        def are_refused() -> bool:
            refused.update(_refused(old) | _refused(other_old))
            return bool(refused)

        wait_until(are_refused, "the version before refuses what this one has served", 60.0)
        for why in refused.values():
            assert f"version {RULES_VERSION}" in why
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


def _refused(router: RouterProcess) -> dict[str, str]:
    _, body = router.http("/readyz")
    partitions: dict[str, dict[str, Any]] = json.loads(body).get("partitions", {}) if body[:1] == "{" else {}
    return {name: each["why"] for name, each in partitions.items() if each["state"] == "refused"}

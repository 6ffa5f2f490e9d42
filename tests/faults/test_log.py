"""Tests of the logs: a full disk, a flood of rejected records, and compaction that races with recovery."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.faults.named_load import RECURRING, NamedLoad, check_receipts
from tests.faults.operating import end_forgotten
from tests.faults.stage import SMALL_BUCKETS, FaultStage, proxied, settled
from tests.integration.scenario import APPEND_TIME, Load, wait_until

pytestmark = pytest.mark.slow

DISK_BYTES = 600 * 1_048_576
GARBAGE_BYTES = 100 * 1_048_576
COMPACTED_NOW = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
    "delete.retention.ms": "500",
}


@pytest.fixture
def small_disk(needs_own_nodes: None, tmp_path: Path) -> Iterator[Path]:
    """Yield a disk of a fixed size that a test can fill."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a disk of its own: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("named", [False, True], ids=["plain", "with-ids-and-series"])
def test_the_disk_is_full(named: bool, small_disk: Path, tmp_path: Path, rng: Random) -> None:
    """The broker gives up; when there is room again and it is started, everything goes on.

    A broker that starts may forget a transaction (KAFKA-20734). Then the router names the command that ends it.
    """
    with proxied(1, properties={"log.dirs": str(small_disk / "data")}) as running:
        stage = FaultStage(running, tmp_path / "routers")
        out = stage.target()
        delay = stage.delay(default_target=out, **SMALL_BUCKETS, **RECURRING)
        stage.alter(f"{delay}.receipts", APPEND_TIME)
        (node,) = running.cluster.nodes
        load = NamedLoad(stage, delay, rng) if named else Load(stage, [delay], rng, delays_ms=(0, 8_000))
        with stage.router() as router, load:
            router.start_and_wait()
            time.sleep(2)
            filler = small_disk / "filler"
            _fill(filler)
            wait_until(lambda: not node.running, "a broker that gives up", 60)
            filler.unlink()
            node.kill()
            node.start()
            time.sleep(2)
            load.finish()
            end_forgotten(stage, [delay], [out], router)
            settled(stage)
            if named:
                check_receipts(stage, delay, out)
            assert router.stop() == 0


def test_a_flood_of_records_that_are_rejected(lone: FaultStage, rng: Random) -> None:
    out = lone.target()
    delay = lone.delay(default_target=out, **SMALL_BUCKETS)
    junk = rng.randbytes(10_000)
    with lone.router() as router:
        router.start_and_wait()
        for number in range(GARBAGE_BYTES // len(junk)):
            lone.post(delay, ("deliver-at", b"whenever"), value=b"%d" % number + junk)
            if number % 1_000 == 0:
                lone.post(delay, ("deliver-after", b"1000"), value=b"good %d" % number)
        lone.flush()
        report = settled(lone)
        assert report.rejected == GARBAGE_BYTES // len(junk)
        assert report.released_once > 0
        assert router.stop() == 0


def test_compaction_and_removal_race_with_recovery(lone: FaultStage, rng: Random) -> None:
    """State and snapshots are compacted every second while the router is killed again and again."""
    out = lone.target()
    delay = lone.delay(default_target=out, **{**SMALL_BUCKETS, "seal_age": "300ms"})
    for name in ("delay-state", "delay-snapshots"):
        lone.alter(f"{delay}.{name}", COMPACTED_NOW)
    with lone.router() as router, Load(lone, [delay], rng, delays_ms=(0, 12_000)) as load:
        router.start_and_wait()
        for _ in range(6):
            time.sleep(rng.uniform(2, 4))
            router.kill()
            router.start()
        router.wait_ready()
        load.finish()
        settled(lone)
        # Every transaction leaves a record and a marker there: without compaction, records take half of the offsets.
        # The remaining share depends on how often the broker's cleaner ran.
        left, offsets = len(lone.records(f"{delay}.delay-state")), lone.offsets(f"{delay}.delay-state")
        assert left * 5 < offsets * 2, f"nothing was compacted: {left} records on {offsets} offsets"
        assert not router.events("segment_damaged")
        assert router.stop() == 0


def _fill(filler: Path) -> None:
    # Without a buffer: flushing its rest to a full disk would make closing the file fail, too.
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(os.urandom(1_048_576))

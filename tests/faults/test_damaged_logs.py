"""Tests of changed bytes in a broker's own log on disk: batch checksums reveal them, and no reader uses them."""

from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.faults.stage import SMALL_BUCKETS, FaultStage, proxied
from tests.integration.readiness import partitions, refused
from tests.integration.scenario import header, now_ms, wait_until
from tests.integration.stored_buckets import state

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RECORDS = 300
PENDING_FOR_MS = 30_000
SNAPSHOTS, STATE = range(2)
BATCH_HEADER_BYTES: Final = 61
LENGTH_AT: Final = 8
LENGTH_OF: Final = 12
ATTRIBUTES_AT: Final = 21
CONTROL_BIT: Final = 0x20


def flip_a_byte_of_each_batch(log: Path, rng: Random) -> int:
    """Damage the records of every batch of a log file, except markers. Return the number of batches."""
    damaged = bytearray(log.read_bytes())
    start = count = 0
    while start + BATCH_HEADER_BYTES < len(damaged):
        size = LENGTH_OF + int.from_bytes(damaged[start + LENGTH_AT : start + LENGTH_OF])
        if size <= LENGTH_OF:
            break
        if not damaged[start + ATTRIBUTES_AT + 1] & CONTROL_BIT:
            damaged[rng.randrange(start + BATCH_HEADER_BYTES, start + size)] ^= rng.randrange(1, 256)
            count += 1
        start += size
    log.write_bytes(damaged)
    return count


def _send_and_wait_until_sealed(stage: FaultStage, delay: str, rng: Random) -> None:
    due_ms = now_ms() + PENDING_FOR_MS
    for partition in (SNAPSHOTS, STATE):
        dues_ms = [due_ms + rng.randrange(5_000) for _ in range(RECORDS)]
        stage.send_many(delay, [[("deliver-at", b"%d" % each)] for each in dues_ms], partition=partition)

    def are_sealed() -> bool:
        states = [state(stage, delay, partition) for partition in (SNAPSHOTS, STATE)]
        return all(sum(each.entries for each in found.buckets) == RECORDS for found in states)

    wait_until(are_sealed, "everything is in buckets")


def test_bytes_that_have_changed_on_the_disk(needs_own_nodes: None, tmp_path: Path, rng: Random) -> None:
    """Segments are repaired from the delay topic; an unreadable state stops its partition, with a reason."""
    data = tmp_path / "data"
    with proxied(1, properties={"log.dirs": str(data)}) as running:
        stage = FaultStage(running, tmp_path / "routers")
        (node,) = running.cluster.nodes
        out = stage.target()
        delay = stage.delay(partitions=2, default_target=out, placement="inline", **SMALL_BUCKETS)
        with stage.router() as router:
            router.start_and_wait()
            _send_and_wait_until_sealed(stage, delay, rng)
            router.kill()
            for partition in (SNAPSHOTS, STATE):
                stage.end_open(delay, partition)
            node.stop()
            for topic in (f"{delay}.delay-snapshots-{SNAPSHOTS}", f"{delay}.delay-state-{STATE}"):
                (log,) = (data / topic).glob("*.log")
                assert flip_a_byte_of_each_batch(log, rng) > 0
            node.start()
            running.cluster.wait_ready()
            router.start()
            released = stage.wait_records(out, RECORDS, 120)
            sources = {(header(each, "delay-source") or b"").rpartition(b"/")[0] for each in released}
            assert sources == {f"{delay}/{SNAPSHOTS}".encode()}
            assert router.events("segment_made_good")
            # A refused partition is tried again every 15 s, so it may be fencing now.
            wait_until(lambda: refused(router, f"{delay}/{STATE}"), "a refusal")
            why = partitions(router)[f"{delay}/{STATE}"]["why"]
            assert f"{delay}.delay-state/{STATE} has a batch that cannot be read" in why
            assert "failed CRC32C check" in why
            assert len(stage.records(out)) == RECORDS
            assert router.stop() == 0

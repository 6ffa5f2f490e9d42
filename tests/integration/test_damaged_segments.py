"""Tests of missing or damaged segments: repaired from the delay topic, or the partition stops with instructions."""

import json
import re
import time
from collections import Counter
from random import Random
from typing import Any

from tests.integration.damaging import exchange, garble, remove
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Stage, header, now_ms, wait_until
from tests.integration.stored_buckets import delete_records, state

BUCKETS: dict[str, Any] = {
    "seal_records": 150,
    "seal_age": "1s",
    "seal_beyond": "0ms",
    "segment_records": 50,
    "max_buckets": 2,
    "segment_bytes": "16KiB",
}
GARBLED, EXCHANGED, REMOVED, LOST, UNTOUCHED = range(5)
BATCHES, BATCH = 6, 60


def test_segments_that_cannot_be_read(stage: Stage, rng: Random) -> None:
    out = stage.target()
    delay = stage.delay("delay", 5, default_target=out, placement="inline", **BUCKETS)
    pointers = stage.delay("pointers", default_target=out, placement="pointer", **BUCKETS)
    places = [*((delay, partition) for partition in range(5)), (pointers, 0)]
    whole = [place for place in places if place != (delay, LOST)]
    with stage.router() as router:
        router.start_and_wait()
        began_ms = now_ms()
        # Some records leave while others are sealed and merged: the delay topic keeps only a part of some segments.
        for batch in range(BATCHES):
            for name, partition in places:
                for _ in range(BATCH):
                    due_ms = began_ms + 500 * batch + rng.randrange(9_000)
                    stage.post(name, ("deliver-at", b"%d" % due_ms), value=b"v", partition=partition)
            stage.flush()
            time.sleep(max(0, began_ms + 500 * (batch + 1) - now_ms()) / 1_000)
        wait_until(lambda: all(sealed(stage, *place) for place in places), "all is in buckets")
        router.kill()
        for place in places:
            stage.end_open(*place)
        garble(stage, delay, GARBLED)
        garble(stage, pointers, 0)
        exchange(stage, delay, EXCHANGED)
        remove(stage, delay, REMOVED)
        garble(stage, delay, LOST)
        damaged = state(stage, delay, LOST).buckets
        assert sum(manifest.entries for manifest in damaged) > 50, "the machine is too slow: most have left already"
        delete_records(stage, delay, LOST, damaged[-1].to_offset - 1)

        router.start()
        wait_until(lambda: refused(router, f"{delay}/{LOST}") != "", "a partition that refuses")
        why = refused(router, f"{delay}/{LOST}")
        assert re.search(rf"segment \d+ of bucket \d+ of {delay}/{LOST} is lost \(checksum", why), why
        assert f"Restore {delay}.delay-snapshots" in why
        assert f"delay-router start-over {delay}/{LOST}" in why

        wait_until(lambda: all(gone(stage, *place) for place in whole), "the others go on to their end")
        good = {(event["topic"], event["partition"]) for event in router.events("segment_made_good")}
        assert good == {(delay, GARBLED), (delay, EXCHANGED), (delay, REMOVED), (pointers, 0)}
        assert not router.events("partition_failed")
        report = stage.audit()
        assert (report.duplicated, report.early, report.altered) == (0, 0, 0), report.summary()
        assert refused(router, f"{delay}/{LOST}"), "it must not go on without them by and by"
        assert router.metric("payload_bytes") == 0, "a partition that refuses gives its memory back"
        found = Counter(
            (header(record, "delay-source") or b"").decode().rpartition("/")[0] for record in stage.records(out)
        )
        assert [found[f"{name}/{partition}"] for name, partition in whole] == [BATCHES * BATCH] * len(whole)
        assert router.stop() == 0


def refused(router: RouterProcess, place: str) -> str:
    """Return the reason for a refusal of a partition in the body of /readyz; empty without a refusal."""
    try:
        told = json.loads(router.http("/readyz")[1])["partitions"].get(place, {})
    except (json.JSONDecodeError, KeyError):
        return ""
    return str(told["why"]) if told.get("state") == "refused" else ""


def sealed(stage: Stage, delay: str, partition: int) -> bool:
    progress = state(stage, delay, partition).progress
    return progress.sealed_to == progress.cursor >= BATCHES * BATCH


def gone(stage: Stage, delay: str, partition: int) -> bool:
    return sealed(stage, delay, partition) and not state(stage, delay, partition).buckets


def test_segments_behind_the_end_of_their_topic(stage: Stage, rng: Random) -> None:
    """A log that has lost its end holds other segments at these offsets later, or none at all."""
    delay = stage.delay(default_target=stage.target(), placement="inline", **BUCKETS)
    with stage.router() as router:
        router.start_and_wait()
        due_ms = now_ms() + 15_000
        for _ in range(BATCHES * BATCH):
            stage.post(delay, ("deliver-at", b"%d" % (due_ms + rng.randrange(3_000))), value=b"v")
        stage.flush()
        wait_until(lambda: sealed(stage, delay, 0), "all is in buckets")
        router.kill()
        stage.delete(f"{delay}.delay-snapshots")
        router.init()
        router.start_and_wait()
        wait_until(lambda: gone(stage, delay, 0), "the partition goes on to its end")
        assert router.events("segment_made_good")
        assert stage.settle().released_once == BATCHES * BATCH
        assert router.stop() == 0

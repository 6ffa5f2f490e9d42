"""Tests of garbage in the state topic: the partition is refused with a reason or goes on, without wrong releases."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import NewTopic

from sidecar.config import model as configuration
from sidecar.kafka.client import admin as cluster
from sidecar.policies.operations import Operations
from sidecar.policies.policy import target_scope
from sidecar.policies.topic import PoliciesOnDemand
from snapshots.envelope import Kind, kind_of
from snapshots.segments.manifest import MANIFEST_PREFIX, encode_manifest, manifest_key
from snapshots.state.held import HELD_PREFIX
from snapshots.state.mask import MASK_PREFIX
from snapshots.state.state import PROGRESS_KEY, RULES_KEY
from tests.faults.stage import FaultStage
from tests.integration.readiness import partitions
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, Header, header, now_ms, wait_until
from tests.integration.stored_buckets import segment_records, state
from tests.support.stored import flipped, golden

Stored = Mapping[bytes, bytes]
Written = dict[bytes | None, bytes | None]

HUGE_BYTES = 3_000_000
SEALED = 60
CANCELLED = 5
HELD = 3
PENDING_FOR_MS = 40_000
SMALL: dict[str, Any] = {
    "seal_records": SEALED // 2,
    "seal_age": "1s",
    "seal_beyond": "0ms",
    "segment_records": 10,
    "placement": "inline",
}


class Garbage(NamedTuple):
    """Records for a state partition, and a part of the reason with which a router refuses it."""

    made_of: Callable[[Stored, Random], Written]
    why: str


def _damaged(prefix: bytes) -> Callable[[Stored, Random], Written]:
    """Return a function that flips one bit of some record with this prefix."""

    def damaged(stored: Stored, rng: Random) -> Written:
        key = rng.choice([each for each in stored if each.startswith(prefix)])
        return {key: flipped(stored[key], rng.randrange(len(stored[key]) * 8))}

    return damaged


def _under_another_key(stored: Stored, _: Random) -> Written:
    key = next(each for each in stored if each.startswith(MANIFEST_PREFIX))
    return {manifest_key(int(key[len(MANIFEST_PREFIX) :]) + 1): stored[key]}


def _replaced(key: bytes, value: Callable[[Random], bytes]) -> Callable[[Stored, Random], Written]:
    return lambda _, rng: {key: value(rng)}


GARBAGE: Mapping[str, Garbage] = {
    "no-key": Garbage(lambda _, rng: {None: rng.randbytes(20)}, "no router writes a record without a key"),
    "any-key": Garbage(lambda _, rng: {b"\xff\x00" + rng.randbytes(8): rng.randbytes(20)}, "is not known here"),
    "huge-key": Garbage(lambda _, rng: {rng.randbytes(HUGE_BYTES): b"v"}, "is not known here"),
    "huge-value": Garbage(lambda _, rng: {b"orders": rng.randbytes(HUGE_BYTES)}, "is not known here"),
    "any-progress": Garbage(_replaced(PROGRESS_KEY, lambda rng: rng.randbytes(60)), "not written by this router"),
    "empty-progress": Garbage(_replaced(PROGRESS_KEY, lambda _: b""), "0 bytes are too few"),
    "huge-progress": Garbage(_replaced(PROGRESS_KEY, lambda rng: b"KDR\1\1" + rng.randbytes(HUGE_BYTES)), "progress"),
    "future-progress": Garbage(
        _replaced(PROGRESS_KEY, lambda _: golden("progress-v2-future.bin")), "version 2 is not known here"
    ),
    "damaged-progress": Garbage(_damaged(PROGRESS_KEY), "record 'progress'"),
    "damaged-rules": Garbage(_damaged(RULES_KEY), "record 'rules'"),
    "damaged-manifest": Garbage(_damaged(MANIFEST_PREFIX), "record 'bucket/"),
    "damaged-held": Garbage(_damaged(HELD_PREFIX), "record 'held/"),
    "damaged-mask": Garbage(_damaged(MASK_PREFIX), "record 'mask/"),
    "misplaced-manifest": Garbage(_under_another_key, "holds the manifest of bucket"),
}
DAMAGED_IDS = len(GARBAGE)
GOING_ON = (DAMAGED_IDS, DAMAGED_IDS + 1)
PARTITIONS = len(GARBAGE) + len(GOING_ON)
LONGEST_REASON = 2_000


class Scene:
    """A delay topic whose partitions have buckets with ids, a mask and held records in their state."""

    def __init__(self, stage: FaultStage) -> None:
        self.stage = stage
        self.out, self.closed = stage.target(), stage.target("closed")
        self.delay = stage.delay(partitions=PARTITIONS, default_target=self.out, allowed_targets=[self.closed], **SMALL)
        self.state_topic = f"{self.delay}.delay-state"
        self.policies = f"__{stage.word}.policies"
        stage.create([NewTopic(self.policies, 1, 1, config={"cleanup.policy": "compact", **APPEND_TIME})])
        stage.alter(self.state_topic, {"max.message.bytes": "8000000"})

    def pause(self, router: RouterProcess, *, on: bool) -> None:
        config = configuration.load(router.config, {})
        operations = Operations(config, cluster.connect(config), PoliciesOnDemand(config))
        operations.switch(target_scope(self.closed), "paused", on=on)

    def send(self) -> None:
        """Send records to be sealed, held and cancelled to each partition, and wait until the states have them."""
        due_ms = now_ms() + PENDING_FOR_MS
        for partition in range(PARTITIONS):
            schedules: list[list[Header]] = [
                [("deliver-at", b"%d" % (due_ms + number * 7919 % 2_000)), ("deliver-id", b"id-%d" % number)]
                for number in range(SEALED)
            ]
            self.stage.send_many(self.delay, schedules, partition=partition)
            self.stage.send_many(self.delay, [[("deliver-to", self.closed.encode())]] * HELD, partition=partition)
        for partition in range(PARTITIONS):
            wait_until(partial(self._is_stored, partition, 0), f"everything of {partition} is stored")
            self.cancel(partition, range(CANCELLED))
        for partition in range(PARTITIONS):
            wait_until(partial(self._is_stored, partition, CANCELLED), f"a mask of {partition}")

    def cancel(self, partition: int, numbers: range) -> None:
        cancels: list[list[Header]] = [[("deliver-cancel", b"id-%d" % number)] for number in numbers]
        self.stage.send_many(self.delay, cancels, partition=partition)

    def _is_stored(self, partition: int, masked: int) -> bool:
        found = state(self.stage, self.delay, partition)
        entries = sum(each.entries for each in found.buckets)
        return (entries, len(found.held), len(found.mask)) == (SEALED, HELD, masked)

    def stored(self, partition: int) -> Stored:
        """Return the last value of each key of a state partition."""
        latest: dict[bytes, bytes] = {}
        for record in self.stage.records(self.state_topic):
            if record.partition != partition or record.key is None:
                continue
            if record.value is None:
                latest.pop(record.key, None)
            else:
                latest[record.key] = record.value
        return latest

    def write(self, partition: int, records: Written) -> None:
        for key, value in records.items():
            if key is None:
                self._write_without_key(partition, value)
            else:
                self.stage.send(self.state_topic, key=key, value=value, partition=partition)

    def _write_without_key(self, partition: int, value: bytes | None) -> None:
        """Write a record without a key while the topic is not compacted; the broker applies changes a little later."""
        self.stage.alter(self.state_topic, {"cleanup.policy": "delete"})

        def is_taken() -> bool:
            try:
                self.stage.send(self.state_topic, key=None, value=value, partition=partition)
            except AssertionError:
                return False
            return True

        wait_until(is_taken, "a record without a key is taken")
        self.stage.alter(self.state_topic, {"cleanup.policy": "compact"})
        wait_until(lambda: not is_taken(), "no more of them is taken")

    def damage_ids(self, partition: int, rng: Random) -> None:
        """Let the manifests of a partition name pages of ids that have a flipped bit."""
        records = segment_records(self.stage, self.delay, partition)
        for manifest in state(self.stage, self.delay, partition).buckets:
            (ref,) = manifest.id_pages or ()
            page = records[ref.record_offset].value or b""
            assert kind_of(page) is Kind.IDS
            damaged = flipped(page, rng.randrange(len(page) * 8))
            place = self.stage.send(f"{self.delay}.delay-snapshots", key=b"d", value=damaged, partition=partition)
            moved = ref._replace(record_offset=int(place.rpartition("/")[2]))
            value = encode_manifest(replace(manifest, id_pages=(moved,)))
            self.write(partition, {manifest_key(manifest.bucket_id): value})


def _why(router: RouterProcess, scene: Scene, partition: int) -> str:
    """Return the reason for the refusal of a partition, or an empty text."""
    told = partitions(router).get(f"{scene.delay}/{partition}", {})
    return str(told["why"]) if told.get("state") == "refused" else ""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_garbage_in_the_state_topic(lone: FaultStage, rng: Random) -> None:
    scene = Scene(lone)
    with lone.router(policies_topic=scene.policies) as router:
        scene.pause(router, on=True)
        router.start_and_wait()
        scene.send()
        router.kill()
        restored = _write_garbage(scene, rng)
        router.start()
        _wait_until_refused(router, scene)
        _the_others_go_on(scene)
        for partition, records in restored.items():
            scene.write(partition, records)
        router.wait_ready(90)
        scene.pause(router, on=False)
        report = lone.settle()
        assert len(lone.records(scene.closed)) == HELD * PARTITIONS
        cancelled = CANCELLED * (PARTITIONS + len(GOING_ON))
        assert len(lone.records(scene.out)) == SEALED * PARTITIONS - cancelled
        assert report.released_once == len(lone.records(scene.out)) + HELD * PARTITIONS
        assert not router.events("partition_failed")
        assert router.stop() == 0


def _write_garbage(scene: Scene, rng: Random) -> dict[int, Written]:
    """Write each kind of garbage to its own partition. Return the records that repair each."""
    restored: dict[int, Written] = {}
    for partition, garbage in enumerate(GARBAGE.values()):
        scene.stage.end_open(scene.delay, partition)
        stored = scene.stored(partition)
        written = garbage.made_of(stored, rng)
        scene.write(partition, written)
        restored[partition] = {key: stored.get(key or b"") for key in written}
    scene.damage_ids(DAMAGED_IDS, rng)
    return restored


def _wait_until_refused(router: RouterProcess, scene: Scene) -> None:
    for partition, (name, garbage) in enumerate(GARBAGE.items()):
        whys: list[str] = []

        def is_refused(partition: int = partition, whys: list[str] = whys) -> bool:
            whys.append(_why(router, scene, partition))
            return whys[-1] != ""

        wait_until(is_refused, f"a refusal of {name}")
        assert garbage.why in whys[-1], f"{name}: {whys[-1]}"
        assert len(whys[-1]) < LONGEST_REASON, f"{name}: a reason of {len(whys[-1])} characters"


def _the_others_go_on(scene: Scene) -> None:
    """Cancel by id, also with unreadable pages of ids, and wait until all remaining records have been released."""
    for partition in GOING_ON:
        scene.cancel(partition, range(CANCELLED, 2 * CANCELLED))
    receipts = scene.stage.wait_records(f"{scene.delay}.receipts", (PARTITIONS + len(GOING_ON)) * CANCELLED)
    assert {json.loads(each.value or b"")["outcome"] for each in receipts} == {"cancelled"}
    released = scene.stage.wait_records(scene.out, len(GOING_ON) * (SEALED - 2 * CANCELLED))
    sources = {(header(each, "delay-source") or b"").split(b"/")[1] for each in released}
    assert sources == {b"%d" % partition for partition in GOING_ON}
    assert scene.stage.records(scene.closed) == []

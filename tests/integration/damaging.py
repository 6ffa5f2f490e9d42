"""Damages the stored segments of a partition, as a failing disk or a wrong restore would."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from confluent_kafka import Producer

from index.buckets.bucket import SegmentRef
from snapshots.segments.manifest import encode_manifest, manifest_key
from tests.integration.scenario import TIMEOUT_S, Stage
from tests.integration.stored_buckets import delete_records, segment_records, state


def garble(stage: Stage, delay: str, partition: int) -> None:
    """Replace every segment of a partition by a copy with one flipped bit."""
    records = segment_records(stage, delay, partition)
    garbled: dict[bytes, bytes] = {}
    for ref in _segments(stage, delay, partition):
        value = bytearray(records[ref.record_offset].value or b"")
        value[len(value) // 2] ^= 4
        garbled[b"garbled %d" % ref.record_offset] = bytes(value)
    _produce(stage, f"{delay}.delay-snapshots", partition, garbled)
    written = {each.key: offset for offset, each in segment_records(stage, delay, partition).items()}
    _move(stage, delay, partition, lambda record_offset: written[b"garbled %d" % record_offset])


def exchange(stage: Stage, delay: str, partition: int) -> None:
    """Replace every segment of a partition by another segment that is whole and readable."""
    offsets = [ref.record_offset for ref in _segments(stage, delay, partition)]
    assert len(offsets) > 1
    following = dict(zip(offsets, [*offsets[1:], offsets[0]], strict=True))
    _move(stage, delay, partition, following.__getitem__)


def _segments(stage: Stage, delay: str, partition: int) -> list[SegmentRef]:
    return [ref for manifest in state(stage, delay, partition).buckets for ref in manifest.segments]


def _move(stage: Stage, delay: str, partition: int, moved: Callable[[int], int]) -> None:
    """Change the offsets in the manifests, as only a defect or a restore would."""
    changed = [
        replace(
            manifest,
            segments=tuple(ref._replace(record_offset=moved(ref.record_offset)) for ref in manifest.segments),
        )
        for manifest in state(stage, delay, partition).buckets
    ]
    values = {manifest_key(manifest.bucket_id): encode_manifest(manifest) for manifest in changed}
    _produce(stage, f"{delay}.delay-state", partition, values)


def _produce(stage: Stage, topic: str, partition: int, records: Mapping[bytes, bytes]) -> None:
    producer = Producer({**stage.kafka})
    for key, value in records.items():
        producer.produce(topic, value, key, partition)
    assert producer.flush(TIMEOUT_S) == 0


def remove(stage: Stage, delay: str, partition: int) -> None:
    """Remove every segment of a partition."""
    snapshots = f"{delay}.delay-snapshots"
    # Brokers refuse to remove records of a topic that is only compacted.
    stage.alter(snapshots, {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"})
    delete_records(stage, snapshots, partition, max(segment_records(stage, delay, partition)) + 1)

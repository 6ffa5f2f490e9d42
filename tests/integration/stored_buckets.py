"""Reads back by position the buckets that the router has stored."""

from collections.abc import Iterator

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from index.buckets.bucket import Manifest
from sidecar.dev.audit import AuditedRecord
from snapshots.segments.manifest import MANIFEST_PREFIX, decode_manifest
from snapshots.segments.segment import StoredEntry, decode_segment
from snapshots.state.state import StoredState, fold_state
from tests.integration.scenario import TIMEOUT_S, Stage, wait_until


def state(stage: Stage, delay: str, partition: int = 0) -> StoredState:
    """Return the state of a partition, as the next owner will read it."""
    records = [each for each in stage.records(f"{delay}.delay-state") if each.partition == partition]
    folded = fold_state([(each.key, each.value) for each in records])
    assert folded is not None, f"{delay}/{partition} has no state"
    return folded


def lanes(stage: Stage, delay: str, partitions: int) -> list[str]:
    """Return the transactional id of the lane that the state of each partition names, or an empty text."""
    named = [state(stage, delay, partition).lane for partition in range(partitions)]
    return ["" if lane is None else lane.transactional_id for lane in named]


def manifests_ever(stage: Stage, delay: str) -> Iterator[Manifest]:
    """Yield every manifest that was ever committed, including the manifests of removed buckets."""
    for record in stage.records(f"{delay}.delay-state"):
        if record.value is not None and (record.key or b"").startswith(MANIFEST_PREFIX):
            yield decode_manifest(record.key or b"", record.value)


def segment_records(stage: Stage, delay: str, partition: int = 0) -> dict[int, AuditedRecord]:
    """Return the records of the snapshots topic by offset."""
    found = stage.records(f"{delay}.delay-snapshots")
    return {each.offset: each for each in found if each.partition == partition}


def entries_of(stage: Stage, delay: str, manifest: Manifest) -> list[StoredEntry]:
    """Return the entries of all segments of a bucket."""
    records = segment_records(stage, delay)
    return [entry for ref in manifest.segments for entry in decode_segment(records[ref.record_offset].value or b"")]


def delete_records(stage: Stage, topic: str, partition: int, below: int) -> None:
    """Remove the front of a partition; wait until the leader knows a cleanup policy that was changed a moment ago."""

    def is_deleted() -> bool:
        (future,) = stage.admin.delete_records([TopicPartition(topic, partition, below)]).values()
        try:
            future.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.POLICY_VIOLATION:
                raise
            return False
        return True

    wait_until(is_deleted, f"the leader of {topic}/{partition} deletes records")


def truncate(stage: Stage, delay: str, below: int) -> None:
    """Remove the beginning of a state partition, with another cleanup policy meanwhile: brokers refuse it under
    compact.
    """
    topic = f"{delay}.delay-state"
    stage.alter(topic, {"cleanup.policy": "delete"})
    delete_records(stage, topic, 0, below)
    stage.alter(topic, {"cleanup.policy": "compact"})

"""Every kind of damage of a stored partition is found, and named with its place and its remedy."""

from dataclasses import replace

import pytest

from index.buckets.bucket import Manifest, Placement
from index.errors import FormatError, StateLostError
from index.named.id_pages import IdPageRef, rows_in_order
from index.named.names import hash_of
from index.pending.progress import BEFORE_ALL, Behind, Position, Progress
from index.protocol.record import Record
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.operations.verifying.damage import (
    IDS_REMEDY,
    BucketJudge,
    Damage,
    PartitionPlace,
    damages_of_origin,
    damages_of_state,
    judged_state,
    lasting,
)
from snapshots.segments.id_pages import encode_pages
from snapshots.segments.manifest import encode_manifest, manifest_key
from snapshots.segments.segment import StoredEntry, encode_segment
from snapshots.segments.writing import SegmentWriter
from snapshots.state.inventory import Inventory
from snapshots.state.pending import StoredPending
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, StoredState, encode_history, encode_progress
from tests.support.stored import flipped

PLACE = PartitionPlace(DelayTopicConfig(name="d", default_target="out"), 2)
HISTORY = RuleHistory.beginning(0, Rules(topic="d", default_target="out"))
PROGRESS = Progress(cursor=30, watermark=BEFORE_ALL, sealed_to=20, number=2, next_bucket=8)
RECORD = Record(b"k", b"v", [], 1)
ENTRIES: list[StoredEntry] = [(5_000, 12, RECORD), (6_000, 10, RECORD), (6_000, 11, RECORD)]
AT = "segment 0 of bucket 7 (d.delay-snapshots/2 offset 77)"


def bucket(entries: list[StoredEntry], placement: Placement = Placement.INLINE) -> tuple[Manifest, bytes]:
    """Return a bucket of one segment, and the value of that segment."""
    writer = SegmentWriter(bucket_id=7, from_offset=10, to_offset=20)
    (made,) = writer.encode(placement, entries)
    writer.written([made.ref], record_offsets=[77])
    return writer.manifest(), made.value


WHOLE, VALUE = bucket(ENTRIES)


def state(*buckets: Manifest, progress: Progress = PROGRESS) -> StoredState:
    return StoredState(progress, "the id", HISTORY, buckets)


def judge(manifest: Manifest, log_start: int = 0, progress: Progress = PROGRESS) -> BucketJudge:
    return BucketJudge(PLACE, StoredPending.of(state(manifest, progress=progress)), log_start)


def found(manifest: Manifest, value: bytes | None, log_start: int = 0, progress: Progress = PROGRESS) -> Damage | None:
    damaged = judge(manifest, log_start, progress).segment(manifest, 0, value)
    return None if damaged is None else damaged.damage


def test_whole_segments_have_no_damage() -> None:
    assert found(WHOLE, VALUE) is None
    assert found(*bucket(ENTRIES, Placement.POINTER)) is None


def test_a_missing_and_a_garbled_segment_are_damaged() -> None:
    assert found(WHOLE, None) == Damage(
        AT,
        "the snapshots topic has nothing that can be read at offset 77",
        "nothing is lost: the router makes the segment good from the delay topic, as long as that holds offsets"
        " 10 to 19",
    )
    garbled = found(WHOLE, flipped(VALUE, 8 * len(VALUE) - 3))
    assert garbled is not None
    assert garbled.why == "checksum does not match: the value is damaged"


def test_the_delay_topic_does_not_make_a_bucket_of_a_rebuild_good() -> None:
    damage = found(WHOLE, None, progress=PROGRESS._replace(restored_to=11))
    assert damage is not None
    assert damage.remedy.startswith("a job made this bucket after the state was lost: ")
    assert "if it refuses the partition: restore d.delay-snapshots" in damage.remedy


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (ENTRIES[:2], "it has 2 entries, and the manifest says 3"),
        ([(4_999, 12, RECORD), *ENTRIES[1:]], "its first entry is offset 12, due 4999, and the manifest says"),
        ([*ENTRIES[:2], (6_000, 13, RECORD)], "its last entry is offset 13, due 6000, and the manifest says"),
        ([ENTRIES[0], (5_500, 9, RECORD), ENTRIES[2]], "it has offsets 9 to 12, and its bucket was made of"),
        ([ENTRIES[0], (5_500, 20, RECORD), ENTRIES[2]], "it has offsets 11 to 20, and its bucket was made of"),
    ],
)
def test_a_segment_that_differs_from_its_manifest_is_damaged(stored: list[StoredEntry], why: str) -> None:
    damage = found(WHOLE, encode_segment(Placement.INLINE, stored))
    assert damage is not None
    assert damage.why.startswith(why)


def test_a_segment_without_the_records_that_its_manifest_promises_is_damaged() -> None:
    damage = found(WHOLE, encode_segment(Placement.POINTER, ENTRIES))
    assert damage is not None
    assert damage.why == "it is stored pointer, and the manifest says inline"


def test_a_segment_that_the_delay_topic_cannot_make_good_has_to_be_restored() -> None:
    damage = found(WHOLE, None, log_start=11)
    assert damage is not None
    assert damage.remedy.startswith("restore d.delay-snapshots, or go on without the lost records")
    assert damage.remedy.endswith("delay-router start-over d/2")
    adopted = replace(WHOLE, built_from=5)
    assert "restore" in str(found(adopted, None, log_start=6))
    assert "restore" not in str(found(adopted, None, log_start=5))


def test_pending_records_that_are_gone_from_the_delay_topic_are_damage() -> None:
    manifest, value = bucket(ENTRIES, Placement.POINTER)
    damage = found(manifest, value, log_start=12)
    assert damage is not None
    assert damage.why == ("the delay topic begins at offset 12, and has 2 records no longer that the segment points to")
    assert damage.remedy.startswith("restore d; otherwise the records count as lost")
    # The records at offset 10, and then all, have left.
    assert "has 1 record no longer" in str(
        found(manifest, value, log_start=12, progress=PROGRESS._replace(watermark=Position(6_000, 10)))
    )
    assert found(manifest, value, log_start=12, progress=PROGRESS._replace(watermark=Position(6_000, 11))) is None


def test_a_record_too_large_for_its_segment_is_looked_for_in_the_delay_topic() -> None:
    manifest, value = bucket([*ENTRIES[:1], (6_000, 10, None), *ENTRIES[2:]])
    assert found(manifest, value, log_start=10) is None
    assert "has 1 record no longer" in str(found(manifest, value, log_start=11))


def paged() -> tuple[Manifest, bytes]:
    (page,) = encode_pages(rows_in_order({hash_of(b"a"): Position(6_000, 10)}), 1)
    return replace(WHOLE, id_pages=(page.ref._replace(record_offset=78),)), page.value


def test_pages_of_ids_are_judged_too() -> None:
    manifest, value = paged()
    assert judge(manifest).id_page(manifest, 0, value) is None
    missing = judge(manifest).id_page(manifest, 0, None)
    assert missing is not None
    assert missing.damage.thing == "page 0 of ids of bucket 7 (d.delay-snapshots/2 offset 78)"
    assert missing.damage.remedy == IDS_REMEDY
    other = replace(manifest, id_pages=(IdPageRef(bytes(16), 1, 9, 78),))
    assert "not the page of ids that the manifest names" in str(judge(other).id_page(other, 0, value))


def test_damage_that_routers_have_left_behind_meanwhile_does_not_count() -> None:
    damaged = judge(WHOLE).segment(WHOLE, 0, None)
    assert damaged is not None
    assert [*lasting([damaged], state(WHOLE))] == [damaged.damage]
    # The bucket was merged, or all its records have left.
    assert [*lasting([damaged], state())] == []
    left = PROGRESS._replace(watermark=Position(6_000, 11))
    assert [*lasting([damaged], state(WHOLE, progress=left))] == []
    behind = left._replace(catching_up=(Behind(7, BEFORE_ALL),))
    assert [*lasting([damaged], state(WHOLE, progress=behind))] == [damaged.damage]


def stored(*buckets: Manifest) -> dict[bytes | None, bytes]:
    """Return the records of a state whose inventory names bucket 7 alone."""
    return {
        PROGRESS_KEY: encode_progress(PROGRESS, "the id", Inventory((7,))),
        RULES_KEY: encode_history(HISTORY),
        **{manifest_key(each.bucket_id): encode_manifest(each) for each in buckets},
    }


def test_a_whole_state_is_read() -> None:
    assert judged_state({}) == (None, [])
    read, faults = judged_state(stored(WHOLE))
    assert read is not None
    assert (read.buckets, faults) == ((WHOLE,), [])


def test_every_manifest_that_cannot_be_decoded_is_named() -> None:
    other = replace(WHOLE, bucket_id=6)
    records = stored(WHOLE, other) | {manifest_key(6): b"garbage", manifest_key(7): encode_manifest(other)}
    read, faults = judged_state(records)
    damages = [*damages_of_state(PLACE, faults)]
    assert read is None
    assert len(damages) == 2
    for number in (6, 7):
        assert any(manifest_key(number).decode() in damage.why for damage in damages), number
    assert {damage.thing for damage in damages} == {"state d.delay-state/2"}
    assert all(damage.remedy.startswith("where a newer version has served") for damage in damages)


def test_a_state_that_has_lost_a_part_is_to_be_restored_or_rebuilt() -> None:
    read, faults = judged_state(stored())
    assert read is None
    assert [type(fault) for fault in faults] == [StateLostError]
    (damage,) = damages_of_state(PLACE, faults)
    assert damage.remedy.startswith("restore d.delay-state, or have a job find the unreleased records")


def test_a_damaged_log_of_the_state_has_the_remedy_of_a_damaged_state() -> None:
    (damage,) = damages_of_state(PLACE, [FormatError("a batch cannot be read")])
    assert damage.as_json() == {"thing": "state d.delay-state/2", "why": "a batch cannot be read"} | {
        "remedy": PLACE.restore_damaged
    }


@pytest.mark.parametrize(
    ("read", "topic_id", "log_end", "why"),
    [
        (None, "the id", 1, "it is empty, and the log of d/2 ends at offset 1"),
        (state(), "another", 30, "it is about another topic of the name d, with the id the id"),
        (state(), "the id", 29, "its cursor is 30, and the log of d/2 ends at offset 29: it was truncated"),
    ],
)
def test_a_state_from_which_no_router_would_start_is_damaged(
    read: StoredState | None, topic_id: str, log_end: int, why: str
) -> None:
    (damage,) = damages_of_origin(PLACE, read, topic_id, log_end)
    assert damage.why == why
    assert "delay-router start-over d/2" in damage.remedy


def test_a_new_partition_and_a_served_one_are_whole() -> None:
    assert [*damages_of_origin(PLACE, None, "the id", 0)] == []
    assert [*damages_of_origin(PLACE, state(), "the id", 30)] == []

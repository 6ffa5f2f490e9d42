"""Judges the stored records of a delay partition: its state, and segments and pages of ids against their manifests.

A router reads a segment shortly before its records are due, which may be months after the damage. These functions find
the same faults at once, and some more: entries outside of the bucket, and records that a segment points to and that the
delay topic has no longer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from index.buckets.bucket import Manifest, SegmentRef
from index.errors import FormatError, StateLostError
from index.pending.progress import Position
from sidecar.cluster.topics.findings import counted
from sidecar.config.delay_topic import DelayTopicConfig
from snapshots.segments.id_pages import decode_page
from snapshots.segments.manifest import MANIFEST_PREFIX, decode_manifest
from snapshots.segments.segment import Columns, columns_of, parse_segment
from snapshots.state.pending import StoredPending
from snapshots.state.state import StoredState, fold_state

IDS_REMEDY = "nothing is lost: the router reads these ids from the delay topic or the segments, which takes longer"


class Damage(NamedTuple):
    """A damaged record, named with its place, the reason, and the remedy."""

    thing: str
    why: str
    remedy: str

    def as_json(self) -> dict[str, str]:
        """Return the damage as a JSON object, for scripts."""
        return dict(zip(self._fields, self, strict=True))


class BucketDamage(NamedTuple):
    """The damage of a part of a bucket, and the last entry that needs the part."""

    damage: Damage
    bucket_id: int
    last: Position


class PartitionPlace(NamedTuple):
    """A partition of a delay topic."""

    topic: DelayTopicConfig
    number: int

    def __str__(self) -> str:
        return f"{self.topic.name}/{self.number}"

    @property
    def state(self) -> str:
        """The partition of the state topic, as messages name it."""
        return f"{self.topic.state}/{self.number}"

    @property
    def start_over(self) -> str:
        """The command that gives the state up."""
        return f"delay-router start-over {self}"

    @property
    def restore_lost(self) -> str:
        """The ways out when the state was lost."""
        return (
            f"restore {self.topic.state}, or have a job find the unreleased records from the target topics: python -m"
            f" spark_backfill rebuild; or accept that released records are released again: {self.start_over}"
        )

    @property
    def restore_damaged(self) -> str:
        """The ways out when the state cannot be trusted."""
        return (
            f"where a newer version has served the partition, upgrade this one; otherwise restore {self.topic.state},"
            f" or give it up, which releases all records in the delay topic again: {self.start_over}"
        )


def judged_state(stored: Mapping[bytes | None, bytes]) -> tuple[StoredState | None, list[FormatError]]:
    """Return the state that the last value of each key makes, None where there is none, and its faults.

    The first fault is that of the whole; the others are manifests that cannot be decoded either.
    """
    try:
        return fold_state(stored.items()), []
    except FormatError as error:
        faults = {str(error): error}
    for key, value in stored.items():
        if key is not None and key.startswith(MANIFEST_PREFIX):
            try:
                decode_manifest(key, value)
            except FormatError as error:
                faults.setdefault(str(error), error)
    return None, list(faults.values())


def damages_of_state(place: PartitionPlace, faults: Iterable[FormatError]) -> Iterator[Damage]:
    """Yield a damage, with its remedy, for each fault of a state."""
    for error in faults:
        remedy = place.restore_lost if isinstance(error, StateLostError) else place.restore_damaged
        yield Damage(f"state {place.state}", str(error), remedy)


def damages_of_origin(
    place: PartitionPlace, state: StoredState | None, topic_id: str, log_end: int
) -> Iterator[Damage]:
    """Yield why a router would not start from the state, though each record of the state can be trusted."""
    thing = f"state {place.state}"
    if state is None:
        if log_end:
            why = f"it is empty, and the log of {place} ends at offset {log_end}"
            deliver = "where no router has ever served the topic: delay-router init --deliver-existing; otherwise "
            yield Damage(thing, why, deliver + place.restore_lost)
    elif state.delay_topic_id != topic_id:
        why = f"it is about another topic of the name {place.topic.name}, with the id {state.delay_topic_id}"
        yield Damage(thing, why, f"to forget the old topic and index this one from its start: {place.start_over}")
    elif log_end < state.progress.cursor:
        why = (
            f"its cursor is {state.progress.cursor}, and the log of {place} ends at offset {log_end}: it was truncated"
        )
        yield Damage(thing, why, f"restore {place.topic.name}, or index it from its start: {place.start_over}")


@dataclass(frozen=True, slots=True)
class BucketJudge:
    """Judges segments and pages of one partition; ``log_start`` is the first offset that the delay topic has.

    ``log_start`` must have been read before the state: then the state counts no record below it as pending that a
    router has released and trimmed meanwhile.
    """

    place: PartitionPlace
    pending: StoredPending
    log_start: int

    def segment(self, manifest: Manifest, number: int, value: bytes | None) -> BucketDamage | None:
        """Return the damage of a segment, None where it is whole; ``value`` is None where nothing can be read."""
        ref = manifest.segments[number]
        try:
            columns = columns_named(manifest, ref, value)
        except FormatError as error:
            damage = self._damage(
                manifest, f"segment {number}", ref.record_offset, str(error), self._made_good(manifest)
            )
            return BucketDamage(damage, manifest.bucket_id, ref.last)
        gone = self._gone(manifest, columns)
        if not gone:
            return None
        why = (
            f"the delay topic begins at offset {self.log_start}, and has {counted(gone, 'record')} no longer that the"
            " segment points to"
        )
        remedy = f"restore {self.place.topic.name}; otherwise the records count as lost when they are due"
        damage = self._damage(manifest, f"segment {number}", ref.record_offset, why, remedy)
        return BucketDamage(damage, manifest.bucket_id, ref.last)

    def id_page(self, manifest: Manifest, number: int, value: bytes | None) -> BucketDamage | None:
        """Return the damage of a page of ids, as :meth:`segment` does."""
        ref = (manifest.id_pages or ())[number]
        try:
            decode_page(ref, value)
        except FormatError as error:
            damage = self._damage(manifest, f"page {number} of ids", ref.record_offset, str(error), IDS_REMEDY)
            return BucketDamage(damage, manifest.bucket_id, manifest.last)
        return None

    def _damage(self, manifest: Manifest, part: str, record_offset: int, why: str, remedy: str) -> Damage:
        at = f"{self.place.topic.snapshots}/{self.place.number} offset {record_offset}"
        return Damage(f"{part} of bucket {manifest.bucket_id} ({at})", why, remedy)

    def _made_good(self, manifest: Manifest) -> str:
        lost = (
            f"restore {self.place.topic.snapshots}, or go on without the lost records, and release all records in the"
            f" delay topic again: {self.place.start_over}"
        )
        if self.log_start > manifest.segments_from:
            return lost
        offsets = f"{manifest.segments_from} to {manifest.to_offset - 1}"
        if manifest.segments_from < self.pending.state.progress.restored_to:
            return (
                "a job made this bucket after the state was lost: the router makes the segment good if offsets"
                f" {offsets} of the delay topic hold no other records of its time; if it refuses the partition: {lost}"
            )
        return (
            "nothing is lost: the router makes the segment good from the delay topic, as long as that holds offsets"
            f" {offsets}"
        )

    def _gone(self, manifest: Manifest, columns: Columns) -> int:
        """Return how many pending records of a segment lie in front of the delay topic, and nowhere else."""
        if manifest.needs_from is None or manifest.needs_from >= self.log_start:
            return 0
        watermark = self.pending.state.progress.watermark_of(manifest.bucket_id)
        waiting = self.pending.entries(manifest.offsets, watermark, columns.entries())
        return sum(record is None and offset < self.log_start for _, offset, record in waiting)


def columns_named(manifest: Manifest, ref: SegmentRef, value: bytes | None) -> Columns:
    """Decode the segment that a manifest names; FormatError when it is missing, damaged or another one."""
    if value is None:
        raise FormatError(f"the snapshots topic has nothing that can be read at offset {ref.record_offset}")
    message = parse_segment(value)
    columns = columns_of(message)
    stored, named = str(message.WhichOneof("payload")), ref.placement.name.lower()
    if stored != named:
        raise FormatError(f"it is stored {stored}, and the manifest says {named}")
    if len(columns.offsets) != ref.entries:
        raise FormatError(f"it has {len(columns.offsets)} entries, and the manifest says {ref.entries}")
    for end, at, said in (("first", 0, ref.first), ("last", -1, ref.last)):
        found = Position(columns.dues_ms[at], columns.offsets[at])
        if found != said:
            raise FormatError(f"its {end} entry is {_shown(found)}, and the manifest says {_shown(said)}")
    low, high = min(columns.offsets), max(columns.offsets)
    if not manifest.segments_from <= low <= high < manifest.to_offset:
        covered = f"[{manifest.segments_from}, {manifest.to_offset})"
        raise FormatError(f"it has offsets {low} to {high}, and its bucket was made of offsets {covered}")
    return columns


def lasting(damages: Iterable[BucketDamage], later: StoredState) -> Iterator[Damage]:
    """Yield the damages that still count by a state that was read later.

    Routers release segments and merge buckets meanwhile, and then remove the records, which is no damage.
    """
    ids = {bucket.bucket_id for bucket in later.buckets}
    for damage, bucket_id, last in damages:
        if bucket_id in ids and last > later.progress.watermark_of(bucket_id):
            yield damage


def _shown(at: Position) -> str:
    return f"offset {at.offset}, due {at.due_ms}"

"""Manifests: which ledger range a bucket covers, and where its segments are; one record of the state topic per bucket.

::

    bucket_id │ from_offset │ to_offset │ needs_from (absent: no pointers) │ built_from (of an adopted bucket)
    ──────────┴─────────────┴───────────┴──────────────────────────────────┴──────────────────────────────────
    segment              0         1         2       ...
                    ┌─────────┬─────────┬─────────┐
    first due       │ +1.8e12 │   +3    │   +0    │   ms since the last entry of the segment before
    first offset    │   17    │   0     │  4099   │   less built_from, or from_offset
    last due        │ +299998 │ +300000 │   +0    │   ms since the first entry of the same segment
    last offset     │   5210  │   63    │  4099   │   likewise
    entries         │   2048  │   1977  │    1    │
    size            │  640 kB │  610 kB │  300 B  │   bytes of the value of the record
    record offset   │  +9000  │   +1    │   +1    │   in the snapshots topic, since the segment before
    placement       │    1    │    1    │    2    │   1 inline, 2 pointer
    targets         │  2 of   │  1 of   │ unknown │   the largest, as indexes into a table, and their entries
    due times       │ every 4 │ every 8 │ unknown │   ms since the one before, the first since the first entry
                    └─────────┴─────────┴─────────┘
page of ids          first hash, rows, size and record offset of each (:mod:`snapshots.segments.id_columns`)

Columns of variable-length integers in a protobuf message (``state.proto``), 15 to 25 bytes per segment, so that 3,000
segments take less than 75 kB. Columns for people only have caps of their own (:mod:`snapshots.segments.target_columns`,
:mod:`snapshots.segments.due_columns`). Recovery believes a manifest, so the same checks hold when it is written and
when it is read: a bucket whose segments overlap, or point outside of the bucket, would release twice or lose records.
"""

from collections.abc import Iterable
from itertools import accumulate, pairwise
from operator import sub

from google.protobuf.message import DecodeError

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.errors import FormatError
from index.pending.progress import Position
from snapshots.envelope import Kind, key_text, unwrap, wrap
from snapshots.proto import state_pb2
from snapshots.segments.due_columns import MarksIn, due_columns
from snapshots.segments.id_columns import check_id_pages, id_columns, id_pages_of
from snapshots.segments.segment import MAX_ENTRIES
from snapshots.segments.target_columns import target_columns, targets_of

MANIFEST_PREFIX = b"bucket/"
MAX_SEGMENTS = 20_000
"""No bucket has more segments: its manifest is one record."""

_MAX_NUMBER = 2**63 - 1
_PLACEMENTS = {placement.value: placement for placement in Placement}
_COLUMNS = (
    "first_due_deltas",
    "first_offsets",
    "last_due_deltas",
    "last_offsets",
    "entries",
    "sizes",
    "record_offset_deltas",
    "placements",
)


def manifest_key(bucket_id: int) -> bytes:
    """Key of the manifest of a bucket in the state topic."""
    return b"%b%020d" % (MANIFEST_PREFIX, bucket_id)


def segment_key(bucket_id: int, number: int) -> bytes:
    """Key of segment ``number``, from 0, of a bucket in the snapshots topic."""
    return b"%020d/%06d" % (bucket_id, number)


def encode_manifest(manifest: Manifest) -> bytes:
    """Value of the ``bucket/...`` record; FormatError when the manifest contradicts itself or is over a cap."""
    _refuse_empty(manifest)
    return wrap(Kind.MANIFEST, manifest_message(manifest).SerializeToString())


def manifest_message(manifest: Manifest) -> state_pb2.Manifest:
    """Encode a manifest that may be empty as a message; FormatError as of ``encode_manifest``."""
    _check(manifest)
    segments, base = manifest.segments, manifest.segments_from
    firsts = [segment.first for segment in segments]
    lasts = [segment.last for segment in segments]
    starts_ms = [0, *(last.due_ms for last in lasts)]
    record_offsets = [segment.record_offset for segment in segments]
    return state_pb2.Manifest(
        bucket_id=manifest.bucket_id,
        from_offset=manifest.from_offset,
        to_offset=manifest.to_offset,
        needs_from=manifest.needs_from,
        first_due_deltas=[first.due_ms - start_ms for first, start_ms in zip(firsts, starts_ms, strict=False)],
        first_offsets=[first.offset - base for first in firsts],
        last_due_deltas=[last.due_ms - first.due_ms for first, last in zip(firsts, lasts, strict=True)],
        last_offsets=[last.offset - base for last in lasts],
        entries=[segment.entries for segment in segments],
        sizes=[segment.size_bytes for segment in segments],
        record_offset_deltas=map(sub, record_offsets, [0, *record_offsets]),
        placements=[segment.placement for segment in segments],
        built_from=manifest.built_from,
        id_pages=None if manifest.id_pages is None else id_columns(manifest.id_pages),
        **target_columns(segments),
        **due_columns(segments),
    )


def decode_manifest(key: bytes, value: bytes) -> Manifest:
    """Return the manifest stored under ``key``; FormatError names the key of one that cannot be trusted."""
    try:
        manifest = parse_manifest(value)
        if key != manifest_key(manifest.bucket_id):
            raise FormatError(f"holds the manifest of bucket {manifest.bucket_id}")  # noqa: TRY301 -- named below
    except FormatError as error:
        raise FormatError(f"record {key_text(key)} of the state topic: {error}") from error
    return manifest


def parse_manifest(value: bytes) -> Manifest:
    """Return the manifest in an envelope, checked, without a look at its key; FormatError when it cannot be trusted."""
    message = state_pb2.Manifest()
    try:
        message.ParseFromString(unwrap(Kind.MANIFEST, value))
    except DecodeError as error:
        raise FormatError(f"manifest: {error}") from error
    manifest = manifest_of(message)
    _refuse_empty(manifest)
    return manifest


def manifest_of(message: state_pb2.Manifest) -> Manifest:
    """Decode and check a manifest, empty or not; FormatError when it cannot be trusted."""
    manifest = Manifest(
        message.bucket_id,
        message.from_offset,
        message.to_offset,
        message.needs_from if message.HasField("needs_from") else None,
        tuple(_segments(message)),
        message.built_from if message.HasField("built_from") else None,
        id_pages_of(message.id_pages) if message.HasField("id_pages") else None,
    )
    _check(manifest)
    return manifest


def _segments(message: state_pb2.Manifest) -> Iterable[SegmentRef]:
    lengths = {name: len(getattr(message, name)) for name in _COLUMNS}
    if len(set(lengths.values())) != 1 or lengths["entries"] > MAX_SEGMENTS:
        raise FormatError(f"columns of lengths {lengths}; they must be equal and not over {MAX_SEGMENTS}")
    base = message.built_from if message.HasField("built_from") else message.from_offset
    due_ms = 0
    marks = MarksIn(message, lengths["entries"])
    columns = zip(
        message.first_due_deltas,
        message.first_offsets,
        message.last_due_deltas,
        message.last_offsets,
        message.entries,
        message.sizes,
        accumulate(message.record_offset_deltas),
        message.placements,
        targets_of(message, lengths["entries"]),
        strict=True,
    )
    for first_delta, first_offset, last_delta, last_offset, entries, size, record_offset, placement, targets in columns:
        first = Position(due_ms + first_delta, base + first_offset)
        due_ms = first.due_ms + last_delta
        last = Position(due_ms, base + last_offset)
        if placement not in _PLACEMENTS:
            raise FormatError(f"placement {placement} of a segment is not known here; upgrade the router")
        ref = SegmentRef(first, last, entries, size, record_offset, _PLACEMENTS[placement], targets)
        yield marks.of(ref)
    marks.end()


def _refuse_empty(manifest: Manifest) -> None:
    if not manifest.segments:
        raise FormatError(f"bucket of 0 segments; 1 to {MAX_SEGMENTS} are possible")


def _check(manifest: Manifest) -> None:
    segments = manifest.segments
    if not 0 <= manifest.bucket_id <= _MAX_NUMBER:
        raise FormatError(f"bucket {manifest.bucket_id}: the number of a bucket is 0 to {_MAX_NUMBER}")
    if not 0 <= manifest.from_offset < manifest.to_offset <= _MAX_NUMBER:
        raise FormatError(f"bucket of offsets [{manifest.from_offset}, {manifest.to_offset}), which is no range")
    if not 0 <= manifest.segments_from <= manifest.from_offset:
        raise FormatError(f"bucket from offset {manifest.from_offset} was built from {manifest.built_from} on")
    if len(segments) > MAX_SEGMENTS:
        raise FormatError(f"bucket of {len(segments)} segments; 1 to {MAX_SEGMENTS} are possible")
    for number, segment in enumerate(segments):
        _check_segment(number, segment, manifest)
    for number, (segment, following) in enumerate(pairwise(segments)):
        if segment.last >= following.first:
            raise FormatError(f"segment {number} ends at {segment.last}, where the next begins at {following.first}")
    _check_needs(manifest)
    check_id_pages(manifest.id_pages or ())


def _check_segment(number: int, segment: SegmentRef, manifest: Manifest) -> None:
    first, last = segment.first, segment.last
    if first > last or first.due_ms < 0 or last.due_ms > _MAX_NUMBER:
        raise FormatError(f"segment {number} goes from {first} to {last}")
    for offset in (first.offset, last.offset):
        if not manifest.segments_from <= offset < manifest.to_offset:
            raise FormatError(
                f"segment {number} has offset {offset}, outside of [{manifest.segments_from}, {manifest.to_offset})"
            )
    if not 0 < segment.entries <= MAX_ENTRIES:
        raise FormatError(f"segment {number} of {segment.entries} entries; 1 to {MAX_ENTRIES} are possible")
    for name, amount in (("size", segment.size_bytes), ("record offset", segment.record_offset)):
        if not 0 <= amount <= _MAX_NUMBER:
            raise FormatError(f"segment {number} has {name} {amount}")


def _check_needs(manifest: Manifest) -> None:
    needs_from = manifest.needs_from
    if needs_from is not None and not manifest.segments_from <= needs_from < manifest.to_offset:
        raise FormatError(f"needs the delay topic from {needs_from}, outside of its own range")
    # Entries of an adopted bucket below its range are not read.
    pointed = [
        offset
        for segment in manifest.segments
        for offset in (segment.first.offset, segment.last.offset)
        if segment.placement is Placement.POINTER and offset >= manifest.from_offset
    ]
    if pointed and (needs_from is None or needs_from > min(pointed)):
        raise FormatError(f"points to offset {min(pointed)} and says the delay topic is needed from {needs_from}")

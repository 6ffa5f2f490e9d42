"""A merge of columns of rows against a merge of objects: the same segments for any sources."""

import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, cast
from unittest.mock import patch

import pytest

from index.buckets.bucket import Bucket, Manifest, Placement, SegmentRef
from index.buckets.bucket_rules import SealRules
from index.pending.progress import BEFORE_ALL, Position
from index.pending.run import ListRun
from index.protocol.record import Record
from index.rules.rule_history import RuleEpoch, RuleHistory
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.buckets.merge_reading import MergedRun, PoolReads, StoredSegments
from sidecar.engine.buckets.merging import Merging
from sidecar.engine.buckets.segments import SegmentSource
from sidecar.engine.limits import LIMITS
from sidecar.engine.payload.packed_run import PackedRun
from sidecar.kernel.choice import Kernel
from sidecar.process.host.pool import QueuedHandover
from snapshots.segments.codec import PYTHON_CODEC, SegmentCodec
from snapshots.segments.rows import RowPacker, encode_rows
from snapshots.segments.segment import StoredEntry, decode_segment, encode_segment
from snapshots.segments.writing import SegmentWriter, joined

CODECS: Final = {"python": PYTHON_CODEC, "chosen": Kernel.chosen({}).codec}
HISTORY: Final = RuleHistory((RuleEpoch(0, Rules("d", default_target="out")),))
MADE: Final = 9
LOADED_TO: Final = Position(200, 0)


class Reads(PoolReads):
    """Stored segments by the id of their bucket; ``rows`` counts the segments read as rows."""

    def __init__(self, stored: dict[int, list[bytes]], codec: SegmentCodec) -> None:
        unused = cast("Any", None)
        source = SegmentSource(DelayTopicConfig(name="d", default_target="out"), 0, HISTORY, codec)
        super().__init__(source, unused, unused, unused)
        self._stored = stored
        self.rows = 0

    def ask(self, manifest: Manifest, numbers: range) -> Future[StoredSegments]:
        """Return the stored segments at once."""
        future: Future[StoredSegments] = Future()
        future.set_result([Record(b"", self._stored[manifest.bucket_id][number], [], 0) for number in numbers])
        return future

    def run(self, manifest: Manifest, number: int, stored: Record | None, packer: RowPacker) -> MergedRun:
        """Return the run, and count it if it is rows."""
        run = super().run(manifest, number, stored, packer)
        self.rows += isinstance(run, PackedRun)
        return run


class Objects(Reads):
    """Does the same with an object for each record."""

    def run(self, manifest: Manifest, number: int, stored: Record | None, packer: RowPacker) -> MergedRun:
        """Return the run as objects, even where it could be rows."""
        return ListRun([*self._source.stored(manifest, number, stored, self._reader)])


def some_record(rng: random.Random, kind: str) -> Record | None:
    """Make a record that can be a row, unless it is of a kind that cannot."""
    names = ["deliver-at", "trace"] if kind != "other names" else [str(rng.randint(0, 200)) for _ in range(3)]
    headers = [(name, rng.randbytes(rng.randint(0, 9))) for name in names[: rng.randint(0, 3)]]
    key, value = rng.choice([None, b"", b"key"]), rng.randbytes(rng.choice([0, 5, 300]))
    is_odd = rng.random() < 0.5
    match kind:
        case "absent" if is_odd:
            return None
        case "null value" if is_odd:
            return Record(key, None, [*headers], 5)
        case "null header" if is_odd:
            return Record(key, value, [*headers, ("null", None)], 5)
        case "long ago" if is_odd:
            return Record(key, value, [*headers], -rng.randint(1, 2**63))
    return Record(key, value, [*headers], rng.choice([0, 5, 2**63 - 1]))


def a_segment(rng: random.Random, places: Sequence[tuple[int, int]], kind: str) -> tuple[SegmentRef, bytes]:
    """Make a segment; return its reference and its value."""
    entries = [(due_ms, offset, some_record(rng, kind)) for due_ms, offset in places]
    if kind == "joined":
        packer = RowPacker()
        packer.indexes(rng.sample(["a", "trace", "deliver-at"], 2))
        records = [record for _, _, record in entries if record is not None]
        rows = [packer.pack(record.key, record.value, record.headers) or b"" for record in records]
        dues_ms, offsets = ([*column] for column in zip(*places, strict=True))
        columns = dues_ms, offsets, [record.timestamp_ms for record in records]
        body = b"".join(rows)
        made = joined(*columns, [*map(len, rows)], body, packer.names, PYTHON_CODEC)
        assert made is not None
        assert made.value == encode_rows(*columns, rows, packer.names)
        return made
    placement = Placement.POINTER if kind == "pointer" else Placement.INLINE
    value = encode_segment(placement, entries)
    first, last = Position(*places[0]), Position(*places[-1])
    return SegmentRef(first, last, len(places), len(value), -1, placement), value


KINDS: Final = (
    "whole", "joined", "whole", "joined", "other names", "pointer", "absent", "null value", "null header", "long ago",
)  # fmt: skip


def some_bucket(
    rng: random.Random, bucket_id: int, from_offset: int, kinds: Sequence[str]
) -> tuple[Bucket, list[bytes]]:
    """Make a bucket of some segments, each of one kind; an adopted one may hold offsets of the bucket before."""
    count = rng.choice([1, 5, 40, 150])
    is_adopted = bool(bucket_id) and rng.random() < 0.2
    offsets = rng.sample(range(from_offset - 60 if is_adopted else from_offset, from_offset + 300), count)
    places = sorted((rng.choice([5, rng.randint(0, 1_000)]), offset) for offset in offsets)
    segments: list[tuple[SegmentRef, bytes]] = []
    while places:
        size = rng.choice([1, 2, 7, 30])
        segments.append(a_segment(rng, places[:size], rng.choice(kinds)))
        del places[:size]
    needed = [offset for ref, value in segments for _, offset, record in decode_segment(value) if record is None]
    manifest = Manifest(
        bucket_id,
        from_offset,
        from_offset + 300,
        min(needed, default=None),
        tuple(ref for ref, _ in segments),
        built_from=from_offset - 60 if is_adopted else None,
    )
    return Bucket(manifest, BEFORE_ALL), [value for _, value in segments]


def merged(
    buckets: Sequence[Bucket], reads: Reads, watermark: Position, rules: SealRules, codec: SegmentCodec
) -> tuple[Manifest | None, list[list[StoredEntry]]]:
    """Return the manifest that would be installed, and the entries of its segments."""
    under_way = Merging(buckets, watermark, MADE, rules, LIMITS, QueuedHandover(0), codec=codec)
    under_way.run(reads)
    values: list[bytes] = []
    while (segments := under_way.next_segments()) is not None:
        under_way.written(range(len(values), len(values) + len(segments)))
        values += [value for _, value in segments]
    installs = under_way.installation()
    return None if installs is None else installs.manifest, [decode_segment(value) for value in values]


def said(manifest: Manifest | None) -> Manifest | None:
    """Return the manifest without the sizes of segments: names that no record of a segment uses take room."""
    if manifest is None:
        return None
    return replace(manifest, segments=tuple(ref._replace(size_bytes=0) for ref in manifest.segments))


def everything(buckets: Sequence[Bucket], stored: dict[int, list[bytes]], watermark: Position) -> list[StoredEntry]:
    """Return the entries of the buckets that are behind the watermark, in release order."""
    entries = [
        entry
        for bucket in buckets
        for value in stored[bucket.manifest.bucket_id]
        for entry in decode_segment(value)
        if entry[:2] > watermark and entry[1] >= bucket.manifest.from_offset
    ]
    return sorted(entries, key=lambda entry: entry[:2])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(40))
def test_what_is_merged_as_rows_is_what_is_merged_as_objects(seed: int, codec: str) -> None:
    rng = random.Random(seed)
    kinds = rng.choice([KINDS[:2], ["whole", "other names"], KINDS])
    made = [some_bucket(rng, number, 1_000 * (1 + number), kinds) for number in range(rng.randint(2, 4))]
    buckets, stored = [bucket for bucket, _ in made], {number: values for number, (_, values) in enumerate(made)}
    watermark = rng.choice([BEFORE_ALL, Position(rng.randint(0, 1_100), 0)])
    rules = SealRules(time_step_ms=rng.choice([50, 10_000]), segment_entries=rng.choice([1, 8, 64]))
    reads = Reads(stored, CODECS[codec])
    as_rows = merged(buckets, reads, watermark, rules, CODECS[codec])
    as_objects = merged(buckets, Objects(stored, CODECS[codec]), watermark, rules, CODECS[codec])
    assert said(as_rows[0]) == said(as_objects[0])
    assert as_rows[1] == as_objects[1]
    found = [entry for entries in as_rows[1] for entry in entries]
    expected = everything(buckets, stored, watermark)
    assert found == expected
    begins_at = None if as_rows[0] is None else as_rows[0].from_offset
    assert begins_at == min((offset for _, offset, _ in expected), default=None)


@pytest.mark.parametrize("codec", CODECS)
def test_segments_that_are_rows_are_read_as_rows(codec: str) -> None:
    rng = random.Random(1)
    made = [some_bucket(rng, 0, 1_000 * (1 + number), ["whole", "joined"]) for number in range(2)]
    buckets = [replace_id(bucket, number) for number, (bucket, _) in enumerate(made)]
    stored = {number: values for number, (_, values) in enumerate(made)}
    reads = Reads(stored, CODECS[codec])
    merged(buckets, reads, BEFORE_ALL, SealRules(), CODECS[codec])
    assert reads.rows == sum(len(bucket.manifest.segments) for bucket in buckets)


def replace_id(bucket: Bucket, bucket_id: int) -> Bucket:
    """Return the bucket with another id."""
    return Bucket(replace(bucket.manifest, bucket_id=bucket_id), BEFORE_ALL)


@pytest.mark.parametrize("codec", CODECS)
def test_header_names_that_take_more_room_together_than_a_segment_has(codec: str) -> None:
    stored: dict[int, list[bytes]] = {}
    buckets: list[Bucket] = []
    for number in range(2):
        writer = SegmentWriter(number, 100 * number, 100 * number + 100)
        segments = [
            each
            for due_ms in range(40)
            for each in writer.encode(
                Placement.INLINE,
                [(due_ms, 100 * number + due_ms, Record(b"k", b"v", [(f"{number}/{due_ms:03}" * 4_000, b"")], 5))],
            )
        ]
        writer.written([ref for ref, _ in segments], range(len(segments)))
        buckets.append(Bucket(writer.manifest(), BEFORE_ALL))
        stored[number] = [value for _, value in segments]
    reads = Reads(stored, CODECS[codec])
    _, segments_made = merged(buckets, reads, BEFORE_ALL, SealRules(segment_entries=20), CODECS[codec])
    assert reads.rows == 80
    found = [entry for entries in segments_made for entry in entries]
    assert found == everything(buckets, stored, BEFORE_ALL)


@pytest.mark.parametrize("codec", CODECS)
def test_segments_stay_below_what_brokers_take(codec: str) -> None:
    rng = random.Random(2)
    stored: dict[int, list[bytes]] = {}
    buckets: list[Bucket] = []
    expected: list[StoredEntry] = []
    for number in range(2):
        entries = [(due_ms, 100 * number + due_ms, Record(b"k", rng.randbytes(300_000), [], 5)) for due_ms in range(6)]
        writer = SegmentWriter(number, 100 * number, 100 * number + 100)
        segments = writer.encode(Placement.INLINE, entries)
        writer.written([ref for ref, _ in segments], range(len(segments)))
        buckets.append(Bucket(writer.manifest(), BEFORE_ALL))
        stored[number] = [value for _, value in segments]
        expected += entries
    # The rules allow for more records than a segment can hold.
    rules = SealRules(segment_entries=20, segment_bytes=5_000_000)
    manifest, segments_made = merged(buckets, Reads(stored, CODECS[codec]), BEFORE_ALL, rules, CODECS[codec])
    assert manifest is not None
    assert max(ref.size_bytes for ref in manifest.segments) < 1_000_000
    assert [entry for entries in segments_made for entry in entries] == sorted(expected, key=lambda entry: entry[:2])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("damage", ["flipped", "of another bucket"])
def test_a_segment_that_is_not_sound_is_made_good(damage: str, codec: str) -> None:
    rng = random.Random(3)
    bucket, values = some_bucket(rng, 0, 1_000, ["whole"])
    wrong = bytearray(values[0])
    if damage == "flipped":
        wrong[-1] ^= 1
    else:
        _, wrong[:] = a_segment(rng, [(1, 1), (2, 2)], "whole")
    stored = {0: [bytes(wrong), *values[1:]]}
    asked: list[int] = []

    def made_good(_self: SegmentSource, manifest: Manifest, number: int, *_: object) -> list[StoredEntry]:
        asked.append(number)
        return decode_segment(values[number])

    with patch.object(SegmentSource, "_from_delay_topic", made_good):
        _, segments = merged([bucket], Reads(stored, CODECS[codec]), BEFORE_ALL, SealRules(), CODECS[codec])
    assert asked == [0]
    assert [entry for entries in segments for entry in entries] == everything([bucket], {0: values}, BEFORE_ALL)

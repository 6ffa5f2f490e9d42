"""The choice of buckets to merge, and the result of a merge."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

import pytest

from index.buckets.bucket import NO_MARKS, Bucket, Manifest, Placement
from index.buckets.bucket_rules import MOST_AT_ONCE, MOST_SEGMENTS, SealRules, to_merge, to_write_inline
from index.errors import FormatError
from index.named.id_pages import IdRows
from index.pending.progress import BEFORE_ALL, Position
from index.pending.run import ListRun
from index.protocol.record import Record
from sidecar.engine.buckets.merge_reading import MergedRun, StoredSegments
from sidecar.engine.buckets.merging import Merging
from sidecar.engine.limits import LIMITS
from sidecar.engine.payload.packed_run import packed_rows
from sidecar.engine.ports import ReadEach
from sidecar.process.host.pool import QueuedHandover
from snapshots.segments.codec import PYTHON_CODEC
from snapshots.segments.manifest import encode_manifest, segment_key
from snapshots.segments.rows import RowPacker, decode_rows
from snapshots.segments.segment import StoredEntry, decode_segment, encode_segment
from snapshots.segments.writing import COLUMN_BYTES
from tests.support.manifests import Place, bucket, manifest

RULES = SealRules(time_step_ms=1_000, segment_entries=3, segment_bytes=1_000)
INLINE_RULES = replace(RULES, placement="inline")


def of_size(bucket_id: int, count: int, from_offset: int | None = None) -> Bucket:
    start = bucket_id * 100 if from_offset is None else from_offset
    return bucket(bucket_id, [(due_ms, start + due_ms) for due_ms in range(count)])


def ids(buckets: Sequence[Bucket]) -> list[int]:
    return [each.manifest.bucket_id for each in buckets]


def test_nothing_is_merged_while_there_are_not_too_many() -> None:
    buckets = [of_size(number, 5) for number in range(6)]
    assert to_merge([], 2) == []
    assert to_merge(buckets, 6) == []
    assert len(to_merge(buckets, 5)) == MOST_AT_ONCE


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ([9, 9, 9, 9, 9], [0, 1, 2, 3]),
        ([90, 9, 9, 9, 9], [1, 2, 3, 4]),
        ([1, 1, 1, 90, 1, 20, 20, 20, 1], [4, 5, 6, 7]),
        ([5, 5, 5], [0, 1, 2]),
    ],
)
def test_the_neighbours_with_the_fewest_entries_are_merged(sizes: list[int], chosen: list[int]) -> None:
    buckets = [of_size(number, count) for number, count in enumerate(sizes)]
    assert ids(to_merge(buckets, 2)) == chosen
    assert ids(to_merge(reversed(buckets), 2)) == chosen


def test_neighbours_are_told_by_their_offsets_and_not_by_their_ids() -> None:
    buckets = [of_size(9, 3, 0), of_size(2, 3, 100), of_size(7, 50, 200), of_size(1, 3, 300), of_size(5, 3, 400)]
    assert ids(to_merge(buckets, 4)) == [9, 2, 7, 1]


def test_what_is_loaded_already_costs_nothing() -> None:
    buckets = [of_size(number, 10) for number in range(5)]
    buckets[4] = bucket(4, [(1, 401), (2, 402)], loaded_to=(2, 402))
    assert ids(to_merge(buckets, 2)) == [1, 2, 3, 4]


def test_no_bucket_is_made_that_a_manifest_cannot_hold() -> None:
    def long(bucket_id: int, segments: int) -> Bucket:
        return bucket(bucket_id, *([(number, bucket_id * MOST_SEGMENTS + number)] for number in range(segments)))

    quarter = MOST_SEGMENTS // MOST_AT_ONCE
    assert ids(to_merge([long(number, quarter) for number in range(4)], 2)) == [0, 1, 2, 3]
    too_long = [long(0, quarter + 1), *(long(number, quarter) for number in range(1, 4))]
    assert to_merge(too_long, 2) == []
    assert ids(to_merge([*too_long, long(4, 1)], 2)) == [1, 2, 3, 4]


class Sources:
    """Buckets of given segments, read as a merge reads them.

    ``asked`` are the requested runs by bucket, and ``read`` the segments that were taken in. Buckets that are
    ``silent`` do not answer.
    """

    def __init__(self, *buckets: Sequence[Sequence[Place]], absent: Sequence[int] = ()) -> None:
        self.buckets = [bucket(number, *segments) for number, segments in enumerate(buckets)]
        self._held = dict(enumerate(buckets))
        self._absent = absent
        self.asked: list[tuple[int, range, Future[StoredSegments]]] = []
        self.read: list[tuple[int, int]] = []
        self.silent: Sequence[int] = ()
        self.pages: dict[int, list[IdRows]] = {}

    def ask(self, manifest: Manifest, numbers: range) -> Future[StoredSegments]:
        """Note the request for some segments of a bucket, and answer it unless the bucket is silent."""
        future: Future[StoredSegments] = Future()
        self.asked.append((manifest.bucket_id, numbers, future))
        if manifest.bucket_id not in self.silent:
            future.set_result([Record(b"%d" % number, b"", [], 0) for number in numbers])
        return future

    def run(self, source: Manifest, number: int, stored: Record | None, packer: RowPacker) -> MergedRun:
        """Return the entries of a segment, as rows unless a record is absent."""
        assert stored is not None
        assert stored.key == b"%d" % number
        self.read.append((source.bucket_id, number))
        entries = [self._stored(place) for place in self._held[source.bucket_id][number]]
        rows = decode_rows(encode_segment(Placement.INLINE, entries), packer)
        return ListRun(entries) if rows is None else packed_rows(rows, packer, PYTHON_CODEC)

    def ask_pages(self, manifest: Manifest, numbers: range) -> Future[list[IdRows]]:
        """Return some pages of ids of a bucket."""
        future: Future[list[IdRows]] = Future()
        future.set_result([self.pages[manifest.bucket_id][number] for number in numbers])
        return future

    def records(self, offsets: Sequence[int]) -> ReadEach:
        """Yield records as a segment would hold them."""
        dues_ms = {offset: due_ms for segments in self._held.values() for each in segments for due_ms, offset in each}
        yield from ((offset, Record(b"%d" % dues_ms[offset], b"%d" % offset, [], 5)) for offset in offsets)

    def _stored(self, place: Place) -> StoredEntry:
        due_ms, offset = place
        record = None if offset in self._absent else Record(b"%d" % due_ms, b"%d" % offset, [], 5)
        return due_ms, offset, record


TWO = [[(10, 1), (20, 2)], [(3_000, 3)]], [[(15, 11)], [(20, 12), (3_001, 13)]]


def merged(under_way: Merging) -> tuple[Manifest | None, list[list[StoredEntry]]]:
    """Commit every segment, at offsets from 1000 on; return the merged manifest and its entries by segment."""
    values: list[list[StoredEntry]] = []
    while (segments := under_way.next_segments()) is not None:
        assert under_way.next_segments() == segments
        assert [key for key, _ in segments] == [segment_key(7, len(values) + place) for place in range(len(segments))]
        under_way.written([1_000 + len(values) + place for place in range(len(segments))])
        values += [decode_segment(value) for _, value in segments]
    installs = under_way.installation()
    assert installs is None or installs.merged_from == under_way.sources
    return (installs.manifest if installs else None), values


def test_a_merged_bucket_holds_what_its_sources_did_in_release_order() -> None:
    sources = Sources(*TWO)
    under_way = Merging(sources.buckets, BEFORE_ALL, 7, RULES, LIMITS, QueuedHandover(0))
    under_way.run(sources)
    made, segments = merged(under_way)
    assert made is not None
    assert under_way.source_keys == [segment_key(*each) for each in [(0, 0), (0, 1), (1, 0), (1, 1)]]
    assert [[entry[:2] for entry in each] for each in segments] == [
        [(10, 1), (15, 11), (20, 2)],
        [(20, 12), (3_000, 3)],
        [(3_001, 13)],
    ]
    assert segments[1][0][2] == Record(b"20", b"12", [], 5)
    assert (made.bucket_id, made.from_offset, made.to_offset, made.needs_from, made.entries) == (7, 1, 14, None, 6)
    assert [each.record_offset for each in made.segments] == [1_000, 1_001, 1_002]
    assert encode_manifest(made), "not one that can be stored"


def test_segments_that_have_left_are_not_read() -> None:
    sources = Sources(*TWO)
    under_way = Merging(sources.buckets, Position(20, 2), 7, RULES, LIMITS, QueuedHandover(0))
    under_way.run(sources)
    made, segments = merged(under_way)
    assert set(sources.read) == {(0, 1), (1, 1)}
    assert [entry[:2] for each in segments for entry in each] == [(20, 12), (3_000, 3), (3_001, 13)]
    assert made is not None
    assert (made.from_offset, made.to_offset) == (3, 14), "the bucket begins at its lowest entry"
    assert encode_manifest(made), "not one that can be stored"


def test_nothing_is_installed_when_everything_has_left() -> None:
    sources = Sources(*TWO)
    under_way = Merging(sources.buckets, Position(9_999, 0), 7, RULES, LIMITS, QueuedHandover(0))
    under_way.run(sources)
    assert merged(under_way) == (None, [])
    assert sources.read == []


def test_absent_records_stay_pointers_and_are_needed() -> None:
    sources = Sources(*TWO, absent=[2, 3, 13])
    under_way = Merging(sources.buckets, BEFORE_ALL, 7, RULES, LIMITS, QueuedHandover(0))
    under_way.run(sources)
    made, segments = merged(under_way)
    assert made is not None
    assert [each.placement for each in made.segments] == [Placement.INLINE, Placement.INLINE, Placement.POINTER]
    assert made.needs_from == 2
    absent = [offset for each in segments for _, offset, record in each if record is None]
    assert sorted(absent) == [2, 3, 13]


def test_absent_records_are_written_inside_where_the_placement_is_inline() -> None:
    sources = Sources(*TWO, absent=[2, 3, 13])
    under_way = Merging(sources.buckets, BEFORE_ALL, 7, INLINE_RULES, LIMITS, QueuedHandover(0))
    under_way.run(sources)
    made, segments = merged(under_way)
    assert made is not None
    assert made.needs_from is None
    assert {each.placement for each in made.segments} == {Placement.INLINE}
    records = [(due_ms, offset, record and record.value) for each in segments for due_ms, offset, record in each]
    assert records == [(due_ms, offset, b"%d" % offset) for due_ms, offset, _ in records]
    assert len(records) == 6


def test_pointers_stay_where_the_manifest_has_no_room_for_their_segments() -> None:
    limits = replace(LIMITS, merge_segments=5)
    sources = Sources([[(10, 1), (20, 2), (30, 3)], [(3_000, 4), (3_001, 5), (3_002, 6)]], absent=range(7))
    under_way = Merging(
        sources.buckets, BEFORE_ALL, 7, replace(INLINE_RULES, segment_bytes=3 * COLUMN_BYTES), limits, QueuedHandover(0)
    )
    under_way.run(sources)
    made, segments = merged(under_way)
    assert made is not None
    assert [len(each) for each in segments] == [2, 1, 3]
    assert [each.placement for each in made.segments] == 2 * [Placement.INLINE] + [Placement.POINTER]


def pointing(bucket_id: int, needs_from: int, segments: int = 1, loaded_to: Place = BEFORE_ALL) -> Bucket:
    """Make a bucket of ``segments`` pointer segments, of an entry each."""
    places = [(number, bucket_id * MOST_SEGMENTS + number) for number in range(segments)]
    inline = manifest(bucket_id, *([place] for place in places), needs_from=needs_from)
    refs = tuple(each._replace(placement=Placement.POINTER) for each in inline.segments)
    return Bucket(replace(inline, segments=refs), Position(*loaded_to))


def test_the_bucket_that_points_to_the_oldest_record_is_written_inline_first() -> None:
    buckets = [of_size(1, 3), pointing(2, 900), pointing(3, 400), pointing(4, 500)]
    assert ids(to_write_inline(buckets, INLINE_RULES)) == [3]
    assert ids(to_write_inline(buckets[:2], INLINE_RULES)) == [2]
    assert to_write_inline(buckets[:1], INLINE_RULES) == []
    assert to_write_inline(buckets, RULES) == [], "auto: its pointers are safe"
    assert to_write_inline(buckets, replace(RULES, placement="pointer")) == []


def test_pointers_that_have_left_are_not_written_inline() -> None:
    assert ids(to_write_inline([pointing(2, 900, 3)], INLINE_RULES, Position(1, 2 * MOST_SEGMENTS + 1))) == [2]
    assert to_write_inline([pointing(2, 900, 3)], INLINE_RULES, Position(2, 2 * MOST_SEGMENTS + 2)) == []


def test_a_bucket_with_too_many_segments_keeps_its_pointers() -> None:
    most = MOST_SEGMENTS - INLINE_RULES.segment_entries
    assert ids(to_write_inline([pointing(2, 900, most)], INLINE_RULES)) == [2]
    assert to_write_inline([pointing(2, 900, most + 1)], INLINE_RULES) == []


def test_until_a_segment_is_ready_there_is_nothing_to_write() -> None:
    sources = Sources(*TWO)
    under_way = Merging(sources.buckets, BEFORE_ALL, 7, RULES, LIMITS, QueuedHandover(0))
    assert under_way.next_segments() == ()
    under_way.run(sources)
    assert under_way.next_segments()


def test_a_merge_that_is_stopped_ends_and_says_nothing() -> None:
    sources = Sources(*TWO)
    under_way = Merging(sources.buckets, BEFORE_ALL, 7, RULES, LIMITS, QueuedHandover(0))
    under_way.stop()
    under_way.run(sources)
    assert under_way.next_segments() == ()
    assert sources.asked == []


def test_a_source_that_cannot_be_read_ends_the_merge_and_the_others_are_not_read_either() -> None:
    class Damaged(Sources):
        def run(self, source: Manifest, number: int, stored: Record | None, packer: RowPacker) -> MergedRun:
            raise FormatError("damaged")

    sources = Damaged(*TWO)
    sources.silent = [1]
    under_way = Merging(sources.buckets, BEFORE_ALL, 7, RULES, LIMITS, QueuedHandover(0))
    with pytest.raises(FormatError, match="damaged"):
        under_way.run(sources)
    assert [(bucket_id, future.cancelled()) for bucket_id, _, future in sources.asked] == [(0, False), (1, True)]
    assert under_way.next_segments() == ()


def test_sources_are_read_as_they_are_needed() -> None:
    class UntilASegmentIsMade(Sources):
        def run(self, source: Manifest, number: int, stored: Record | None, packer: RowPacker) -> MergedRun:
            if under_way.next_segments():
                under_way.stop()
            return super().run(source, number, stored, packer)

    long = UntilASegmentIsMade([[(number, number)] for number in range(5_000)], [[(90_000, 9_000)]])
    under_way = Merging(long.buckets, BEFORE_ALL, 7, RULES, LIMITS, QueuedHandover(0))
    under_way.run(long)
    assert 0 < len(long.read) < 2_500


def test_a_merged_bucket_tells_targets_in_the_proportions_of_its_sources() -> None:
    sources = Sources(*TWO)
    for source, targets in zip(sources.buckets, ("a", "b"), strict=True):
        counted = [each._replace(targets=((targets, each.entries),)) for each in source.manifest.segments]
        source.manifest = replace(source.manifest, segments=tuple(counted))
    under_way = Merging(sources.buckets, BEFORE_ALL, 7, RULES, LIMITS, QueuedHandover(0))
    under_way.run(sources)
    made, _ = merged(under_way)
    assert made is not None
    found = [dict(each.targets) for each in made.segments]
    assert found[0].keys() == {"a", "b"}
    assert [sum(each.values()) for each in found] == [each.entries for each in made.segments]


def test_a_merged_bucket_tells_when_its_entries_are_due_whatever_its_sources_told() -> None:
    sources = Sources(*TWO)
    assert all(each.dues == NO_MARKS for source in sources.buckets for each in source.manifest.segments)
    under_way = Merging(sources.buckets, BEFORE_ALL, 7, RULES, LIMITS, QueuedHandover(0))
    under_way.run(sources)
    made, values = merged(under_way)
    assert made is not None
    known_ms = [due_ms for each in made.segments for due_ms in (each.first.due_ms, *each.dues.at_ms)]
    assert known_ms == [due_ms for entries in values for due_ms, _, _ in entries]

"""Pages of ids of a bucket: written behind its segments, joined by a merge, read back; no Kafka."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar, cast

import pytest
from pyroaring import BitMap64
from structlog.testing import capture_logs

from index.buckets.bucket import Bucket, Manifest
from index.buckets.bucket_rules import SealRules
from index.errors import FormatError
from index.named.id_pages import (
    IdPage,
    IdPageRef,
    IdRows,
    Sought,
    cut_rows,
    join_rows,
    place_in,
    rows_in_order,
    rows_of,
    shift_in,
)
from index.named.names import hash_of
from index.named.places import NO_PLACES, NO_SHIFTS, Places, Shifts
from index.pending.progress import BEFORE_ALL, Position
from index.pending.run import ListRun
from index.pending.unsealed import Unsealed
from index.protocol.record import Record
from index.protocol.schedule import BY_KEY, KEEP_KEY, Schedule
from sidecar.engine.buckets.id_pages import IdPageSource, SealedIds
from sidecar.engine.buckets.merge_reading import MergedRun, StoredSegments
from sidecar.engine.buckets.merging import Merging
from sidecar.engine.buckets.sealing import Sealing
from sidecar.engine.limits import Limits
from sidecar.engine.payload.packed_run import packed_runs
from sidecar.engine.payload.records import Payload, scheduled
from sidecar.engine.ports import ReadEach
from sidecar.kafka.reading.offset_reader import OffsetReader
from sidecar.process.host.pool import QueuedHandover
from snapshots.segments.id_pages import encode_page, id_page_key, parse_page
from snapshots.segments.manifest import encode_manifest, segment_key
from snapshots.segments.rows import RowPacker
from tests.support.manifests import bucket

T = TypeVar("T")
DUE_MS = 1_800_000_000_000
LIMITS = Limits(page_rows=2, pages_whole_bytes=0)
RULES = SealRules(time_step_ms=1_000, segment_entries=3, placement="pointer")


def named(*offsets: int) -> Places:
    return {hash_of(b"id %d" % offset): Position(DUE_MS + offset, offset) for offset in offsets}


def at_once(work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(work())
    return future


def sealing(ids: Places, *offsets: int, shifts_ms: Shifts = NO_SHIFTS, limits: Limits = LIMITS) -> Sealing:
    frozen: Unsealed[Payload] = Unsealed(0, packed_runs())
    schedule = Schedule(0, ("t",), BY_KEY, KEEP_KEY, None, both_times=False)
    frozen.add([(DUE_MS + offset, offset, scheduled(schedule, 10, None)) for offset in offsets])
    return Sealing(frozen, 100, 7, RULES, limits, at_once, ids=SealedIds(ids, shifts_ms, at_once, limits).take)


def written(under_way: Sealing | Merging) -> list[tuple[bytes, bytes]]:
    """Write all segments and pages, at record offsets from 1000 on, and return them."""
    found: list[tuple[bytes, bytes]] = []
    while (some := under_way.next_segments()) is not None:
        assert under_way.next_segments() == some, "it may have had to make way"
        under_way.written(range(1_000 + len(found), 1_000 + len(found) + len(some)))
        found += some
    return found


def rows_in(records: Sequence[tuple[bytes, bytes]], refs: Sequence[IdPageRef]) -> list[bytes]:
    return [row for ref in refs for row in rows_of(parse_page(records[ref.record_offset - 1_000][1]))]


def test_a_seal_writes_pages_behind_the_segments_and_names_them_in_the_manifest() -> None:
    under_way = sealing(named(2, 3, 5), 1, 2, 3, 5)
    records = written(under_way)
    assert [key for key, _ in records] == [segment_key(7, 0), segment_key(7, 1), id_page_key(7, 0), id_page_key(7, 1)]
    installs = under_way.installation(Position(0, 0))
    assert installs is not None
    pages = installs.manifest.id_pages
    assert pages is not None
    assert [page.record_offset for page in pages] == [1_002, 1_003]
    assert rows_in(records, pages) == list(rows_in_order(named(2, 3, 5)))
    assert encode_manifest(installs.manifest)


def test_a_page_has_the_shift_of_a_record_that_is_due_later_than_requested() -> None:
    under_way = sealing(named(2, 3, 5), 1, 2, 3, 5, shifts_ms={5: 700})
    records = written(under_way)
    installs = under_way.installation(Position(0, 0))
    assert installs is not None
    found = {place_in(row).offset: shift_in(row) for row in rows_in(records, installs.manifest.id_pages or ())}
    assert found == {2: 0, 3: 0, 5: 700}


def test_records_without_an_id_cost_no_page_and_it_is_known_that_there_are_none() -> None:
    under_way = sealing(NO_PLACES, 1, 2)
    assert [key for key, _ in written(under_way)] == [segment_key(7, 0)]
    installs = under_way.installation(Position(0, 0))
    assert installs is not None
    assert installs.manifest.id_pages == ()


def test_what_has_left_before_it_could_be_sealed_needs_no_pages() -> None:
    under_way = sealing(named(2))
    assert written(under_way) == []
    assert under_way.installation(Position(0, 0)) is None


def test_more_pages_than_a_manifest_holds_are_not_named() -> None:
    under_way = sealing(named(2, 3, 5), 1, 2, 3, 5, limits=replace(LIMITS, max_pages=1))
    written(under_way)
    installs = under_way.installation(Position(0, 0))
    assert installs is not None
    assert installs.manifest.id_pages is None


class Sources:
    """Buckets of one segment and of some pages, as a merge reads them."""

    def __init__(self, *sources: Sequence[int], shifts_ms: Shifts = NO_SHIFTS) -> None:
        self.buckets = [
            bucket(number, [(DUE_MS + offset, offset) for offset in offsets]) for number, offsets in enumerate(sources)
        ]
        self.pages = [[*cut_rows(rows_in_order(named(*offsets), shifts_ms), 2)] for offsets in sources]
        for each, pages in zip(self.buckets, self.pages, strict=True):
            refs = tuple(encode_page(page).ref._replace(record_offset=0) for page in pages)
            each.manifest = replace(each.manifest, id_pages=refs)
        self.damaged = False

    def ask(self, manifest: Manifest, numbers: range) -> Future[StoredSegments]:
        """Answer at once, with no record: the merge looks at none."""
        return at_once(lambda: [None for _ in numbers])

    def run(self, manifest: Manifest, number: int, stored: Record | None, packer: RowPacker) -> MergedRun:
        """Return the places of the manifest: an entry for each offset that has an id."""
        pages = self.pages[manifest.bucket_id]
        return ListRun(sorted((*place_in(row), None) for page in pages for row in rows_of(page)))

    def ask_pages(self, manifest: Manifest, numbers: range) -> Future[list[IdRows]]:
        """Return some pages, or an error if they are damaged."""
        future: Future[list[IdRows]] = Future()
        if self.damaged:
            future.set_exception(FormatError("damaged"))
        else:
            future.set_result([self.pages[manifest.bucket_id][number] for number in numbers])
        return future

    def records(self, offsets: Sequence[int]) -> ReadEach:
        """Yield each record as gone."""
        yield from ((offset, None) for offset in offsets)

    def merged(self, watermark: Position = BEFORE_ALL, masked: Sequence[int] = ()) -> list[int] | None:
        """Merge; return the offsets of the ids that the merged bucket has, or None where they are not known."""
        rows = self.merged_rows(watermark, masked)
        return None if rows is None else sorted(place_in(row).offset for row in rows)

    def merged_rows(self, watermark: Position = BEFORE_ALL, masked: Sequence[int] = ()) -> list[bytes] | None:
        """Merge; return the rows of the pages that the merged bucket has."""
        under_way = Merging(self.buckets, watermark, 9, RULES, LIMITS, QueuedHandover(0), BitMap64(masked))
        under_way.run(self)
        records = written(under_way)
        installs = under_way.installation()
        assert installs is not None
        pages = installs.manifest.id_pages
        if pages is None:
            return None
        rows = rows_in(records, pages)
        assert rows == sorted(rows)
        assert [key for key, _ in records[-len(pages) :]] == [id_page_key(9, number) for number in range(len(pages))]
        return rows


def test_a_merge_joins_the_pages_of_its_sources() -> None:
    sources = Sources([1, 2, 3], [11, 12, 13, 14, 15])
    assert sources.merged() == [1, 2, 3, 11, 12, 13, 14, 15]
    under_way = Merging(sources.buckets, BEFORE_ALL, 9, RULES, LIMITS, QueuedHandover(0))
    assert under_way.source_keys[-4:] == [segment_key(1, 0), *(id_page_key(1, number) for number in range(3))]


def test_a_merge_leaves_out_what_has_left_or_was_cancelled() -> None:
    sources = Sources([1, 2, 3], [11, 12, 13])
    assert sources.merged(Position(DUE_MS + 2, 2), masked=[12]) == [3, 11, 13]


def test_a_merge_keeps_the_shifts_of_its_sources() -> None:
    sources = Sources([1, 2, 3], [11, 12], shifts_ms={2: 700, 3: 900})
    rows = sources.merged_rows(Position(DUE_MS + 2, 2)) or ()
    assert {place_in(row).offset: shift_in(row) for row in rows} == {3: 900, 11: 0, 12: 0}


def test_a_merge_leaves_out_what_an_adopted_bucket_holds_of_others() -> None:
    sources = Sources([1, 2, 3], [11, 12, 13])
    adopted = sources.buckets[1]
    sources.buckets[1] = Bucket(replace(adopted.manifest, from_offset=12, built_from=11), BEFORE_ALL)
    assert sources.merged() == [1, 2, 3, 12, 13]


@pytest.mark.parametrize("is_damaged", [True, False], ids=["damaged", "of an older version"])
def test_a_merge_of_a_source_whose_ids_are_not_known_knows_none(*, is_damaged: bool) -> None:
    sources = Sources([1, 2, 3], [11, 12, 13])
    sources.damaged = is_damaged
    if not is_damaged:
        sources.buckets[0].manifest = replace(sources.buckets[0].manifest, id_pages=None)
    assert sources.merged() is None


class SnapshotsTopic:
    """Pages at offsets; ``asked`` are the offsets that were read."""

    def __init__(self, values: dict[int, bytes]) -> None:
        self.values = values
        self.asked: list[int] = []
        self.asked_apart: list[int] = []

    def read_large(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        assert (topic, partition, list(offsets)) == ("d.delay-snapshots", 3, sorted(offsets))
        self.asked += offsets
        return {at: Record(b"", self.values[at], [], 0) if at in self.values else None for at in offsets}

    def read_apart(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        self.asked_apart += offsets
        return self.read_large(topic, partition, offsets)


@pytest.fixture
def stored() -> tuple[Manifest, SnapshotsTopic, list[IdRows]]:
    pages = [*cut_rows(rows_in_order(named(*range(20))), 2)]
    encoded = [encode_page(page) for page in pages]
    refs = tuple(each.ref._replace(record_offset=500 - number) for number, each in enumerate(encoded))
    values = {ref.record_offset: each.value for ref, each in zip(refs, encoded, strict=True)}
    return replace(bucket(7, [(1, 1)]).manifest, id_pages=refs), SnapshotsTopic(values), pages


def read_pages(
    read: IdPageSource, manifest: Manifest, numbers: Sequence[int], topic: SnapshotsTopic
) -> dict[int, set[int]]:
    """Return the offsets of the ids in each page."""
    sought = Sought(named(*range(20)))
    pages = read.pages(manifest, numbers, cast("OffsetReader", topic))
    return {number: {place.offset for _, place, _ in page.find(sought, sought.all)} for number, page in pages}


def in_pages(pages: Sequence[IdRows], numbers: Sequence[int]) -> dict[int, set[int]]:
    """Return the expected result of ``read_pages``."""
    return {number: {place_in(row).offset for row in rows_of(pages[number])} for number in numbers}


def source(most_bytes: int = 1 << 20, limits: Limits = LIMITS) -> IdPageSource:
    return IdPageSource("d", "d.delay-snapshots", 3, limits, most_bytes)


def test_pages_are_read_together_and_once(stored: tuple[Manifest, SnapshotsTopic, list[IdRows]]) -> None:
    manifest, topic, pages = stored
    read = source()
    assert read_pages(read, manifest, [2, 3, 4, 5, 9], topic) == in_pages(pages, [2, 3, 4, 5, 9])
    assert topic.asked == [491, 495, 496, 497, 498]
    topic.asked.clear()
    assert read_pages(read, manifest, [0, 2, 4, 6], topic) == in_pages(pages, [0, 2, 4, 6])
    assert topic.asked == [494, 500]


@pytest.mark.parametrize(
    ("numbers", "most_apart", "apart"),
    [
        pytest.param([3], 8, [497], id="a single page"),
        pytest.param([3, 4, 5], 8, [], id="neighbours"),
        pytest.param([1, 9], 8, [491, 499], id="few that lie far apart"),
        pytest.param([1, 9], 1, [], id="more than are read apart"),
    ],
)
def test_pages_that_lie_far_apart_are_read_one_by_one(
    stored: tuple[Manifest, SnapshotsTopic, list[IdRows]], numbers: list[int], most_apart: int, apart: list[int]
) -> None:
    """A read of a range would fetch all records between them."""
    manifest, topic, pages = stored
    read = source(limits=replace(LIMITS, pages_apart=most_apart))
    assert read_pages(read, manifest, numbers, topic) == in_pages(pages, numbers)
    assert topic.asked_apart == apart


def test_all_pages_of_a_small_bucket_are_read_for_one_of_them(
    stored: tuple[Manifest, SnapshotsTopic, list[IdRows]],
) -> None:
    manifest, topic, pages = stored
    read = source(limits=replace(LIMITS, pages_whole_bytes=1 << 20))
    assert read_pages(read, manifest, [2], topic) == in_pages(pages, [2])
    assert read_pages(read, manifest, [0, 7], topic) == in_pages(pages, [0, 7])
    assert topic.asked == list(range(491, 501))


def test_no_more_is_remembered_than_there_is_room_for(stored: tuple[Manifest, SnapshotsTopic, list[IdRows]]) -> None:
    manifest, topic, pages = stored
    read = source(most_bytes=3 * IdPage(pages[0]).size_bytes)
    for _ in range(2):
        assert read_pages(read, manifest, range(10), topic) == in_pages(pages, range(10))
    assert len(topic.asked) == 17
    topic.asked.clear()
    assert read_pages(read, manifest, [5, 6], topic) == in_pages(pages, [5, 6])
    assert topic.asked == []
    read.forget_others({494})
    assert read_pages(read, manifest, [5, 6], topic) == in_pages(pages, [5, 6])
    assert topic.asked == [495]


@pytest.mark.parametrize("value", [None, b"KDR", encode_page(join_rows([*rows_in_order(named(4))])).value])
def test_a_page_that_is_gone_damaged_or_another_is_refused_and_told(
    stored: tuple[Manifest, SnapshotsTopic, list[IdRows]], value: bytes | None
) -> None:
    manifest, topic, _ = stored
    if value is None:
        del topic.values[498]
    else:
        topic.values[498] = value
    with capture_logs() as logged, pytest.raises(FormatError):
        list(source().pages(manifest, [1, 2], cast("OffsetReader", topic)))
    assert [(each["event"], each["page"], each["bucket"]) for each in logged] == [("id_page_damaged", 2, 7)]

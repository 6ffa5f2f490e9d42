"""Pages of what is pending, whatever is sealed and merged between two of them, against a list of all records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

import pytest
from pyroaring import FrozenBitMap64

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.errors import ConfigError
from index.named.id_pages import IdPage, IdPageRef, IdRows, cut_rows, rows_in_order
from index.named.names import hash_of
from index.named.places import HASH_BYTES
from index.pending.progress import BEFORE_ALL, Behind, Position, Progress, Skipped
from index.protocol.headers import Headers
from index.protocol.occurrences import record_of
from index.protocol.record import Record
from index.protocol.recurring import Occurrence, recurrence_of
from index.protocol.schedule import Attempted, Schedule
from index.rules.retrying import Retry
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.operations.finding.cache import IdBlocks
from sidecar.operations.finding.store import Allowance, StoredPartition
from sidecar.operations.finding.walk import Walk
from sidecar.operations.finding.wanted import PagePlace, Pending, ScheduleFilter
from snapshots.segments.segment import StoredEntry
from snapshots.state.held import HeldEntry
from snapshots.state.state import StoredState

RULES = Rules("d", default_target="out", allowed_targets=("a", "b"), recurring=True, max_delay_ms=0)
SENT_MS = 1_000
SEEDS = 400


class Row(NamedTuple):
    """A record, and when it is due; None: it is to be rejected."""

    offset: int
    due_ms: int | None
    target: str
    deliver_id: bytes

    @property
    def key(self) -> bytes | None:
        return (b"one", b"other", None)[self.offset % 3]

    @property
    def record(self) -> Record:
        """As a producer has written it."""
        headers: Headers = [("deliver-to", self.target.encode()), ("deliver-id", self.deliver_id)]
        at = b"nonsense" if self.due_ms is None else b"%d" % self.due_ms
        return Record(self.key, b"payload", [*headers, ("deliver-at", at)], SENT_MS)


@dataclass
class World(StoredPartition):
    """A partition of which everything below S is in buckets, released, held or cancelled."""

    random: Random
    rows: list[Row] = field(default_factory=list)
    watermark: Position = BEFORE_ALL
    sealed_to: int = 0
    cursor: int = 0
    buckets: tuple[Manifest, ...] = ()
    segments: dict[int, Sequence[StoredEntry]] = field(default_factory=dict)
    held: frozenset[int] = frozenset()
    cancelled: frozenset[int] = frozenset()
    skipped: range = range(0)
    behind: tuple[Behind, ...] = ()
    begins: int = 0
    looked_through: int = 0
    pages: list[IdRows] = field(default_factory=list)
    paging: Random = field(default_factory=lambda: Random(0))
    paged: float = 0
    damaged: float = 0
    read_pages: int = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            due_ms = self.random.choice([None, *(self.random.randrange(2_000, 3_000) for _ in range(9))])
            deliver_id = b"id-%d" % self.random.randrange(4)
            self.rows.append(Row(len(self.rows) + 5, due_ms, self.random.choice("ab"), deliver_id))

    @property
    def end(self) -> int:
        return self.rows[-1].offset + 1

    def seal(self, from_offset: int, to_offset: int) -> None:
        """Replace the buckets within this range by one bucket; S and C move to its end."""
        there = [row for row in self.rows if from_offset <= row.offset < to_offset and row.due_ms is not None]
        there.sort(key=lambda row: (row.due_ms, row.offset))
        refs = [self._segment(there[at : at + 3]) for at in range(0, len(there), 3)]
        others = [each for each in self.buckets if not from_offset <= each.from_offset < to_offset]
        pages = self._pages_of(there) if self.paging.random() < self.paged else None
        made = Manifest(len(self.segments), from_offset, to_offset, from_offset, tuple(refs), None, pages)
        self.buckets = tuple(sorted([*others, made], key=lambda each: each.from_offset))
        self.sealed_to = max(self.sealed_to, to_offset)
        self.cursor = max(self.cursor, to_offset)

    def _pages_of(self, rows: list[Row]) -> tuple[IdPageRef, ...]:
        ids: dict[bytes, list[Position]] = {}
        for row in rows:
            ids.setdefault(hash_of(row.deliver_id), []).append(Position(row.due_ms or 0, row.offset))
        refs: list[IdPageRef] = []
        for page in cut_rows(rows_in_order(ids), 2):
            refs.append(IdPageRef(page.joined[:HASH_BYTES], page.row_count, 9, len(self.pages)))
            self.pages.append(page)
        return tuple(refs)

    def id_page(self, ref: IdPageRef) -> IdPage | None:
        self.read_pages += 1
        return None if self.paging.random() < self.damaged else IdPage(self.pages[ref.record_offset])

    def _segment(self, rows: list[Row]) -> SegmentRef:
        number, inline = len(self.segments), self.random.random() < 0.5 or any(row.offset < self.begins for row in rows)
        entries = [(row.due_ms or 0, row.offset, row.record if inline else None) for row in rows]
        self.segments[number] = entries
        first, last = Position(*entries[0][:2]), Position(*entries[-1][:2])
        return SegmentRef(first, last, len(rows), 1, number, Placement.INLINE if inline else Placement.POINTER)

    def merge(self) -> None:
        """Two neighbours become one."""
        at = self.random.randrange(len(self.buckets))
        if at + 1 < len(self.buckets) and not self.behind:
            self.seal(self.buckets[at].from_offset, self.buckets[at + 1].to_offset)

    @property
    def state(self) -> StoredState:
        skipped = (Skipped(self.skipped.start, self.skipped.stop),) if self.skipped else ()
        progress = Progress(self.cursor, self.watermark, self.sealed_to, 1, 1, self.behind, skipped, b"key")
        held = tuple(self._held(row) for row in self.rows if row.offset in self.held)
        return StoredState(
            progress, "id", RuleHistory.beginning(0, RULES), self.buckets, held, None, FrozenBitMap64(self.cancelled)
        )

    def _held(self, row: Row) -> HeldEntry:
        schedule = RULES.decide(row.record.headers, SENT_MS)
        assert isinstance(schedule, Schedule)
        return HeldEntry(row.offset, schedule, row.record)

    def pending(self, wanted: ScheduleFilter) -> set[int]:
        """By what each record is, one by one."""
        return {row.offset for row in self.rows if self._is_pending(row) and _is_wanted(row, wanted)}

    def _is_pending(self, row: Row) -> bool:
        if row.due_ms is None or row.offset in self.cancelled:
            return False
        if row.offset in self.held:
            return True
        if row.offset in self.skipped:
            return False
        bucket = next((each for each in self.buckets if each.from_offset <= row.offset < each.to_offset), None)
        behind = dict(self.behind).get(-1 if bucket is None else bucket.bucket_id)
        return row.offset >= self.cursor or Position(row.due_ms, row.offset) > (behind or self.watermark)

    def segment(self, ref: SegmentRef) -> Sequence[StoredEntry] | None:
        return self.segments.get(ref.record_offset)

    def inline(self, ref: SegmentRef) -> SegmentRef:
        """Return the same segment, with the records themselves."""
        by_offset = {row.offset: row.record for row in self.rows}
        entries = [(due_ms, offset, by_offset[offset]) for due_ms, offset, _ in self.segments[ref.record_offset]]
        self.segments[ref.record_offset] = entries
        return ref._replace(placement=Placement.INLINE)

    def records(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        return {row.offset: row.record for row in self.rows if row.offset in set(offsets) and row.offset >= self.begins}

    def log(self, from_offset: int, to_offset: int | None = None) -> Iterator[tuple[int, Record]]:
        start, end = max(from_offset, self.begins), self.end if to_offset is None else to_offset
        self.looked_through += end - start
        return ((row.offset, row.record) for row in self.rows if start <= row.offset < end)

    def log_start(self) -> int:
        return self.begins


def _is_wanted(row: Row, wanted: ScheduleFilter) -> bool:
    assert row.due_ms is not None
    begins = wanted.due_from_ms is None or row.due_ms >= wanted.due_from_ms
    ends = wanted.due_to_ms is None or row.due_ms < wanted.due_to_ms
    of_record = wanted.deliver_id in (None, row.deliver_id) and wanted.key in (None, row.key)
    return begins and ends and of_record and wanted.target in ("", row.target)


def _world(seed: int) -> World:
    # Which buckets have pages is dealt apart, so that all else is as it would be without.
    world = World(Random(seed), paging=Random(seed), paged=[0, 0.8, 1][seed % 3], damaged=0.05)
    world.write(world.random.randrange(5, 60))
    cuts = sorted(world.random.sample(range(5, world.end), world.random.randrange(0, 4)))
    for from_offset, to_offset in zip([5, *cuts], cuts, strict=False):
        world.seal(from_offset, to_offset)
    world.cursor = max(world.cursor, world.random.randrange(5, world.end + 1))
    world.watermark = Position(world.random.randrange(1_900, 2_800), world.random.randrange(world.end))
    if world.buckets and world.random.random() < 0.3:
        world.behind = (Behind(world.random.choice(world.buckets).bucket_id, Position(1_950, 0)),)
    below = [row for row in world.rows if row.due_ms is not None and row.offset < world.cursor]
    passed = [row.offset for row in below if Position(row.due_ms or 0, row.offset) <= world.watermark]
    world.held = frozenset(offset for offset in passed if world.random.random() < 0.3)
    others = [row.offset for row in below if row.offset not in world.held]
    world.cancelled = frozenset(offset for offset in others if world.random.random() < 0.2)
    if (unsealed := max(5, world.sealed_to)) < world.cursor:
        start = world.random.randrange(unsealed, world.cursor)
        world.skipped = range(start, min(start + 3, world.cursor))
    world.held -= frozenset(world.skipped)
    if world.buckets and world.random.random() < 0.3:
        # Of what is in buckets, retention has removed some.
        world.begins = world.random.randrange(5, world.buckets[-1].to_offset + 1)
        world.buckets = tuple(replace(each, segments=tuple(map(world.inline, each.segments))) for each in world.buckets)
    return world


def _wanted(random: Random) -> ScheduleFilter:
    return ScheduleFilter(
        "d",
        random.choice([None, b"id-1"]),
        random.choice([None, 2_200]),
        random.choice([None, 2_700]),
        random.choice(["", "a"]),
        random.choice([None, None, b"other"]),
    )


def _page(
    world: World, wanted: ScheduleFilter, place: PagePlace, most: int, blocks: IdBlocks | None
) -> tuple[list[Pending], PagePlace | None]:
    walk = Walk(0, world.state, wanted, world, Allowance(world.random.randrange(1, 9)), blocks, most)
    return walk.found, walk.read(place)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_pages_show_everything_that_is_pending_once(seed: int) -> None:
    world = _world(seed)
    wanted = _wanted(world.random)
    place: PagePlace | None = PagePlace(0)
    shown: list[int] = []
    known = IdBlocks(span=world.random.randrange(1, 20), most_bytes=world.random.choice([0, 1_200, 1 << 20]))
    while place is not None:
        # The log may be unreadable for one page, and not for another.
        blocks = world.random.choice([known, known, None])
        found, next_from = _page(world, wanted, place, most := world.random.randrange(1, 7), blocks)
        assert len(found) <= most
        assert next_from != place
        shown += [each.offset for each in found]
        place = None if next_from is None else PagePlace.parse(str(next_from))
        if world.buckets and world.random.random() < 0.3:
            world.merge()
        if world.cursor > world.sealed_to and world.random.random() < 0.1 and not world.skipped:
            # What is released of the range, or held, is not in the bucket; here it is, and is passed over.
            world.seal(world.buckets[-1].to_offset if world.buckets else 5, world.cursor)
    assert len(shown) == len(set(shown))
    assert set(shown) == world.pending(wanted)


def test_it_is_told_what_a_schedule_is_and_nothing_of_its_value() -> None:
    world = World(Random(1), rows=[Row(7, 2_500, "a", b"order-7")])
    found, next_from = _page(world, ScheduleFilter("d"), PagePlace(0), 10, None)
    assert found == [Pending(2_500, 0, 7, ("a",), b"order-7", None, b"other")]
    assert next_from is None


def test_the_number_of_an_attempt_is_told() -> None:
    rules = Rules("d", default_target="a", retry=Retry(1_000, 2_000, 60_000, 0, 8, "dead"))
    state = replace(World(Random(1)).state, history=RuleHistory.beginning(0, rules))
    stored = _OneRecord(7, Record(b"k", b"v", [("delay-attempt", b"2")], SENT_MS))
    walk = Walk(0, state, ScheduleFilter("d"), stored, Allowance(10), None, 10)
    assert walk.read(PagePlace(0)) is None
    assert [(each.due_ms, each.attempt) for each in walk.found] == [(SENT_MS + 4_000, Attempted(3))]


def test_an_occurrence_names_its_series_and_what_recurs_from_now_on_itself() -> None:
    first = Record(b"k", b"v", [("deliver-every", b"5s")], SENT_MS)
    later = record_of(first, Occurrence(3, 2, SENT_MS + 10_000), "d/0/3", b"key", SENT_MS)
    state = World(Random(1)).state
    shown: list[int | None] = []
    for offset, record in ((3, first), (9, later)):
        stored = _OneRecord(offset, record)
        walk = Walk(0, state, ScheduleFilter("d"), stored, Allowance(10), None, 10)
        assert walk.read(PagePlace(0)) is None
        shown += [each.series for each in walk.found]
        (found,) = walk.found
        assert found.recurrence == recurrence_of(record.headers)
        wanted = ScheduleFilter("d", recurring=True)
        again = Walk(0, state, wanted, stored, Allowance(10), None, 10)
        assert again.read(PagePlace(0)) is None
        assert again.found == walk.found
    assert shown == [3, 3]


def test_what_does_not_recur_is_left_out_where_only_recurring_ones_are_wanted() -> None:
    world = World(Random(1), rows=[Row(7, 2_500, "a", b"order-7")])
    assert _page(world, ScheduleFilter("d", recurring=True), PagePlace(0), 10, None) == ([], None)


class _OneRecord(World):
    """A log of one record."""

    def __init__(self, offset: int, record: Record) -> None:
        super().__init__(Random(1))
        self._only = offset, record

    def log(self, from_offset: int, to_offset: int | None = None) -> Iterator[tuple[int, Record]]:
        return iter([self._only] if self._only[0] >= from_offset else [])


def test_a_page_ends_where_a_segment_is_gone() -> None:
    world = World(Random(1), rows=[Row(offset, 2_500 + offset, "a", b"x") for offset in range(5, 12)])
    world.seal(5, 12)
    world.segments = {number: each for number, each in world.segments.items() if number != 1}
    walk = Walk(0, world.state, ScheduleFilter("d"), world, Allowance(100), None, 100)
    next_from = walk.read(PagePlace(0))
    assert [each.offset for each in walk.found] == [5, 6, 7]
    assert next_from == PagePlace(0, False, 5, 12, Position(2_507, 7))
    assert Walk(0, world.state, ScheduleFilter("d"), world, Allowance(100), None, 100).read(next_from) == next_from


@pytest.mark.parametrize("text", ["", "0", "0/tail/3", "0/log/-1", "0/log/1/2", "0/log/1/2/3/4/5", "0/log/1\n"])
def test_a_place_that_no_page_gave_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="next_from"):
        PagePlace.parse(text)


def test_a_segment_that_is_due_at_another_time_is_not_read() -> None:
    world = World(Random(1), rows=[Row(offset, 2_500 + offset, "a", b"x") for offset in range(5, 12)])
    world.seal(5, 12)
    world.segments = {number: each for number, each in world.segments.items() if number == 1}
    walk = Walk(
        0,
        world.state,
        replace(ScheduleFilter("d"), due_from_ms=2_508, due_to_ms=2_511),
        world,
        Allowance(100),
        None,
        100,
    )
    assert walk.read(PagePlace(0)) is None
    assert [each.offset for each in walk.found] == [8, 9, 10]


def test_of_an_id_the_log_is_looked_through_once() -> None:
    world = World(Random(1), rows=[Row(offset, 2_500 + offset, "a", b"%d" % (offset % 7)) for offset in range(100)])
    world.seal(0, 60)
    world.seal(60, 95)
    world.segments.clear()
    known = IdBlocks(span=10)
    for number in range(7):
        world.looked_through = 0
        walk = Walk(0, world.state, ScheduleFilter("d", b"%d" % number), world, Allowance(1_000), known, 1_000)
        assert walk.read(PagePlace(0)) is None
        assert [each.offset for each in walk.found] == list(range(number, 100, 7))
        assert world.looked_through == (10 if number else 100)


@pytest.mark.parametrize("begins", [0, 90], ids=["in the log", "in segments alone"])
def test_of_an_id_only_the_pages_are_read_that_may_have_it(begins: int) -> None:
    rows = [Row(offset, 2_500 + offset, "a", b"%d" % (offset % 50)) for offset in range(100)]
    world = World(Random(1), rows=rows, paged=1)
    world.seal(0, 60)
    world.seal(60, 95)
    world.buckets = tuple(replace(each, segments=tuple(map(world.inline, each.segments))) for each in world.buckets)
    world.begins = begins
    walk = Walk(0, world.state, ScheduleFilter("d", b"17"), world, Allowance(1_000), IdBlocks(span=10), 1_000)
    assert walk.read(PagePlace(0)) is None
    assert [each.offset for each in walk.found] == [17, 67]
    assert 2 <= world.read_pages <= 4
    assert world.looked_through <= 10, "what lies behind S"


def test_a_page_that_is_damaged_hides_nothing() -> None:
    rows = [Row(offset, 2_500 + offset, "a", b"%d" % (offset % 50)) for offset in range(100)]
    world = World(Random(1), rows=rows, paged=1, damaged=1)
    world.seal(0, 60)
    walk = Walk(0, world.state, ScheduleFilter("d", b"17"), world, Allowance(1_000), IdBlocks(span=10), 1_000)
    assert walk.read(PagePlace(0)) is None
    assert [each.offset for each in walk.found] == [17, 67]

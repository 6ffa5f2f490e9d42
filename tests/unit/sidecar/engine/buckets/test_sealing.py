"""The contents of sealed segments, and the recovery of a damaged one; no Kafka."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar, cast

import pytest

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.buckets.bucket_rules import PlacementRule, SealRules, cut
from index.buckets.due_marks import marks_of
from index.errors import RefusedError
from index.pending.pending import Entry
from index.pending.progress import Position
from index.pending.unsealed import Unsealed
from index.protocol.record import Record
from index.protocol.schedule import Schedule
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.buckets.id_pages import Encode
from sidecar.engine.buckets.sealing import Sealing
from sidecar.engine.buckets.segments import SegmentSource, keep_nothing
from sidecar.engine.limits import LIMITS
from sidecar.engine.payload.packed_run import packed_runs
from sidecar.engine.payload.records import Payload, Scheduled, packed, scheduled, size_of
from sidecar.engine.ports import ReadEach
from sidecar.kafka.reading.offset_reader import OffsetReader
from snapshots.segments.manifest import segment_key
from snapshots.segments.rows import RowPacker
from snapshots.segments.segment import StoredEntry, decode_segment
from snapshots.segments.writing import MAX_SEGMENT_BYTES, SegmentWriter

T = TypeVar("T")

RULES = Rules(
    topic="d",
    default_target="t",
    allowed_targets=(),
    max_delay_ms=0,
    aliases=(),
    forbidden_targets=frozenset({"d"}),
)


def record(due_ms: int, *, value: bytes = b"v", more: Sequence[tuple[str, bytes | None]] = ()) -> Record:
    return Record(None, value, [("deliver-at", b"%d" % due_ms), *more], 1_700_000_000_000)


def entry(due_ms: int, offset: int, given: Record | None = None) -> Entry[Scheduled]:
    given = given or record(due_ms)
    decision = RULES.decide(given.headers, given.timestamp_ms)
    assert isinstance(decision, Schedule)
    return due_ms, offset, scheduled(decision, size_of(given), given)


def sealing(entries: Sequence[Entry[Scheduled]], rules: SealRules, encode: Encode | None = None) -> Sealing:
    frozen: Unsealed[Payload] = Unsealed(0, packed_runs())
    frozen.add(entries)
    return Sealing(frozen, 1_000, 7, rules, LIMITS, encode or at_once)


def at_once(work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(work())
    return future


def test_a_nearly_empty_segment_goes_on_into_the_next_time_step() -> None:
    rules = SealRules(time_step_ms=1_000, segment_entries=320)
    scattered: list[Entry[None]] = [(1_000_000 * number, number, None) for number in range(1_000)]
    sizes = [len(segment) for segment in cut([scattered], rules, lambda _: 1)]
    assert sizes == [10] * 100
    dense: list[Entry[None]] = [(number * 10, number, None) for number in range(1_000)]
    assert [len(segment) for segment in cut([dense], rules, lambda _: 1)] == [100] * 10


def test_names_of_headers_do_not_make_a_segment_too_big() -> None:
    """The estimate of a segment's size leaves names out, and a producer chooses them."""
    now_ms = 1_800_000_000_000
    entries = [entry(now_ms + n, n, record(now_ms + n, more=[("é" * 1_500 + str(n), b"")])) for n in range(900)]
    under_way = sealing(entries, SealRules(placement="inline", segment_bytes=700_000))
    stored: list[StoredEntry] = []
    while segments := under_way.next_segments():
        assert max(len(value) for _, value in segments) <= MAX_SEGMENT_BYTES
        stored += [each for _, value in segments for each in decode_segment(value)]
        under_way.written([len(stored) + number for number in range(len(segments))])
    assert [offset for _, offset, _ in stored] == list(range(900))
    assert all(kept is not None for _, _, kept in stored)
    installation = under_way.installation(Position(0, 0))
    assert installation is not None
    assert installation.manifest.needs_from is None
    assert installation.manifest.entries == 900


def test_a_record_that_fits_into_no_segment_is_left_out() -> None:
    writer = SegmentWriter(1, 0, 10)
    large = record(1_800_000_000_000, value=b"x" * 2_000_000)
    (encoded,) = writer.encode(Placement.INLINE, [(1_800_000_000_000, 4, large)])
    assert decode_segment(encoded.value) == [(1_800_000_000_000, 4, None)]
    writer.written([encoded.ref], [3])
    assert writer.manifest().needs_from == 4


def test_segments_are_given_again_until_they_are_written() -> None:
    now_ms = 1_800_000_000_000
    under_way = sealing([entry(now_ms + n, n) for n in range(1_000)], SealRules(placement="inline", segment_entries=5))
    first = under_way.next_segments()
    assert under_way.next_segments() == first
    assert first is not None
    count = len(first)
    assert [key for key, _ in first] == [segment_key(7, number) for number in range(count)]
    under_way.written([100 + number for number in range(count)])
    following = [key for key, _ in under_way.next_segments() or ()]
    assert following == [segment_key(7, number) for number in range(count, count + len(following))]
    assert count
    assert following


class WhenTold:
    """Encodes the given work when the test calls it."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def encode(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._waiting.append(lambda: future.set_result(work()))
        return future

    def do(self, count: int) -> None:
        for _ in range(count):
            self._waiting.pop(0)()


def test_a_few_small_segments_wait_for_those_that_are_being_encoded() -> None:
    now_ms, pool = 1_800_000_000_000, WhenTold()
    rules = SealRules(placement="inline", segment_entries=5)
    under_way = sealing([entry(now_ms + n, n) for n in range(15)], rules, pool.encode)
    assert under_way.next_segments() == ()
    pool.do(2)
    assert under_way.next_segments() == ()
    pool.do(1)
    assert len(under_way.next_segments() or ()) == 3


def test_large_segments_do_not_wait_for_others() -> None:
    now_ms, pool = 1_800_000_000_000, WhenTold()
    large = [entry(now_ms + n, n, record(now_ms + n, value=bytes(LIMITS.seal_worth_bytes))) for n in range(3)]
    under_way = sealing(large, SealRules(placement="inline", segment_entries=1), pool.encode)
    assert under_way.next_segments() == ()
    pool.do(1)
    assert len(under_way.next_segments() or ()) == 1


class DelayTopic:
    """A reader whose snapshots topic is empty and whose delay topic holds these records."""

    def __init__(self, held: dict[int, Record]) -> None:
        self._held = held

    def read(self, _topic: str, _partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        return dict.fromkeys(offsets)

    read_large = read

    def read_each(self, topic: str, partition: int, offsets: Sequence[int]) -> ReadEach:
        yield from self.read(topic, partition, offsets).items()

    def scan(self, _topic: str, _partition: int, from_offset: int, to_offset: int) -> Iterator[tuple[int, Record]]:
        if from_offset in self._held:
            yield from ((offset, self._held[offset]) for offset in sorted(self._held) if offset < to_offset)


@pytest.fixture
def load() -> Callable[[dict[int, Record], int], list[Entry[Scheduled]]]:
    def load(held: dict[int, Record], entries: int) -> list[Entry[Scheduled]]:
        ref = SegmentRef(Position(1_000, 2), Position(3_000, 6), entries, 10, 0, Placement.INLINE)
        source = SegmentSource(DelayTopicConfig(name="d", default_target="t"), 0, RuleHistory.beginning(0, RULES))
        return source.load(Manifest(1, 0, 8, None, (ref,)), 0, cast("OffsetReader", DelayTopic(held)), keep_nothing)

    return load


def test_a_segment_is_made_good_with_what_had_left_before_it_was_written(
    load: Callable[[dict[int, Record], int], list[Entry[Scheduled]]],
) -> None:
    dues = {0: 900, 1: 4_000, 2: 1_000, 3: 2_500, 4: 1_500, 5: 3_001, 6: 3_000}
    held = {offset: record(due_ms) for offset, due_ms in dues.items()}
    # Only three were written: one had been released, and its watermark drops it again.
    found = load(held, 3)
    assert [each[:2] for each in found] == [(1_000, 2), (1_500, 4), (2_500, 3), (3_000, 6)]


@pytest.mark.parametrize("gone", [{3}, {0}, set(range(7))])
def test_a_segment_is_not_made_good_from_a_part_of_its_range(
    load: Callable[[dict[int, Record], int], list[Entry[Scheduled]]], gone: set[int]
) -> None:
    dues = {0: 900, 1: 4_000, 2: 1_000, 3: 2_500, 4: 1_500, 5: 3_001, 6: 3_000}
    held = {offset: record(due_ms) for offset, due_ms in dues.items() if offset not in gone}
    with pytest.raises(RefusedError, match="segment 0 of bucket 1 of d/0 is lost") as caught:
        load(held, 4)
    assert "delay-router start-over d/0" in str(caught.value)


OTHER = Rules(topic="d", default_target="t", allowed_targets=("u",))


def routed(due_ms: int, offset: int, target: str, *, is_packed: bool, packer: RowPacker) -> Entry[Payload]:
    given = record(due_ms, more=[("deliver-to", target.encode())])
    decision = OTHER.decide(given.headers, given.timestamp_ms)
    assert isinstance(decision, Schedule)
    row = packer.pack(given.key, given.value, given.headers)
    if is_packed and row is not None:
        return due_ms, offset, packed(given.timestamp_ms, row, packer, decision.targets)
    return due_ms, offset, scheduled(decision, size_of(given), given)


@pytest.mark.parametrize("placement", ["inline", "pointer"])
@pytest.mark.parametrize("packed_ones", [0, 5, 10], ids=["scheduled", "mixed", "packed"])
def test_segments_tell_what_is_in_them_by_target(placement: PlacementRule, packed_ones: int) -> None:
    packer = RowPacker()
    entries = [
        routed(
            1_800_000_000_000 + offset,
            offset,
            "u" if offset % 5 else "t",
            is_packed=offset < packed_ones,
            packer=packer,
        )
        for offset in range(10)
    ]
    frozen: Unsealed[Payload] = Unsealed(0, packed_runs())
    frozen.add(entries)
    sealing = Sealing(frozen, 10, 1, SealRules(segment_entries=6, placement=placement), LIMITS, at_once)
    while (segments := sealing.next_segments()) is not None:
        sealing.written(range(len(segments)))
    installation = sealing.installation(Position(0, 0))
    assert installation is not None
    found = [(ref.entries, ref.targets) for ref in installation.manifest.segments]
    assert found == [(6, (("u", 4), ("t", 2))), (4, (("u", 4),))]
    dues_ms = [due_ms for due_ms, _, _ in entries]
    assert [ref.dues for ref in installation.manifest.segments] == [marks_of(dues_ms[:6]), marks_of(dues_ms[6:])]


def test_a_segment_that_was_too_big_is_counted_in_its_parts() -> None:
    rules = SealRules(segment_entries=10, segment_bytes=10 << 20, placement="inline")
    entries: list[Entry[Payload]] = []
    for offset in range(4):
        given = record(1_800_000_000_000 + offset, value=b"x" * 400_000)
        schedule = Schedule(given.timestamp_ms, ("u",) if offset < 2 else ("t",), -1, b"k", None, both_times=False)
        entries.append((1_800_000_000_000 + offset, offset, scheduled(schedule, size_of(given), given)))
    frozen: Unsealed[Payload] = Unsealed(0, packed_runs())
    frozen.add(entries)
    sealing = Sealing(frozen, 10, 1, rules, LIMITS, at_once)
    while (segments := sealing.next_segments()) is not None:
        sealing.written(range(len(segments)))
    installation = sealing.installation(Position(0, 0))
    assert installation is not None
    assert [ref.targets for ref in installation.manifest.segments] == [(("u", 2),), (("t", 2),)]

"""Reads of a merge: some segments of each source before they are needed, and no more than that."""

from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.buckets.bucket import Manifest
from index.errors import ClusterError, ClusterTrouble
from index.named.id_pages import IdRows
from index.pending.progress import BEFORE_ALL, Position
from index.pending.run import ListRun
from index.protocol.record import Record
from sidecar.engine.buckets.merge_reading import MergedRun, PointedRecords, SourceAhead, StoredSegments
from sidecar.engine.ports import ReadEach
from snapshots.segments.rows import RowPacker
from snapshots.segments.segment import StoredEntry
from snapshots.segments.writing import record_size
from tests.support.manifests import manifest

RUN_BYTES = 500
PACKER = RowPacker()


class Reads:
    """Holds segment ``n`` under key ``n``, and returns each when it is ``answered``."""

    def __init__(self, source: Manifest) -> None:
        self.source = source
        self.asked: list[tuple[range, Future[StoredSegments]]] = []
        self.answers_at_once = True

    def ask(self, manifest: Manifest, numbers: range) -> Future[StoredSegments]:
        assert manifest is self.source
        self.asked.append((numbers, Future()))
        if self.answers_at_once:
            self.answer(len(self.asked) - 1)
        return self.asked[-1][1]

    def answer(self, place: int) -> None:
        numbers, future = self.asked[place]
        future.set_result([Record(b"%d" % number, b"", [], 0) for number in numbers])

    def run(self, manifest: Manifest, number: int, stored: Record | None, packer: RowPacker) -> MergedRun:
        assert packer is PACKER
        assert stored is not None
        assert stored.key == b"%d" % number
        ref = manifest.segments[number]
        return ListRun([(due_ms, due_ms, None) for due_ms in range(ref.first.due_ms, ref.last.due_ms + 1)])

    def ask_pages(self, manifest: Manifest, numbers: range) -> Future[list[IdRows]]:
        raise NotImplementedError

    def records(self, offsets: Sequence[int]) -> ReadEach:
        raise NotImplementedError

    def runs(self) -> list[range]:
        return [numbers for numbers, _ in self.asked]

    def asked_bytes(self, numbers: range) -> int:
        return sum(self.source.segments[number].size_bytes for number in numbers)


def segments(*sizes: int) -> Manifest:
    """Make a manifest of segments with so many entries, at 100 bytes an entry; due time and offset of entry n are n."""
    places = iter([(number, number) for number in range(sum(sizes))])
    return manifest(7, *[[next(places) for _ in range(size)] for size in sizes])


def dues_ms(run: MergedRun) -> list[int]:
    return [due_ms for due_ms, _, _ in run]


def test_what_follows_is_asked_for_as_soon_as_what_is_before_it_is_at_hand() -> None:
    reads = Reads(segments(2, 2, 2, 2, 2))
    ahead = SourceAhead(reads, reads.source, BEFORE_ALL, PACKER, RUN_BYTES)
    assert reads.runs() == [range(2)]
    runs = iter(ahead)
    assert [dues_ms(next(runs)) for _ in range(2)] == [[0, 1], [2, 3]]
    assert reads.runs() == [range(2), range(2, 4)]
    assert dues_ms(next(runs)) == [4, 5]
    assert reads.runs() == [range(2), range(2, 4), range(4, 5)]
    assert [dues_ms(run) for run in runs] == [[6, 7], [8, 9]]


def test_what_was_asked_for_and_is_not_needed_any_more_is_not_read() -> None:
    reads = Reads(segments(5, 5, 5))
    ahead = SourceAhead(reads, reads.source, BEFORE_ALL, PACKER, RUN_BYTES)
    reads.answers_at_once = False
    next(iter(ahead))
    ahead.cancel()
    assert [future.cancelled() for _, future in reads.asked] == [False, True]


def test_a_read_that_was_cancelled_is_none_of_nothing() -> None:
    reads = Reads(segments(5, 5))
    reads.answers_at_once = False
    ahead = SourceAhead(reads, reads.source, BEFORE_ALL, PACKER, RUN_BYTES)
    ahead.cancel()
    with pytest.raises(CancelledError):
        next(iter(ahead))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(-1, 60))
def test_all_that_has_not_left_comes_in_order_and_no_more_than_one_run_is_ahead(sizes: list[int], left: int) -> None:
    reads = Reads(segments(*sizes))
    watermark = Position(left, left)
    asked = [number for number, ref in enumerate(reads.source.segments) if ref.last > watermark]
    expected = list(range(left + 1, sum(sizes)))
    found: list[int] = []
    for segment in SourceAhead(reads, reads.source, watermark, PACKER, RUN_BYTES):
        found += dues_ms(segment)
        at_hand = [place for place, run in enumerate(reads.runs()) if _holds(reads.source, run, found[-1])]
        assert len(reads.asked) <= at_hand[0] + 2
    assert found == expected
    assert [number for run in reads.runs() for number in run] == asked
    assert all(reads.asked_bytes(run) <= 500 or len(run) == 1 for run in reads.runs())


def _holds(source: Manifest, run: range, due_ms: int) -> bool:
    return source.segments[run[0]].first.due_ms <= due_ms <= source.segments[run[-1]].last.due_ms


class DelayTopic(Reads):
    """Holds records of ``sizes`` at offsets from 0 on; remembers how many bytes each read had.

    A read that meets a ``damaged`` offset fails there; a record that is ``gone`` is None.
    """

    def __init__(self, sizes: Sequence[int], damaged: Sequence[int] = (), gone: Sequence[int] = ()) -> None:
        super().__init__(segments(1))
        self.held = [Record(None, bytes(size), [], offset) for offset, size in enumerate(sizes)]
        self._damaged = damaged
        self._gone = gone
        self.reads: list[int] = []

    def records(self, offsets: Sequence[int]) -> ReadEach:
        assert list(offsets) == sorted(offsets)
        self.reads.append(0)
        for offset in offsets:
            if offset in self._damaged:
                raise ClusterError(ClusterTrouble.UNREADABLE, "damaged")
            record = None if offset in self._gone else self.held[offset]
            self.reads[-1] += record_size(record)
            yield offset, record

    def parts(self, segment_bytes: int, order: Sequence[int]) -> list[list[StoredEntry]]:
        """Return the parts of pointers that are due in this order of offsets."""
        pointed = PointedRecords(self, segment_bytes)
        return list(pointed.parts([(due_ms, offset, None) for due_ms, offset in enumerate(order)]))


@given(st.lists(st.sampled_from([0, 10, 200, 900, 1_200]), max_size=300), st.randoms(use_true_random=False))
def test_pointed_records_are_cut_into_parts_of_a_segment(sizes: list[int], rng: Random) -> None:
    order = rng.sample(range(len(sizes)), len(sizes))
    delay_topic = DelayTopic(sizes, damaged=order[3:5], gone=order[7:8])
    parts = delay_topic.parts(1_000, order)
    assert [entry[:2] for part in parts for entry in part] == list(enumerate(order))
    unread = {*order[3:5], *order[7:8]}
    for part in parts:
        assert len(part) == 1 or sum(record_size(record) for _, _, record in part) <= 1_000
        for _, offset, record in part:
            fits = offset not in unread and record_size(delay_topic.held[offset]) <= 1_000
            assert record == (delay_topic.held[offset] if fits else None)
    assert max(delay_topic.reads, default=0) <= 2_000 + 1_224, "a read holds two segments and a record"


def test_pointed_records_of_any_size_are_read_in_few_steps() -> None:
    small = DelayTopic([1_000] * 20_000)
    assert len(small.parts(700_000, range(20_000))) == 30
    assert len(small.reads) < 40
    large = DelayTopic([600_000] * 100)
    assert len(large.parts(700_000, range(100))) == 100
    assert sum(large.reads) < 1.1 * 100 * 600_000


def test_a_cluster_that_does_not_answer_ends_the_read() -> None:
    class Silent(DelayTopic):
        def records(self, offsets: Sequence[int]) -> ReadEach:
            yield offsets[0], None
            raise ClusterError(ClusterTrouble.UNANSWERED, "no answer")

    with pytest.raises(ClusterError):
        Silent([10]).parts(100, [0])

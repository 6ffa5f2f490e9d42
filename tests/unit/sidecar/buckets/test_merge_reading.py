"""What a merge asks for, and when: some of each source before it is needed, and no more than that."""

from concurrent.futures import CancelledError, Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.bucket import Manifest
from index.progress import BEFORE_ALL, Position
from index.record import Record
from index.run import ListRun
from sidecar.buckets.merge_reading import MergedRun, SourceAhead, StoredSegments
from snapshots.rows import RowPacker
from tests.support.manifests import manifest

RUN_BYTES = 500
PACKER = RowPacker()


class Reads:
    """Holds segment ``n`` under key ``n``, and gives each when it is ``answered``."""

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

    def ask_pages(self, manifest: Manifest, numbers: range) -> Future[list[bytes]]:
        raise NotImplementedError

    def runs(self) -> list[range]:
        return [numbers for numbers, _ in self.asked]

    def asked_bytes(self, numbers: range) -> int:
        return sum(self.source.segments[number].size_bytes for number in numbers)


def segments(*sizes: int) -> Manifest:
    """Of so many entries each, at 100 bytes an entry; due time and offset of entry n are n."""
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
    whole = [ref for ref in reads.source.segments if ref.last > watermark]
    expected = list(range(whole[0].first.due_ms, sum(sizes))) if whole else []
    found: list[int] = []
    for segment in SourceAhead(reads, reads.source, watermark, PACKER, RUN_BYTES):
        found += dues_ms(segment)
        at_hand = [place for place, run in enumerate(reads.runs()) if _holds(reads.source, run, found[-1])]
        assert len(reads.asked) <= at_hand[0] + 2
    assert found == expected
    assert [number for run in reads.runs() for number in run] == list(range(len(sizes) - len(whole), len(sizes)))
    assert all(reads.asked_bytes(run) <= 500 or len(run) == 1 for run in reads.runs())


def _holds(source: Manifest, run: range, due_ms: int) -> bool:
    return source.segments[run[0]].first.due_ms <= due_ms <= source.segments[run[-1]].last.due_ms

"""PendingIndex against a plain sorted list, after every random operation."""

import random
from bisect import insort

import pytest

from index.pending.pending import CHUNK_BITS, Entry, PendingIndex
from tests.support.runs import Unordered

CHUNK_MS = 1 << CHUNK_BITS


class Twin:
    """Does the same operations on the index and on the naive model: one sorted list."""

    def __init__(self) -> None:
        self.index: PendingIndex[Unordered] = PendingIndex()
        self.naive: list[tuple[int, int]] = []
        self.next_offset = 0

    def add(self, due_ms: int) -> None:
        entry = (due_ms, self.next_offset, Unordered())
        self.next_offset += 1
        self.index.add([entry])
        insort(self.naive, entry[:2])

    def take(self, now_ms: int, max_entries: int) -> list[Entry[Unordered]]:
        taken = self.index.take_due(now_ms, max_entries)
        expected = [place for place in self.naive if place[0] <= now_ms][:max_entries]
        assert [entry[:2] for entry in taken] == expected
        del self.naive[: len(taken)]
        return taken

    def put_back(self, entries: list[Entry[Unordered]]) -> None:
        self.index.put_back(entries)
        for entry in entries:
            insort(self.naive, entry[:2])

    def check(self) -> None:
        self.index.check()
        assert len(self.index) == len(self.naive)
        assert self.index.next_due_ms() == (self.naive[0][0] if self.naive else None)
        assert self.index.furthest_due_ms() == (self.naive[-1][0] if self.naive else None)


@pytest.mark.parametrize("seed", range(60))
def test_random_operations_against_a_sorted_list(seed: int) -> None:
    rng = random.Random(seed)
    # Due times range from all in one chunk, with many equal, to one entry in each chunk.
    span_ms = rng.choice([1, 20, CHUNK_MS, 10 * CHUNK_MS, 10_000 * CHUNK_MS])
    twin = Twin()
    taken: list[Entry[Unordered]] = []
    for _ in range(150):
        match rng.choice(["add", "add", "add", "take", "put_back"]):
            case "add":
                for _ in range(rng.randint(1, 4)):
                    twin.add(rng.randint(0, span_ms))
            case "take":
                taken = twin.take(rng.randint(-1, span_ms), rng.choice([0, 1, 3, 1_000]))
            case "put_back":
                # A batch that is cut by its bytes puts back its end; an aborted batch puts back everything.
                twin.put_back(taken[rng.randint(0, len(taken)) :])
                taken = []
        twin.check()
    while twin.naive:
        twin.take(span_ms, 7)
        twin.check()


def test_an_empty_index_has_nothing_due() -> None:
    index: PendingIndex[None] = PendingIndex()
    assert index.take_due(2**63, 10) == []
    assert index.next_due_ms() is None
    assert index.furthest_due_ms() is None
    index.check()


@pytest.mark.parametrize("due_ms", [0, CHUNK_MS - 1, CHUNK_MS, 2**63 - 1])
def test_due_to_the_millisecond(due_ms: int) -> None:
    index: PendingIndex[str] = PendingIndex()
    index.add([(due_ms, 5, "payload")])
    assert index.take_due(due_ms - 1, 10) == []
    assert index.take_due(due_ms, 10) == [(due_ms, 5, "payload")]


def test_added_before_what_is_left_of_the_chunk_being_released() -> None:
    index: PendingIndex[None] = PendingIndex()
    for offset, due_ms in enumerate([10, 30, 50]):
        index.add([(due_ms, offset, None)])
    assert index.take_due(10, 1) == [(10, 0, None)]
    index.add([(20, 3, None)])
    index.add([(60, 4, None)])
    index.check()
    assert [due_ms for due_ms, _, _ in index.take_due(100, 10)] == [20, 30, 50, 60]


def test_check_finds_an_entry_in_the_wrong_chunk() -> None:
    index: PendingIndex[None] = PendingIndex()
    index.add([(10, 0, None)])
    index.put_chunks([(1, [(10, 1, None)])])
    with pytest.raises(AssertionError, match="stranger"):
        index.check()


def test_entries_due_until_a_moment_are_counted_by_chunk() -> None:
    index: PendingIndex[None] = PendingIndex()
    step_ms = 1 << CHUNK_BITS
    index.add([(due_ms, due_ms, None) for due_ms in (0, step_ms - 1, step_ms, 3 * step_ms, 9 * step_ms)])
    assert [index.count_until(due_ms) for due_ms in (0, step_ms, 2 * step_ms, 3 * step_ms, 99 * step_ms)] == [
        2,
        3,
        3,
        4,
        5,
    ]


def test_everything_is_taken_at_once() -> None:
    index: PendingIndex[None] = PendingIndex()
    entries = [(due_ms * 1_000, due_ms, None) for due_ms in range(20)]
    index.add(entries)
    assert sorted(entry for run in index.take_all() for entry in run) == entries
    assert len(index) == 0
    index.check()
    index.add(entries[:3])
    index.check()
    assert index.take_due(5_000, 10) == entries[:3]

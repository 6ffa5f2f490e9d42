"""Waiting, checked against a plain sorted list after every random operation."""

import random

import pytest

from index.pending.pending import NO_LIMIT, Entry
from index.pending.run import ListRun, Place, Run, Runs, behind
from index.pending.waiting import Waiting
from tests.support.runs import Unordered


def runs(few: int, enough: int = 1) -> Runs[Unordered]:
    return Runs(lambda entries: (entries, ()), ListRun, few, enough)


def places(entries: Run[Unordered] | list[Entry[Unordered]]) -> list[Place]:
    return [(due_ms, offset) for due_ms, offset, _ in entries]


class Twin:
    """Does the same operations on the runs and on the naive model: one sorted list."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        # Due times range from all the same, over ascending with the offsets, to random.
        self.spread = rng.choice([0, 10, 1_000])
        self.step = rng.choice([0, 0, 20])
        self.waiting: Waiting[Unordered] = Waiting(runs(rng.choice([1, 5, 40]), rng.choice([1, 10, 100])))
        self.naive: list[Place] = []
        self.next_offset = 0

    def some(self) -> list[Entry[Unordered]]:
        entries: list[Entry[Unordered]] = []
        for _ in range(self.rng.randint(1, 12)):
            due_ms = self.step * self.next_offset + self.rng.randint(0, self.spread)
            entries.append((due_ms, self.next_offset, Unordered()))
            self.next_offset += 1
        return entries

    def somewhere(self) -> Place:
        return self.rng.choice([*self.naive, (0, 0), (self.rng.randint(0, 1_000), self.rng.randint(0, 50))])

    def add(self) -> None:
        entries = self.some()
        self.waiting.add(entries)
        self.naive = sorted([*self.naive, *places(entries)])

    def add_run(self) -> None:
        entries = sorted(self.some(), key=lambda entry: entry[:2])
        self.waiting.add_run(ListRun(entries))
        self.naive = sorted([*self.naive, *places(entries)])

    def take_due(self) -> None:
        (now_ms, _), most = self.somewhere(), self.rng.choice([0, 1, 7, 100])
        before = self.rng.choice([NO_LIMIT, self.somewhere()])
        expected = [place for place in self.naive if place[0] <= now_ms and place < before][:most]
        assert places(self.waiting.take_due(now_ms, most, before)) == expected
        del self.naive[: len(expected)]

    def put_back(self) -> None:
        taken = self.waiting.take_due(self.somewhere()[0], 20)
        kept = self.rng.randint(0, len(taken))
        self.waiting.put_back(taken[kept:])
        del self.naive[:kept]

    def take_before(self) -> None:
        end = self.somewhere()
        expected = [place for place in self.naive if place < end]
        taken = self.waiting.take_before(end)
        assert (places(taken) if taken is not None else []) == expected
        del self.naive[: len(expected)]

    def discard(self) -> None:
        chosen = {self.somewhere() for _ in range(self.rng.choice([0, 1, 5]))}
        assert sorted(places(self.waiting.discard([*chosen]))) == sorted(chosen.intersection(self.naive))
        self.naive = [each for each in self.naive if each not in chosen]

    def pieces(self) -> None:
        most = self.rng.choice([1, 4, 100])
        pieces = [*self.waiting.pieces(most)]
        assert all(0 < len(piece) <= most for piece in pieces)
        assert [place for piece in pieces for place in places(piece)] == self.naive

    def pieces_while_it_is_released(self) -> None:
        found: list[Place] = []
        left: set[Place] = set()
        for piece in self.waiting.pieces(5):
            found += places(piece)
            due_ms = self.rng.choice(found)[0]
            taken = self.waiting.take_due(due_ms + 5, 3)
            # An entry that is taken and does not leave is found anywhere.
            left.update(places(taken[:1]))
            self.waiting.put_back(taken[1:])
        assert found == sorted(set(found)), "in another order, or twice"
        assert {*self.naive} - left <= {*found} <= {*self.naive}
        self.naive = [place for place in self.naive if place not in left]

    def check(self) -> None:
        self.waiting.check()
        assert len(self.waiting) == len(self.naive)
        assert self.waiting.first() == (self.naive[0] if self.naive else None)
        assert self.waiting.next_due_ms() == (self.naive[0][0] if self.naive else None)
        assert self.waiting.furthest_due_ms() == (self.naive[-1][0] if self.naive else None)
        due_ms, _ = self.somewhere()
        assert self.waiting.count_until(due_ms) == sum(place[0] <= due_ms for place in self.naive)
        assert sorted(offset for run in self.waiting.runs() for offset in run.offsets) == sorted(
            offset for _, offset in self.naive
        )


OFTEN = (Twin.add, Twin.add, Twin.add, Twin.add)
OTHERS = (
    Twin.add_run,
    Twin.take_due,
    Twin.put_back,
    Twin.take_before,
    Twin.discard,
    Twin.pieces,
    Twin.pieces_while_it_is_released,
)


@pytest.mark.parametrize("seed", range(80))
def test_random_operations_against_a_sorted_list(seed: int) -> None:
    rng = random.Random(seed)
    twin = Twin(rng)
    for _ in range(80):
        rng.choice([*OFTEN, *OTHERS])(twin)
        twin.check()
    left = twin.waiting.take_all()
    assert sorted(place for run in left for place in places(run)) == twin.naive
    twin.naive = []
    twin.check()


def test_a_piece_is_worth_its_while_however_entries_lie() -> None:
    """Each piece costs a look at every run. Neither a fixed delay nor scattered times may make too many pieces."""
    rng = random.Random(3)
    for due_ms in (lambda offset: 10 * offset, lambda _: rng.randint(0, 1_000_000), lambda _: 7):
        waiting: Waiting[Unordered] = Waiting(runs(100))
        waiting.add([])
        for first in range(0, 4_000, 100):
            waiting.add([(due_ms(offset), offset, Unordered()) for offset in range(first, first + 100)])
        assert len(waiting.runs()) == 40
        assert len([*waiting.pieces(500)]) <= 40


def test_what_is_left_of_a_limit_is_taken_one_by_one() -> None:
    """Most runs have no share in a limit that is lower than the number of runs."""
    waiting: Waiting[Unordered] = Waiting(runs(1))
    for offset in range(20):
        waiting.add([(100 - offset, offset, Unordered())])
    assert places(waiting.take_due(1_000, 3)) == [(81, 19), (82, 18), (83, 17)]
    assert waiting.first() == (84, 16)


def test_columns_are_made_when_there_is_enough_for_them() -> None:
    made: list[int] = []

    def remembered(entries: list[Entry[Unordered]]) -> ListRun[Unordered]:
        made.append(len(entries))
        return ListRun(entries)

    waiting: Waiting[Unordered] = Waiting(Runs(lambda entries: (entries, ()), remembered, few=3))
    for offset in range(7):
        waiting.add([(offset, offset, Unordered())])
    assert made == [3, 3]
    assert [place for piece in waiting.pieces(100) for place in places(piece)] == [(n, n) for n in range(7)]
    assert made == [3, 3, 1]


def test_young_runs_become_one_when_they_have_enough_together() -> None:
    waiting: Waiting[Unordered] = Waiting(runs(few=3, enough=9))
    lengths = []
    for offset in range(21):
        waiting.add([(100 - offset, offset, Unordered())])
        waiting.check()
        lengths.append([len(run) for run in waiting.runs()])
    assert lengths[7] == [3, 3, 2]
    assert lengths[8] == [9]
    assert lengths[20] == [9, 9, 3]


def test_what_lies_before_a_place_is_one_run() -> None:
    waiting: Waiting[Unordered] = Waiting(runs(2))
    waiting.add([(10, 1, Unordered()), (30, 2, Unordered())])
    waiting.add([(20, 3, Unordered()), (10, 4, Unordered())])
    before = waiting.take_before(behind((10, 4)))
    assert before is not None
    assert places(before) == [(10, 1), (10, 4)]
    assert waiting.take_before((20, 3)) is None

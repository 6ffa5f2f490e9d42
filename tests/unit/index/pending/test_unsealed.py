"""The entries due soon and the entries that wait for long, taken as one in release order."""

import random

import pytest

from index.pending import unsealed as unsealed_module
from index.pending.run import Place
from index.pending.unsealed import PIECE_ENTRIES, Unsealed
from tests.support.manifests import entries
from tests.support.runs import SMALL_RUNS


def indexed(rng: random.Random, count: int, *, first: int = 0, spread: int = 2_000) -> Unsealed[str]:
    unsealed: Unsealed[str] = Unsealed(first, SMALL_RUNS)
    for start in range(first, first + count, 7):
        places = [(rng.randint(0, spread), offset) for offset in range(start, min(start + 7, first + count))]
        unsealed.add(entries(*places))
    unsealed.check()
    return unsealed


def everything(unsealed: Unsealed[str]) -> list[Place]:
    return [entry[:2] for piece in unsealed.pieces() for entry in piece]


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_all_there_is_in_release_order(seed: int) -> None:
    rng = random.Random(seed)
    unsealed = indexed(rng, rng.choice([0, 1, 2, 50]), spread=rng.choice([0, 10, 5_000]))
    found = everything(unsealed)
    assert len(found) == len(unsealed) == len(set(found))
    assert found == sorted(found)


def test_pieces_of_many_are_not_too_large() -> None:
    unsealed = indexed(random.Random(1), 4 * PIECE_ENTRIES, spread=1_000_000)
    sizes = [len(piece) for piece in unsealed.pieces()]
    assert sum(sizes) == 4 * PIECE_ENTRIES
    # A piece of the waiting entries, and as much and a chunk of the entries due soon.
    assert max(sizes) <= 2 * PIECE_ENTRIES + 10


@pytest.mark.parametrize("seed", range(40))
def test_what_is_taken_between_pieces_and_put_back_is_not_missed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is cut by its bytes puts back its end while a bucket is being sealed."""
    rng = random.Random(seed)
    monkeypatch.setattr(unsealed_module, "PIECE_ENTRIES", 4)
    unsealed = indexed(rng, 120, spread=rng.choice([10, 600]))
    pending = set(everything(unsealed))
    left: set[Place] = set()
    found: list[Place] = []
    for piece in unsealed.pieces():
        found += [entry[:2] for entry in piece]
        now_ms = found[-1][0] + rng.randint(0, 300)
        taken = sorted([*unsealed.soon.take_due(now_ms, 5), *unsealed.waiting.take_due(now_ms, 5)])
        leaving = rng.randint(0, len(taken))
        left |= {entry[:2] for entry in taken[:leaving]}
        unsealed.put_back(taken[leaving:])
    assert len(found) == len(set(found))
    assert pending - left <= set(found) <= pending


def test_entries_are_discarded_wherever_they_lie() -> None:
    unsealed: Unsealed[str] = Unsealed(0, SMALL_RUNS)
    unsealed.add(entries(*((100 - offset, offset) for offset in range(10))))
    assert len(unsealed.soon) == 4
    assert len(unsealed.waiting) == 6
    places = [(100 - offset, offset) for offset in (3, 4, 9, 1)]
    assert sorted(unsealed.discard([*places, (7, 7)])) == sorted(entries(*places))
    assert unsealed.discard(places) == []
    assert sorted(offset for _, offset in everything(unsealed)) == [0, 2, 5, 6, 7, 8]
    # The entries due soon count as a whole chunk: offsets 0 and 6.
    assert unsealed.count_until(97) == 5


def test_what_was_frozen_takes_over_what_came_after_it() -> None:
    rng = random.Random(5)
    frozen, newer = indexed(rng, 50), indexed(rng, 30, first=50)
    together = sorted(everything(frozen) + everything(newer))
    frozen.take_over(newer)
    frozen.check()
    assert everything(frozen) == together

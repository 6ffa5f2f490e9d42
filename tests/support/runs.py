"""Any kind of run, compared with the list of its entries; and many small runs for tests."""

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from index.pending.pending import Entry
from index.pending.run import ListRun, Run, Runs

P = TypeVar("P")

FAR: Final = (1 << 62, 0)


class Unordered:
    """A payload that must never be compared."""

    def __lt__(self, other: object) -> bool:
        raise AssertionError("payloads were compared")

    __gt__ = __le__ = __ge__ = __lt__


def _waiting_of(entries: Sequence[Entry[Any]]) -> tuple[Sequence[Entry[Any]], Sequence[Entry[Any]]]:
    return [each for each in entries if each[1] % 3], [each for each in entries if not each[1] % 3]


SMALL_RUNS: Final[Runs[Any]] = Runs(_waiting_of, ListRun, few=2, enough=5)
"""Two of three entries wait, in young runs of two or more, and older ones of five or more."""


def some_entries(rng: random.Random, count: int, payload: Callable[[int], P], spread: int) -> list[Entry[P]]:
    """Return entries in release order, some of them due at the same time."""
    offsets = sorted(rng.sample(range(5 * count), count))
    return sorted(((rng.randint(0, spread), offset, payload(offset)) for offset in offsets), key=lambda each: each[:2])


def compare(rng: random.Random, entries: list[Entry[P]], make: Callable[[list[Entry[P]]], Run[P]]) -> None:
    """Do random operations on a run, and on the list of its entries, and compare both."""
    run, naive = make([*entries]), [*entries]
    for _ in range(40):
        places = [each[:2] for each in naive]
        somewhere = rng.choice([*places, FAR, (rng.randint(0, 50), rng.randint(0, 50))])
        start = rng.randint(0, len(naive))
        stop = rng.randint(start, len(naive))
        match rng.choice(["take", "slice", "discard", "count", "merge"]):
            case "take":
                count = rng.choice([0, 0, 1, start])
                assert run.take(count) == naive[:count]
                del naive[:count]
            case "slice":
                part = run.slice(start, stop)
                part.check()
                assert list(part) == naive[start:stop]
                part.take(len(part))
            case "discard":
                chosen = {somewhere, *rng.sample(places, min(len(places), rng.choice([0, 1, 4])))}
                assert run.discard([*chosen]) == [each for each in naive if each[:2] in chosen]
                naive = [each for each in naive if each[:2] not in chosen]
            case "count":
                assert run.count_before(somewhere) == bisect_left(places, somewhere)
            case "merge":
                parts: list[list[Entry[P]]] = [[], [], []]
                for each in naive:
                    rng.choice(parts).append(each)
                rng.shuffle(parts)
                one, *others = [make(part) for part in parts if part] or [run]
                run = one.merged_with(others)
                assert all(len(other) for other in others), "what was merged is no longer what it was"
        run.check()
        assert list(run) == naive
        assert len(run) == len(naive)
        assert list(run.offsets) == [offset for _, offset, _ in naive]
        assert [run.place(number) for number in range(len(run))] == [each[:2] for each in naive]

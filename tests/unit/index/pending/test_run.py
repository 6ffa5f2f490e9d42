"""ListRun against a plain list, after every random operation."""

import random
from collections.abc import Iterator

import pytest

from index.pending.pending import Entry
from index.pending.run import NOTHING_WAITS, ListRun, Run, behind, merged
from tests.support.runs import Unordered, compare, some_entries


@pytest.mark.parametrize("seed", range(60))
def test_random_operations_against_a_list(seed: int) -> None:
    rng = random.Random(seed)
    entries = some_entries(rng, rng.randint(0, 30), lambda _: Unordered(), rng.choice([0, 5, 1_000]))
    compare(rng, entries, ListRun)


def test_what_is_added_goes_where_it_is_due_and_behind_what_is_due_then() -> None:
    run: ListRun[str] = ListRun([(10, 1, "a"), (20, 2, "b")])
    run.add([(20, 3, "c"), (5, 4, "d"), (10, 5, "e")])
    run.check()
    assert [offset for _, offset, _ in run] == [4, 1, 5, 2, 3]


def test_a_slice_shares_nothing_with_its_run() -> None:
    run: ListRun[str] = ListRun([(10, 1, "a"), (20, 2, "b")])
    part = run.slice(0, 2)
    run.take(1)
    assert list(part) == [(10, 1, "a"), (20, 2, "b")]


@pytest.mark.parametrize("broken", [[(20, 1, ""), (10, 2, "")], [(10, 2, ""), (10, 1, "")], [(10, 1, ""), (10, 1, "")]])
def test_a_run_that_is_not_in_order_does_not_pass_its_check(broken: list[tuple[int, int, str]]) -> None:
    with pytest.raises(AssertionError):
        ListRun(broken).check()


def test_nothing_lies_between_a_place_and_what_is_behind_it() -> None:
    assert ListRun([(10, 1, ""), (10, 2, ""), (11, 0, "")]).count_before(behind((10, 1))) == 1


def test_nothing_waits_where_nobody_knows_how_to_keep_it() -> None:
    entries = [(10, 1, ""), (20, 2, "")]
    assert NOTHING_WAITS.waiting(entries) == ((), entries)


@pytest.mark.parametrize("seed", range(60))
def test_sources_are_merged_into_runs_that_follow_each_other(seed: int) -> None:
    rng = random.Random(seed)
    entries = some_entries(rng, rng.randint(0, 60), lambda _: Unordered(), rng.choice([0, 5, 1_000]))
    sources: list[list[Run[Unordered]]] = [[] for _ in range(rng.randint(1, 4))]
    parts: list[list[Entry[Unordered]]] = [[] for _ in sources]
    for entry in entries:
        rng.choice(parts).append(entry)
    for source, part in zip(sources, parts, strict=True):
        while part:
            count = rng.choice([0, 1, 3, 20])
            source.append(ListRun(part[:count]))
            del part[:count]
    runs = list(merged(sources))
    assert all(len(run) for run in runs)
    assert [entry for run in runs for entry in run] == entries


def test_of_each_source_no_more_is_taken_than_what_comes_next() -> None:
    taken: list[str] = []

    def source(name: str, *offsets: int) -> Iterator[Run[str]]:
        for offset in offsets:
            taken.append(name)
            yield ListRun([(offset, offset, name)])

    runs = merged([source("a", 1, 2, 3), source("b", 10, 11)])
    assert [*next(runs)] == [(1, 1, "a")]
    assert taken == ["a", "b"]
    assert [*next(runs)] == [(2, 2, "a")]
    assert taken == ["a", "b", "a"]
    assert [offset for run in runs for _, offset, _ in run] == [3, 10, 11]

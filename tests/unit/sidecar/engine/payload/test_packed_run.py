"""Packed records as columns, checked against the list of them after every random operation."""

import random

import pytest

from index.pending.pending import Entry
from index.pending.run import ListRun, Run
from sidecar.engine.payload.packed_run import PackedRun, packed_run, packed_runs, resident_of, routes_in
from sidecar.engine.payload.records import Payload, packed, resident_bytes, routes_of
from tests.support.packed import ONE, OTHER, kept
from tests.support.payloads import loose, record_at, tight
from tests.support.runs import compare, some_entries


@pytest.mark.parametrize("seed", range(60))
def test_random_operations_against_a_list(seed: int) -> None:
    rng = random.Random(seed)
    entries = some_entries(rng, rng.randint(0, 30), kept(ONE, rng), rng.choice([0, 5, 1_000]))
    compare(rng, entries, packed_runs().made)


def test_what_is_made_of_records_that_go_together_are_columns() -> None:
    entries = some_entries(random.Random(1), 20, kept(ONE, random.Random(2)), 100)
    run = packed_runs().made(entries)
    assert isinstance(run, PackedRun)
    assert isinstance(run.merged_with([packed_runs().made([(1_000, 1_000, entries[0][2])])]), PackedRun)


def test_the_same_targets_are_one_object() -> None:
    """Each payload has an object of its own for its targets; columns with all of these objects would save little."""
    payloads = [packed(1, b"row", ONE, route.decode()) for route in [b"orders"] * 3]
    run = packed_runs().made([(1, offset, payload) for offset, payload in enumerate(payloads)])
    assert len({id(route) for _, _, payload in run for route in [routes_of([(0, 0, payload)])[0]]}) == 1


def test_records_that_do_not_go_together_stay_a_list() -> None:
    rng = random.Random(1)
    one, other = ([(due_ms, offset, kept(packer, rng)(1))] for due_ms, offset, packer in ((5, 1, ONE), (4, 2, OTHER)))
    run: Run[Payload] = packed_runs().made(one)
    together = run.merged_with([packed_runs().made(other)])
    assert isinstance(together, ListRun)
    assert list(together) == [*other, *one]
    assert packed_run(together) is None
    assert isinstance(packed_runs().made([*other, *one]), ListRun)


def test_a_list_of_records_that_go_together_can_be_made_columns() -> None:
    entries = some_entries(random.Random(1), 5, kept(ONE, random.Random(2)), 100)
    columns = packed_run(ListRun(entries))
    assert columns is not None
    assert list(columns) == entries


def test_packed_records_wait_and_others_do_not() -> None:
    rng = random.Random(1)
    waiting: list[Entry[Payload]] = [(1, 1, kept(ONE, rng)(1)), (4, 4, kept(ONE, rng)(4))]
    others: list[Entry[Payload]] = [(2, 2, loose(record_at(2))), (3, 3, loose(record_at(3)))]
    assert packed_runs().waiting(sorted(waiting + others, key=lambda entry: entry[1])) == (waiting, others)
    assert packed_runs().waiting(waiting) == (waiting, ())
    assert packed_runs().waiting(others) == ((), others)


def test_columns_count_for_what_was_counted_when_they_were_packed() -> None:
    entries = some_entries(random.Random(1), 20, kept(ONE, random.Random(2)), 100)
    run = packed_runs().made([*entries])
    assert resident_of([run, ListRun(entries[:3])]) == resident_bytes(entries) + resident_bytes(entries[:3])
    run.take(7)
    assert run.discard([run.place(2), (0, 1)]) == entries[9:10]
    assert resident_of([run]) == resident_bytes(run) == resident_bytes([*entries[7:9], *entries[10:]])


def test_targets_of_columns_and_of_lists() -> None:
    entries = some_entries(random.Random(1), 20, kept(ONE, random.Random(2)), 100)
    assert list(routes_in(packed_runs().made([*entries]))) == routes_in(entries) == routes_of(entries)


def test_a_row_comes_back_as_the_record_it_was_made_of() -> None:
    payload = tight(record_at(5), ONE)
    assert list(packed_runs().made([(5, 5, payload)])) == [(5, 5, payload)]

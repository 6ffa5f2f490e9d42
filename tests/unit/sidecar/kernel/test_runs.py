"""Columns that the kernel sorts: in the same order as Python's, or refused as not belonging together."""

import random
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.buckets.target_counts import Route
from sidecar.engine.payload.packed_run import packed_runs
from snapshots.segments.row_columns import RowColumns, in_order
from tests.support.kernel import native_kernel
from tests.support.packed import ONE, kept
from tests.support.runs import compare, some_entries

NATIVE = native_kernel().codec.in_order

Row = tuple[int, int, int, Route, bytes]

TWO: list[Row] = [(5, 1, 7, "orders", b"one"), (4, 2, 8, "bills", b"two")]

_dues_ms = st.sampled_from([-1, 0, 1, 2**62, 2**63 - 1]) | st.integers(0, 9)
_offsets = st.sampled_from([0, 1, 2**62, 2**63, 2**64 - 1]) | st.integers(0, 99)
_routes: st.SearchStrategy[Route] = st.sampled_from(["orders", "bills", ("orders", "bills")])
_rows = st.lists(st.tuples(_dues_ms, _offsets, st.integers(-9, 9), _routes, st.binary(max_size=9)), min_size=1)


def _columns(rows: list[Row]) -> RowColumns:
    dues_ms, offsets, timestamps_ms, routes, contents = zip(*rows, strict=True)
    sizes = array("i", map(len, contents))
    return array("q", dues_ms), array("Q", offsets), array("q", timestamps_ms), [*routes], sizes, b"".join(contents)


@given(_rows)
def test_it_orders_whatever_comes_as_python_does(rows: list[Row]) -> None:
    columns = _columns([*{row[:2]: row for row in rows}.values()])
    assert NATIVE(columns) == in_order(columns)


@pytest.mark.parametrize("runs", [1, 2, 3, 40])
def test_it_merges_runs_as_python_does(runs: int) -> None:
    rng = random.Random(runs)
    rows: list[Row] = []
    for run in range(runs):
        places = sorted((rng.randrange(10_000), run * 1_000 + number) for number in range(rng.randint(1, 500)))
        rows += [
            (*place, rng.randrange(99), rng.choice(["a", "b"]), rng.randbytes(rng.randrange(30))) for place in places
        ]
    columns = _columns(rows)
    assert NATIVE(columns) == in_order(columns)


@pytest.mark.parametrize("seed", range(30))
def test_random_operations_on_runs_that_it_puts_in_order(seed: int) -> None:
    rng = random.Random(seed)
    entries = some_entries(rng, rng.randint(0, 30), kept(ONE, rng), rng.choice([0, 5, 1_000]))
    compare(rng, entries, packed_runs(NATIVE).made)


@pytest.mark.parametrize("column", range(6))
def test_columns_that_do_not_belong_together(column: int) -> None:
    columns: list[Any] = [*_columns(TWO)]
    columns[column] = columns[column][:-1]
    with pytest.raises(ValueError, match=r"columns of different lengths|bytes of rows"):
        NATIVE(tuple(columns))


@pytest.mark.parametrize("sizes", [[-1, 7], [7, -1], [3, 2], [3, 4], [2**31 - 1, 2**31 - 1]])
def test_sizes_that_are_not_those_of_the_rows(sizes: list[int]) -> None:
    dues_ms, offsets, timestamps_ms, routes, _, rows = _columns(
        [(5, 1, 7, "orders", b"one"), (4, 2, 8, "bills", b"two")]
    )
    with pytest.raises(ValueError, match="bytes of rows"):
        NATIVE((dues_ms, offsets, timestamps_ms, routes, array("i", sizes), rows))


def test_what_is_no_column() -> None:
    dues_ms, offsets, timestamps_ms, routes, sizes, rows = _columns([(5, 1, 7, "orders", b"one")])
    with pytest.raises(ValueError, match="of different lengths, or of none"):
        NATIVE((array("q"), array("Q"), array("q"), [], array("i"), b""))
    with pytest.raises((TypeError, ValueError)):
        NATIVE((array("d", [1.0]), offsets, timestamps_ms, routes, sizes, rows))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        NATIVE((dues_ms, offsets, timestamps_ms, ("orders",), sizes, rows))  # type: ignore[arg-type]

"""Rows and their numbers as columns, put in release order before they are joined into segments.

Rows that are objects of their own are picked and joined by their numbers. A caller that has the rows in one piece, and
faster functions, hands these in (:class:`snapshots.segments.codec.SegmentCodec`).
"""

from array import array
from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any, TypeAlias

from index.buckets.target_counts import Route

RowColumns: TypeAlias = "tuple[array[int], array[int], array[int], list[Route], array[int], bytes]"
"""Due times, offsets (``Q``, as bitmaps want them), timestamps, targets, sizes of rows, and the rows in one piece."""

InOrder: TypeAlias = Callable[[RowColumns], RowColumns]
"""Puts columns in release order, as :func:`in_order`."""


def in_order(columns: RowColumns) -> RowColumns:
    """Return columns in the order of (due, offset), which are some runs in that order, one after the other.

    ValueError where they are not of one length.

    >>> numbers = array("q", [2_000, 1_000]), array("Q", [5, 9]), array("q", [7, 8])
    >>> dues_ms, offsets, *_, rows = in_order((*numbers, ["a", "b"], array("i", [3, 2]), b"onetw"))
    >>> list(dues_ms), list(offsets), rows
    ([1000, 2000], [9, 5], b'twone')
    """
    dues_ms, offsets, timestamps_ms, routes, sizes, rows = columns
    places = [*zip(dues_ms, offsets, timestamps_ms, routes, sizes, strict=True)]
    # Timsort merges them; no two places are equal, so nothing else of a row is compared.
    order = sorted(range(len(places)), key=places.__getitem__)
    pieces = dues_ms, offsets, timestamps_ms, routes, sizes, cut_rows(rows, sizes)
    dues, at, written, to, lengths, contents = (_picked(each, order) for each in pieces)
    return array("q", dues), array("Q", at), array("q", written), [*to], array("i", lengths), b"".join(contents)


def cut_rows(rows: bytes, sizes: Iterable[int]) -> list[bytes]:
    """Each row as an object of its own."""
    return [rows[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]


def _picked(column: Any, order: list[int]) -> tuple[Any, ...]:
    return itemgetter(*order)(column) if len(order) > 1 else tuple(column)

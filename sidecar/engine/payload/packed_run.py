"""Keeps packed records as columns while they wait to be sealed, without an object for any of their parts.

A run takes some 40 bytes a record beside its row, in half a dozen pieces of memory that are given back as a whole when
the run is sealed. The rows lie one after the other, as they will in a segment. Runs are joined and put in order as
columns, by :func:`snapshots.segments.row_columns.in_order` or a faster function with the same result::

    due         │ q │ q │ q │
    offset      │ Q │ Q │ Q │        unsigned, as bitmaps want them
    timestamp   │ q │ q │ q │
    targets     │ · │ · │ · │        the same object wherever they are the same
    size        │ i │ i │ i │
    rows        │ ..... │ ... │ .........│
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise, repeat
from operator import lt
from typing import Self, cast

from index.buckets.target_counts import OTHERS, Route
from index.pending.pending import Entry
from index.pending.run import ListRun, Place, Run, Runs, numbers_of
from index.pending.run import in_order as entries_in_order
from sidecar.engine.payload.records import PACKED_OVERHEAD_BYTES, Packed, Payload, packed, resident_bytes, routes_of
from snapshots.segments.codec import SegmentCodec
from snapshots.segments.row_columns import InOrder, RowColumns, cut_rows, in_order
from snapshots.segments.rows import RowPacker, SegmentRows
from snapshots.segments.writing import COLUMN_BYTES, Encoded, joined


class PackedRun:
    """A run of packed records whose rows share a table of header names; its columns are to be read only."""

    __slots__ = ("_in_order", "_starts", "buffer", "dues_ms", "offsets", "packer", "routes", "sizes", "timestamps_ms")

    def __init__(
        self,
        packer: RowPacker,
        in_order: InOrder,
        dues_ms: "array[int]",
        offsets: "array[int]",
        timestamps_ms: "array[int]",
        routes: list[Route],
        sizes: "array[int]",
        buffer: bytes,
    ) -> None:
        self.packer = packer
        self._in_order = in_order
        self.dues_ms = dues_ms
        self.offsets = offsets
        self.timestamps_ms = timestamps_ms
        self.routes = routes
        self.sizes = sizes
        self.buffer = buffer
        self._starts: array[int] | None = None

    @classmethod
    def of(cls, entries: Iterable[Entry[Packed]], in_order: InOrder = in_order) -> Self:
        """Make a run of entries, which are in release order and of one packer."""
        dues_ms, offsets, payloads = zip(*entries, strict=True)
        timestamps_ms, _, rows, packers, routes = zip(*payloads, strict=True)
        # Each record has its own object for equal targets; one shared object per route saves an object for each record.
        known = {route: route for route in routes}
        return cls(
            packers[0],
            in_order,
            array("q", dues_ms),
            array("Q", offsets),
            array("q", timestamps_ms),
            [*map(known.__getitem__, routes)],
            array("i", map(len, rows)),
            b"".join(rows),
        )

    def __len__(self) -> int:
        return len(self.dues_ms)

    def __iter__(self) -> Iterator[Entry[Payload]]:
        payloads = map(packed, self.timestamps_ms, self.rows(), repeat(self.packer), self.routes)
        return zip(self.dues_ms, self.offsets, payloads, strict=True)

    def place(self, number: int) -> Place:
        """Return the (due_ms, offset) of an entry."""
        return self.dues_ms[number], self.offsets[number]

    def rows(self) -> list[bytes]:
        """Return the row of each entry."""
        return cut_rows(self.buffer, self.sizes)

    @property
    def resident_bytes(self) -> int:
        """Bytes that were counted as used for these records when they were packed."""
        return PACKED_OVERHEAD_BYTES * len(self) + len(self.buffer)

    @property
    def stored_sizes(self) -> list[int]:
        """About how many bytes each entry takes in an inline segment."""
        return [COLUMN_BYTES + size for size in self.sizes]

    def segment(self, codec: SegmentCodec) -> Encoded | None:
        """Join all rows into a segment; None where it would be too long."""
        numbers = self.dues_ms, self.offsets, self.timestamps_ms
        return joined(*numbers, self.sizes, self.buffer, self.packer.names, codec)

    def count_before(self, place: Place) -> int:
        """Count the entries before a (due_ms, offset)."""
        due_ms, offset = place
        start = bisect_left(self.dues_ms, due_ms)
        return bisect_left(self.offsets, offset, start, bisect_right(self.dues_ms, due_ms, start))

    def slice(self, start: int, stop: int) -> "PackedRun":
        """Return the entries [start, stop) as a run, empty where there are none."""
        start, stop = min(start, len(self)), min(stop, len(self))
        starts = self._starts_of_rows()
        return PackedRun(
            self.packer,
            self._in_order,
            self.dues_ms[start:stop],
            self.offsets[start:stop],
            self.timestamps_ms[start:stop],
            self.routes[start:stop],
            self.sizes[start:stop],
            self.buffer[starts[start] : starts[stop]],
        )

    def take(self, count: int) -> list[Entry[Payload]]:
        """Remove and return the first entries."""
        if not count:
            return []
        taken = [*self.slice(0, count)]
        end = self._starts_of_rows()[len(taken)]
        for column in (self.dues_ms, self.offsets, self.timestamps_ms, self.sizes, self.routes):
            del column[: len(taken)]
        self.buffer = self.buffer[end:]
        self._starts = None
        return taken

    def discard(self, places: Collection[Place]) -> list[Entry[Payload]]:
        """Remove and return the entries at these (due_ms, offset) that are there."""
        numbers = numbers_of(self, places)
        if not numbers:
            return []
        removed = [entry for at in numbers for entry in self.slice(at, at + 1)]
        kept = zip([0, *(at + 1 for at in numbers)], [*numbers, len(self)], strict=True)
        left = _in_a_row([self.slice(start, stop) for start, stop in kept])
        self.dues_ms, self.offsets, self.timestamps_ms, self.routes, self.sizes, self.buffer = left
        self._starts = None
        return removed

    def merged_with(self, others: Sequence[Run[Payload]]) -> Run[Payload]:
        """Return all entries as one run: columns where all runs are columns of one packer, else a list."""
        runs = [self]
        for other in others:
            if not isinstance(other, PackedRun) or other.packer is not self.packer:
                return ListRun(entries_in_order([self, *others]))
            runs.append(other)
        together = _in_a_row(runs)
        if any(one.place(len(one) - 1) >= two.place(0) for one, two in pairwise(runs)):
            together = self._in_order(together)
        return PackedRun(self.packer, self._in_order, *together)

    def check(self) -> None:
        """Assert every invariant; O(n)."""
        places = list(zip(self.dues_ms, self.offsets, strict=True))
        assert all(map(lt, places, places[1:]))
        assert len(self) == len(self.timestamps_ms) == len(self.routes) == len(self.sizes)
        assert sum(self.sizes) == len(self.buffer)
        assert self._starts is None or [*self._starts] == [*accumulate(self.sizes, initial=0)]

    def _starts_of_rows(self) -> "array[int]":
        """Return the start of each row, and the end of the last one.

        They are computed once and kept, since runs are cut often, and only from the time on that they are sealed.
        """
        if self._starts is None:
            self._starts = array("q", accumulate(self.sizes, initial=0))
        return self._starts


def _in_a_row(runs: Sequence[PackedRun]) -> RowColumns:
    """Return the columns of some runs one after the other, in the order given."""
    return (
        _joined("q", [run.dues_ms for run in runs]),
        _joined("Q", [run.offsets for run in runs]),
        _joined("q", [run.timestamps_ms for run in runs]),
        [route for run in runs for route in run.routes],
        _joined("i", [run.sizes for run in runs]),
        b"".join([run.buffer for run in runs]),
    )


def _joined(kind: str, columns: Iterable["array[int]"]) -> "array[int]":
    joined = array(kind)
    for column in columns:
        joined += column
    return joined


def packed_rows(rows: SegmentRows, packer: RowPacker, codec: SegmentCodec) -> PackedRun:
    """Make a run of the rows of a segment that were made with ``packer``; their targets are left unknown."""
    routes: list[Route] = [OTHERS] * len(rows.offsets)
    return PackedRun(packer, codec.in_order, *rows[:3], routes, rows.sizes, rows.body)


def packed_run(run: Run[Payload]) -> PackedRun | None:
    """Return the same entries as columns; None unless all are rows of one packer."""
    return run if isinstance(run, PackedRun) else _columns([*run])


def _columns(entries: list[Entry[Payload]], in_order: InOrder = in_order) -> PackedRun | None:
    packed_entries = cast("list[Entry[Packed]]", entries)
    if set(map(type, [payload for _, _, payload in entries])) != {Packed}:
        return None
    if len({payload.packer for _, _, payload in packed_entries}) > 1:
        return None
    return PackedRun.of(packed_entries, in_order)


def _waiting_of(entries: Sequence[Entry[Payload]]) -> tuple[Sequence[Entry[Payload]], Sequence[Entry[Payload]]]:
    kinds = set(map(type, [payload for _, _, payload in entries]))
    if Packed not in kinds:
        return (), entries
    if len(kinds) == 1:
        return entries, ()
    waiting = [entry for entry in entries if isinstance(entry[2], Packed)]
    return waiting, [entry for entry in entries if not isinstance(entry[2], Packed)]


def packed_runs(in_order: InOrder = in_order) -> Runs[Payload]:
    """Make the runs in which packed records wait as columns, since they wait for long."""
    return Runs(_waiting_of, lambda entries: _columns(entries, in_order) or ListRun(entries))


def resident_of(runs: Iterable[Run[Payload]]) -> int:
    """Bytes of payload that some runs hold in memory."""
    return sum([run.resident_bytes if isinstance(run, PackedRun) else resident_bytes(run) for run in runs])


def routes_in(run: Run[Payload] | Sequence[Entry[Payload]]) -> Sequence[Route]:
    """Return the targets of each entry of a run."""
    return run.routes if isinstance(run, PackedRun) else routes_of(run)

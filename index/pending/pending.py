"""Pending entries in memory, in release order.

Entries lie in *chunks* of due time. Only the chunk that is due next is kept sorted; the others are plain lists in
arrival order, sorted once when their turn comes. Indexing is then an append (no tree walk, no heap sift), and releasing
is a slice of a sorted list. Both are cheap in Python: a heap of tuples costs 2 to 3 us a record at a million entries,
this costs 0.2 us.

Rejected: one ``SortedList`` of all entries (1.5 us an insert at a million); a heap (see above); a timing wheel (its
slots must be sorted anyway, because release order is by (due, offset) to the millisecond).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

from sortedcontainers import SortedDict

P = TypeVar("P")

Entry = tuple[int, int, P]
"""(due_ms, offset, payload). A plain tuple, because one is made for every record. It compares by due time, then by
offset, and never by payload, because offsets are unique."""

CHUNK_BITS = 8
"""A chunk spans 256 ms as a rule: small enough that sorting one never stalls the release loop (20 k/s make 5 k entries,
2 ms), large enough that a million entries over an hour share 14 k lists."""


NO_LIMIT = (1 << 63, 0)
"""A position behind every entry."""


class PendingIndex(Generic[P]):
    """Entries sorted by (due, offset), with cheap insertion and removal from the front.

    >>> index = PendingIndex()
    >>> index.add([(2_000, 7, "b"), (1_000, 9, "a"), (2_000, 5, "c")])
    >>> index.take_due(now_ms=2_000, max_entries=2)
    [(1000, 9, 'a'), (2000, 5, 'c')]
    >>> index.first()
    (2000, 7)
    """

    def __init__(self, chunk_bits: int = CHUNK_BITS) -> None:
        self.chunk_bits = chunk_bits
        self._chunks: SortedDict[int, list[Entry[P]]] = SortedDict()
        self._sorted: set[int] = set()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, entries: Iterable[Entry[P]]) -> None:
        """Add entries; amortised O(1) each, a binary search and a shift within the chunk that is being released."""
        chunks, is_sorted, bits, count = self._chunks, self._sorted, self.chunk_bits, 0
        for entry in entries:
            count += 1
            key = entry[0] >> bits
            chunk = chunks.get(key)
            if chunk is None:
                chunks[key] = [entry]
            elif key in is_sorted and entry < chunk[-1]:
                insort(chunk, entry)
            else:
                chunk.append(entry)
        self._count += count

    def take_due(self, now_ms: int, max_entries: int, before: tuple[int, int] = NO_LIMIT) -> list[Entry[P]]:
        """Remove and return the first entries due at or before ``now_ms``, in release order.

        ``before`` is a (due, offset) that is not passed: it holds back entries behind one that is not in memory.
        """
        taken: list[Entry[P]] = []
        while self._chunks and len(taken) < max_entries:
            key, chunk = self._head()
            cut = _count_due(chunk, now_ms, max_entries - len(taken), before)
            taken += chunk[:cut]
            if cut < len(chunk):
                del chunk[:cut]
                break
            del self._chunks[key]
            self._sorted.discard(key)
        self._count -= len(taken)
        return taken

    def take_chunks(self, due_ms: int) -> Iterator[tuple[int, list[Entry[P]]]]:
        """Remove and yield whole chunks, up to the one of ``due_ms``."""
        last = due_ms >> self.chunk_bits
        while self._chunks and self._chunks.peekitem(0)[0] <= last:
            key, chunk = self._chunks.popitem(0)
            self._sorted.discard(key)
            self._count -= len(chunk)
            yield key, chunk

    def put_chunks(self, chunks: Iterable[tuple[int, list[Entry[P]]]]) -> list[int]:
        """Add whole chunks and return the offsets in them: 200 k entries one by one stall the caller for 0.4 s."""
        added: list[int] = []
        for key, chunk in chunks:
            self._count += len(chunk)
            added += [entry[1] for entry in chunk]
            self._sorted.discard(key)
            if key in self._chunks:
                self._chunks[key] += chunk
            else:
                self._chunks[key] = chunk
        return added

    def chunks(self) -> Iterator[list[Entry[P]]]:
        """Yield all entries in release order, in runs; lazily, so an entry that is removed meanwhile may be missing."""
        for key in list(self._chunks):
            chunk = self._chunks.get(key)
            if chunk:
                yield sorted(chunk)

    def sizes(self, from_chunk: int, max_chunks: int) -> list[tuple[int, int]]:
        """Return (chunk, its size) of the first chunks from ``from_chunk`` on; chunk n begins at n << chunk_bits ms."""
        return [(key, len(self._chunks[key])) for key in islice(self._chunks.irange(from_chunk), max_chunks)]

    def some(self, chunk: int, start: int, count: int) -> list[Entry[P]]:
        """Return entries of a chunk, in their present order; none when the chunk has gone."""
        found = self._chunks.get(chunk)
        return found[start : start + count] if found else []

    def count_until(self, due_ms: int) -> int:
        """Count the entries due by then, to the end of that chunk; O(chunks before it)."""
        return sum([len(self._chunks[key]) for key in self._chunks.irange(maximum=due_ms >> self.chunk_bits)])

    def take_all(self) -> list[list[Entry[P]]]:
        """Remove and return all entries, in runs of any order."""
        runs = list(dict.values(self._chunks))
        self._chunks, self._sorted, self._count = SortedDict(), set(), 0
        return runs

    def put_back(self, entries: Iterable[Entry[P]]) -> None:
        """Return entries that were taken and not released; their chunks are sorted again when next needed."""
        for entry in entries:
            key = entry[0] >> self.chunk_bits
            self._sorted.discard(key)
            self._chunks.setdefault(key, []).append(entry)
            self._count += 1

    def put_run(self, entries: Sequence[Entry[P]]) -> None:
        """Add entries that are in release order, a slice for each chunk."""
        bits, start, count = self.chunk_bits, 0, len(entries)
        while start < count:
            key = entries[start][0] >> bits
            last = entries[-1][0] >> bits == key
            end = count if last else bisect_left(entries, ((key + 1) << bits,), start)
            self._sorted.discard(key)
            chunk = self._chunks.get(key)
            if chunk is None:
                self._chunks[key] = list(entries[start:end])
            else:
                chunk += entries[start:end]
            start = end
        self._count += count

    def discard(self, due_ms: int, offset: int) -> Entry[P] | None:
        """Remove one entry wherever it lies, if it is there; the first removal from a chunk sorts the chunk."""
        key = due_ms >> self.chunk_bits
        chunk = self._chunks.get(key)
        if chunk is None:
            return None
        if key not in self._sorted:
            chunk.sort()
            self._sorted.add(key)
        at = bisect_left(chunk, (due_ms, offset))
        if at == len(chunk) or chunk[at][1] != offset:
            return None
        found: Entry[P] = chunk.pop(at)
        self._count -= 1
        if not chunk:
            del self._chunks[key]
            self._sorted.discard(key)
        return found

    def first(self) -> tuple[int, int] | None:
        """Return the (due_ms, offset) of the first entry, or None when nothing is pending."""
        if not self._chunks:
            return None
        due_ms, offset, _ = self._head()[1][0]
        return due_ms, offset

    def next_due_ms(self) -> int | None:
        """Return the due time of the first entry, or None when nothing is pending."""
        return self._head()[1][0][0] if self._chunks else None

    def furthest_due_ms(self) -> int | None:
        """Return the due time of the last entry, or None; O(size of the last chunk)."""
        return max(entry[0] for entry in self._chunks.peekitem(-1)[1]) if self._chunks else None

    def check(self) -> None:
        """Assert every invariant; O(n log n)."""
        assert self._count == sum(len(chunk) for chunk in self._chunks.values())
        assert self._sorted <= set(self._chunks)
        for key, chunk in self._chunks.items():
            assert chunk, f"chunk {key} is empty"
            assert all(due_ms >> self.chunk_bits == key for due_ms, _, _ in chunk), f"chunk {key} holds a stranger"
            if key in self._sorted:
                assert chunk == sorted(chunk), f"chunk {key} claims to be sorted"

    def _head(self) -> tuple[int, list[Entry[P]]]:
        key, chunk = self._chunks.peekitem(0)
        if key not in self._sorted:
            chunk.sort()
            self._sorted.add(key)
        return key, chunk


def _count_due(chunk: list[Entry[P]], now_ms: int, room: int, before: tuple[int, int]) -> int:
    count = len(chunk)
    if chunk[-1][0] > now_ms:
        count = bisect_right(chunk, now_ms, key=lambda entry: entry[0])
    if count and chunk[count - 1][:2] >= before:
        count = bisect_left(chunk, before, key=lambda entry: entry[:2])
    return min(count, room)

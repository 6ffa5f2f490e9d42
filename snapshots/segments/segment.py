"""Segments: entries of a bucket as one record of the snapshots topic, with or without the records they deliver.

*Inline* holds whole records in columns, so that releasing scattered due times is a sequential read::

    entry        0      1      2      3            due and offset: deltas, so a few bytes each
                ┌──────┬──────┬──────┬──────┐
    due         │ +1.8e12 ms  │  +0  │  +7  │      unsigned: entries are in due order
    offset      │ +4711│  +1  │ -305 │ +288 │      zigzag
    record      │ yes  │ yes  │absent│ yes  │      runs 2 1 1; absent: too big, to be read from the delay topic
                └──────┴──────┴──────┴──────┘
    record       0      1             2
                ┌──────┬──────┐      ┌──────┐
    timestamp   │ +1.8e12 ms  │      │ -31  │      zigzag, modulo 2^64: producers may write any 64-bit number
    key         │ b"a" │ null │      │ b""  │      runs 1 1 1: null is not empty
    value       │ ...  │ ...  │      │ ...  │      no runs: no null
    headers     │  2   │  0   │      │  1   │
                └──────┴──────┘      └──────┘
    header       0   1                 2          names are indexes into a table; order and duplicates stay
                ┌───┬───┐            ┌───┐
    name        │ 0 │ 1 │            │ 0 │        table: deliver-at, trace
    value       │...│...│            │...│
                └───┴───┘            └───┘

*Pointer* holds offsets and due times, to read the records again, in 2 to 6 bytes per entry. Due times go by offset,
where those of a fixed delay hardly differ from one to the next; reading sorts them again::

    ┌──────────────────────────────────────┐
    │ offsets: 64-bit roaring bitmap       │      snapshots.offsets
    ├──────┬──────┬──────┬──────┬──────┬───┤
    │ due  │  +0  │  +1  │  +0  │  +2  │...│      zigzag ms, one per member of the bitmap, ascending
    └──────┴──────┴──────┴──────┴──────┴───┘

Both are a protobuf message (``segment.proto``) in an envelope. Nothing is compressed here: that is the producer's
setting. Reading trusts no number: columns are expanded only after their lengths agree. Entries that are unsorted,
out of range, or name an offset twice, are a FormatError.
"""

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, islice, pairwise, repeat
from operator import lt, or_, sub
from typing import TypeVar

from google.protobuf.message import DecodeError

from index.buckets.bucket import Placement
from index.errors import FormatError
from index.protocol.record import Record
from snapshots.envelope import Kind, unwrap, wrap
from snapshots.offsets import MAX_OFFSET, decode_offsets, encode_offsets
from snapshots.proto import segment_pb2

StoredEntry = tuple[int, int, Record | None]
"""Due time in ms, offset, and the record; None when the segment points to it or it was too big (absent)."""

MAX_ENTRIES = 65_536
"""No segment has more entries."""

_MAX_DUE_MS = 2**63 - 1
_T = TypeVar("_T")

# Without a call of Python code for each: it is run for every record that is released.
_new_tuple = tuple.__new__


def encode_segment(placement: Placement, entries: Sequence[StoredEntry]) -> bytes:
    """Value of the record of a segment; of a pointer segment, records are left out.

    ``entries`` are sorted by (due, offset). FormatError when they are not, when there are none or more than
    MAX_ENTRIES, or when they take more bytes than an envelope holds.
    """
    if not 0 < len(entries) <= MAX_ENTRIES:
        raise FormatError(f"a segment has 1 to {MAX_ENTRIES} entries, not {len(entries)}")
    dues, offsets, records = zip(*entries, strict=True)
    _check_entries(entries, offsets)
    message = segment_pb2.Segment(count=len(entries))
    if placement is Placement.POINTER:
        _encode_pointer(message.pointer, dues, offsets)
    else:
        _encode_inline(message.inline, dues, offsets, records)
    return wrap(Kind.SEGMENT, message.SerializeToString())


@dataclass(frozen=True, slots=True)
class Columns:
    """A segment by columns, in release order.

    ``names`` are the header names that every record has, by position, and ``header_values`` then has all values of the
    first record, of the second, and so on; None when they differ or a record is absent.
    """

    dues_ms: list[int]
    offsets: list[int]
    records: Sequence[Record | None]
    names: Sequence[str] | None
    header_values: Sequence[bytes | None]

    def entries(self) -> list[StoredEntry]:
        """Return the entries of the columns, row by row."""
        return list(zip(self.dues_ms, self.offsets, self.records, strict=True))


def decode_segment(value: bytes) -> list[StoredEntry]:
    """Return the entries of a segment, sorted by (due, offset); FormatError when it cannot be trusted."""
    return decode_columns(value).entries()


def decode_columns(value: bytes) -> Columns:
    """Return a segment by columns; FormatError when it cannot be trusted."""
    return columns_of(parse_segment(value))


def columns_of(message: segment_pb2.Segment) -> Columns:
    """Return the columns of a message; FormatError when it cannot be trusted."""
    if not 0 < message.count <= MAX_ENTRIES:
        raise FormatError(f"segment claims {message.count} entries; 1 to {MAX_ENTRIES} are possible")
    placement = message.WhichOneof("payload")
    if placement == "inline":
        return _decode_inline(message.inline, message.count)
    if placement == "pointer":
        return _decode_pointer(message.pointer, message.count)
    raise FormatError("segment is neither inline nor pointer; upgrade the router")


def parse_segment(value: bytes) -> segment_pb2.Segment:
    """Return the message in the envelope with nothing in it checked, for those who want to look at it."""
    message = segment_pb2.Segment()
    try:
        message.ParseFromString(unwrap(Kind.SEGMENT, value))
    except DecodeError as error:
        raise FormatError(f"segment: {error}") from error
    return message


def _check_entries(entries: Sequence[StoredEntry], offsets: Sequence[int]) -> None:
    _check_offsets(offsets)
    # No two offsets are equal, so records are never compared.
    if not all(map(lt, entries, islice(entries, 1, None))):
        raise FormatError("entries of a segment are not sorted by due time and offset")
    _check_dues(entries[0][0], entries[-1][0])


def _check_offsets(offsets: Sequence[int]) -> None:
    if min(offsets) < 0 or max(offsets) > MAX_OFFSET:
        raise FormatError(f"entries have offsets {min(offsets)} to {max(offsets)}; 0 to {MAX_OFFSET} are possible")
    if len(set(offsets)) != len(offsets):
        raise FormatError("segment has two entries of one offset")


def _check_dues(first_ms: int, last_ms: int) -> None:
    if first_ms < 0 or last_ms > _MAX_DUE_MS:
        raise FormatError(f"entries are due {first_ms} to {last_ms}; 0 to {_MAX_DUE_MS} are possible")


def _encode_pointer(message: segment_pb2.PointerSegment, dues: Sequence[int], offsets: Sequence[int]) -> None:
    message.offsets = encode_offsets(offsets)
    message.due_deltas.extend(_deltas([due for _, due in sorted(zip(offsets, dues, strict=True))]))


def _decode_pointer(message: segment_pb2.PointerSegment, count: int) -> Columns:
    _check_length("due times", message.due_deltas, count)
    offsets = decode_offsets(message.offsets, count)
    entries: list[StoredEntry] = sorted(zip(accumulate(message.due_deltas), offsets, repeat(None), strict=False))
    _check_entries(entries, offsets)
    return Columns([due_ms for due_ms, _, _ in entries], [offset for _, offset, _ in entries], [None] * count, None, ())


def _encode_inline(
    message: segment_pb2.InlineSegment, dues: Sequence[int], offsets: Sequence[int], records: Sequence[Record | None]
) -> None:
    # Filled in place: a message handed to the constructor of another one is copied, which takes longer than all this.
    present, record_runs = _split(records)
    message.due_deltas.extend(_deltas(dues))
    message.offset_deltas.extend(_deltas(offsets))
    message.record_runs.extend(record_runs)
    message.timestamp_deltas.extend(_in_64_bits(_deltas([record.timestamp_ms for record in present])))
    _fill(message.keys, [record.key for record in present])
    _fill(message.values, [record.value for record in present])
    headers = [record.headers for record in present]
    flat = list(chain.from_iterable(headers))
    names = [name for name, _ in flat]
    table = {name: index for index, name in enumerate(dict.fromkeys(names))}
    message.header_counts.extend(map(len, headers))
    message.header_names.extend(table)
    message.header_indexes.extend(map(table.__getitem__, names))
    _fill(message.header_values, [value for _, value in flat])


def _decode_inline(message: segment_pb2.InlineSegment, count: int) -> Columns:
    _check_length("due times", message.due_deltas, count)
    _check_length("offsets", message.offset_deltas, count)
    due_deltas, offset_deltas = message.due_deltas[:], message.offset_deltas[:]
    dues, offsets = list(accumulate(due_deltas)), list(accumulate(offset_deltas))
    _check_offsets(offsets)
    # Due deltas are unsigned, so only entries of one due time can be out of order.
    if not all(islice(map(or_, due_deltas, map((0).__lt__, offset_deltas)), 1, None)):
        raise FormatError("entries of a segment are not sorted by due time and offset")
    _check_dues(dues[0], dues[-1])
    runs = message.record_runs
    present = sum(runs[::2]) if runs else count
    if present > MAX_ENTRIES:
        raise FormatError(f"segment claims {present} records")
    _check_length("timestamps", message.timestamp_deltas, present)
    header_values, headers, names = _decode_headers(message, present)
    records = _decode_records(message, headers, present)
    return Columns(dues, offsets, _joined("records", records, runs, count), None if runs else names, header_values)


def _decode_records(
    message: segment_pb2.InlineSegment, headers: Iterable[Sequence[tuple[str, bytes | None]]], count: int
) -> list[Record]:
    timestamps = _in_64_bits(list(accumulate(message.timestamp_deltas)))
    keys = _values("keys", message.keys, count)
    values = _values("values", message.values, count)
    return list(map(_new_tuple, repeat(Record), zip(keys, values, headers, timestamps, strict=True)))


def _decode_headers(
    message: segment_pb2.InlineSegment, count: int
) -> tuple[Sequence[bytes | None], Iterable[Sequence[tuple[str, bytes | None]]], Sequence[str] | None]:
    """All header values, the headers of each record, and the names of each where those are all the same."""
    _check_length("header counts", message.header_counts, count)
    counts = message.header_counts[:]
    total = sum(counts)
    _check_length("header names", message.header_indexes, total)
    table = message.header_names[:]
    indexes = message.header_indexes[:]
    if indexes and max(indexes) >= len(table):
        raise FormatError(f"segment has a header named by index {max(indexes)} of {len(table)}")
    values = _values("header values", message.header_values, total)
    each = counts[0] if counts else 0
    if counts.count(each) == count and indexes == indexes[:each] * count:
        # As a rule: producers write all records in one way. No header needs to be looked at by itself.
        names = [table[index] for index in indexes[:each]]
        columns = [zip(repeat(name), values[place::each], strict=False) for place, name in enumerate(names)]
        return values, map(list, zip(*columns, strict=True)) if columns else repeat([], count), names
    headers = list(zip(map(table.__getitem__, indexes), values, strict=True))
    return values, [headers[start:end] for start, end in pairwise(accumulate(counts, initial=0))], None


def _fill(column: segment_pb2.Column, values: Sequence[bytes | None]) -> None:
    present, runs = _split(values)
    column.present.extend(present)
    column.runs.extend(runs)


def _values(name: str, column: segment_pb2.Column, count: int) -> Sequence[bytes | None]:
    return _joined(name, column.present[:], column.runs, count)


def _split(column: Sequence[_T | None]) -> tuple[Sequence[_T], list[int]]:
    """Return the values that are not None, and the lengths of runs of values, of None, of values, ... in turn."""
    present = [value for value in column if value is not None]
    if len(present) == len(column):
        return present, []
    runs = [len(list(run)) for _, run in groupby(value is None for value in column)]
    return present, [0, *runs] if column[0] is None else runs


def _joined(name: str, present: Sequence[_T], runs: Sequence[int], count: int) -> Sequence[_T | None]:
    """Undo :func:`_split`; FormatError unless that gives ``count`` values."""
    if not runs:
        _check_length(name, present, count)
        return present
    if sum(runs) != count or sum(runs[::2]) != len(present):
        raise FormatError(
            f"segment has {len(present)} {name}, where runs of {sum(runs[::2])} among {sum(runs)} are named"
        )
    joined: list[_T | None] = []
    taken = 0
    for number, run in enumerate(runs):
        if number % 2:
            joined += [None] * run
        else:
            joined += present[taken : taken + run]
            taken += run
    return joined


def _deltas(numbers: Sequence[int]) -> list[int]:
    return [*numbers[:1], *map(sub, numbers[1:], numbers)]


def _in_64_bits(numbers: list[int]) -> list[int]:
    if min(numbers, default=0) >= -(2**63) and max(numbers, default=0) < 2**63:
        return numbers
    return [(number + 2**63) % 2**64 - 2**63 for number in numbers]


def _check_length(name: str, column: Sized, count: int) -> None:
    if len(column) != count:
        raise FormatError(f"segment has {len(column)} {name}, where {count} are declared")

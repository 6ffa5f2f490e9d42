"""Records as rows of bytes, made when they are indexed and joined into a segment when they are sealed.

A record that waits for long is touched twice: when it comes in, and, in due order, when its segment is encoded. The
second time nothing of it is in a cache, and a record is a dozen objects. So it is put into the bytes of the segment the
first time.
This needs no format of its own: a protobuf message may be cut into pieces anywhere between two fields, even one field
into several, and the pieces of many records one after the other are columns again::

    row  ┌────────┬──────────┬───────────────┬────────────────┬───────────────────┐
         │ keys   │ values   │ header_values │ header_counts  │ header_indexes    │   fields of InlineSegment
         │ {"k1"} │ {"v..."} │ {..} {..}     │ 2              │ 0 1               │
         └────────┴──────────┴───────────────┴────────────────┴───────────────────┘
           absent: a null key

Due times, offsets and timestamps are deltas, so they are written when the row before is known. The null keys and
the table of header names go with them.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate, groupby, islice
from operator import lt, sub
from typing import Final, NamedTuple

from index.errors import FormatError
from index.protocol.headers import Headers
from index.protocol.record import Record
from snapshots.envelope import Kind, wrap
from snapshots.offsets import MAX_OFFSET
from snapshots.proto import segment_pb2
from snapshots.segments.segment import MAX_ENTRIES, Columns, columns_of, decode_columns

MAX_NAMES: Final = 100
"""Most header names of a table, of which every segment has a copy. A record with further names is no row."""

MAX_HEADERS: Final = 100

_LEN: Final = 2
_CONTINUES: Final = 0x80
_PREPARED: Final = 1_024


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= _CONTINUES:
        encoded.append(number & (_CONTINUES - 1) | _CONTINUES)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _tag(message: type[segment_pb2.InlineSegment] | type[segment_pb2.Segment], field: str, wire_type: int) -> bytes:
    return _varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | wire_type)


class _Prefixes(dict[int, bytes]):
    """The bytes in front of content of a length that make it a Column of one value: ``prefixes[length]``."""

    def __init__(self, field: str) -> None:
        super().__init__()
        self._tag = _tag(segment_pb2.InlineSegment, field, _LEN)
        for length in range(_PREPARED):
            self[length] = self._of(length)

    def __missing__(self, length: int) -> bytes:
        """Make a prefix without remembering it: content of that length costs more."""
        return self._of(length)

    def _of(self, length: int) -> bytes:
        # Field 1 of a Column: the values that are present.
        inner = b"\x0a" + _varint(length)
        return self._tag + _varint(len(inner) + length) + inner


_KEY = _Prefixes("keys")
_VALUE = _Prefixes("values")
_HEADER = _Prefixes("header_values")
_KEY_STARTS: Final = _KEY[0][0]
_COUNT_TAG = _tag(segment_pb2.InlineSegment, "header_counts", 0)
_INDEXES_TAG = _tag(segment_pb2.InlineSegment, "header_indexes", _LEN)
_INLINE_TAG = _tag(segment_pb2.Segment, "inline", _LEN)


class RowPacker:
    """Makes rows that share a table of header names; they can be joined with each other only.

    The table only grows, so that a row may be made in one thread while others are joined in another.

    >>> packer = RowPacker()
    >>> rows = [packer.pack(b"k", b"one", [("trace", b"1")]), packer.pack(None, b"two", [])]
    >>> unpack_rows([100, 200], rows, packer.names)[1]
    Record(key=None, value=b'two', headers=[], timestamp_ms=200)
    >>> packer.pack(b"k", None, []) is None
    True
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._indexes: dict[str, int] = {}
        self._shapes: dict[tuple[str, ...], bytes] = {}

    def pack(self, key: bytes | None, value: bytes | None, headers: Headers) -> bytes | None:
        """Return a record without its timestamp as a row; None when a row cannot hold it, as a null value."""
        if value is None:
            return None
        parts = [_VALUE[len(value)], value] if key is None else [_KEY[len(key)], key, _VALUE[len(value)], value]
        names: list[str] = []
        for name, content in headers:
            if content is None:
                return None
            names.append(name)
            parts += _HEADER[len(content)], content
        named = tuple(names)
        shape = self._shapes.get(named) or self._shape(named)
        if shape is None:
            return None
        parts.append(shape)
        return b"".join(parts)

    def shape(self, names: tuple[str, ...]) -> bytes | None:
        """Return the last bytes of a row with headers of these names; None for names that no row can have."""
        return self._shapes.get(names) or self._shape(names)

    def indexes(self, names: Sequence[str]) -> bytes | None:
        """Return the places of these names in the table, new ones added; None where the table has no room."""
        fresh = [name for name in dict.fromkeys(names) if name not in self._indexes]
        if len(self.names) + len(fresh) > MAX_NAMES:
            return None
        for name in fresh:
            self._indexes[name] = len(self.names)
            self.names.append(name)
        return bytes(map(self._indexes.__getitem__, names))

    def _shape(self, names: tuple[str, ...]) -> bytes | None:
        indexes = self.indexes(names) if len(names) <= MAX_HEADERS else None
        if indexes is None:
            return None
        shape = _COUNT_TAG + _varint(len(names)) + (_INDEXES_TAG + _varint(len(indexes)) + indexes if indexes else b"")
        if len(self._shapes) >= MAX_NAMES * MAX_NAMES:
            self._shapes.clear()
        self._shapes[names] = shape
        return shape


def encode_rows(
    dues_ms: Sequence[int],
    offsets: Sequence[int],
    timestamps_ms: Sequence[int],
    rows: Sequence[bytes],
    names: Sequence[str],
) -> bytes:
    """Value of the record of an inline segment; errors as of ``encode_segment``."""
    return encode_body(dues_ms, offsets, timestamps_ms, [*map(len, rows)], b"".join(rows), names)


def encode_body(
    dues_ms: Sequence[int],
    offsets: Sequence[int],
    timestamps_ms: Sequence[int],
    sizes: Sequence[int],
    body: bytes,
    names: Sequence[str],
) -> bytes:
    """Encode a segment of rows of these sizes, which lie behind each other in ``body``."""
    return wrap(Kind.SEGMENT, _message(dues_ms, offsets, timestamps_ms, sizes, body, names))


def _message(
    dues_ms: Sequence[int],
    offsets: Sequence[int],
    timestamps_ms: Sequence[int],
    sizes: Sequence[int],
    body: bytes,
    names: Sequence[str],
) -> bytes:
    _check(dues_ms, offsets)
    if not len(sizes) == len(timestamps_ms) == len(offsets) or min(sizes) < 1 or sum(sizes) != len(body):
        raise FormatError("rows of a segment are not as many, or not as long, as is said of them")
    starts = bytes(map(body.__getitem__, islice(accumulate(sizes, initial=0), len(sizes))))
    columns = segment_pb2.InlineSegment(header_names=names)
    columns.due_deltas.extend(_deltas(dues_ms))
    columns.offset_deltas.extend(_deltas(offsets))
    columns.timestamp_deltas.extend(_deltas(timestamps_ms))
    columns.keys.runs.extend(_key_runs(starts))
    first = columns.SerializeToString()
    head = segment_pb2.Segment(count=len(starts)).SerializeToString() + _INLINE_TAG + _varint(len(first) + len(body))
    return b"".join([head, first, body])


class SegmentRows(NamedTuple):
    """A segment as rows that lie behind each other in ``body``, in release order, with the numbers of each."""

    dues_ms: "array[int]"
    offsets: "array[int]"
    timestamps_ms: "array[int]"
    sizes: "array[int]"
    body: bytes


def decode_rows(value: bytes, packer: RowPacker) -> SegmentRows | None:
    """Return a segment as rows of ``packer``, of 64 bits each number and 32 each size; None as of :func:`rows_of`.

    FormatError when it cannot be trusted.
    """
    return rows_of(decode_columns(value), packer)


def rows_of(columns: Columns, packer: RowPacker) -> SegmentRows | None:
    """Return the same of a segment that is decoded; None where a record is absent, or one that no row can hold."""
    rows: list[bytes] = []
    timestamps_ms = array("q")
    for record in columns.records:
        # The difference of two numbers of which one is less than 0 may be beyond 64 bits, which rows are joined with.
        if record is None or record.timestamp_ms < 0:
            return None
        row = packer.pack(record.key, record.value, record.headers)
        if row is None:
            return None
        rows.append(row)
        timestamps_ms.append(record.timestamp_ms)
    numbers = array("q", columns.dues_ms), array("Q", columns.offsets), timestamps_ms
    return SegmentRows(*numbers, array("i", map(len, rows)), b"".join(rows))


def unpack_rows(timestamps_ms: Sequence[int], rows: Sequence[bytes], names: Sequence[str]) -> list[Record]:
    """Return the records that were packed, in the same order; they may be more bytes than a segment holds."""
    numbers = range(len(rows))
    message = segment_pb2.Segment()
    message.ParseFromString(_message(numbers, numbers, timestamps_ms, [*map(len, rows)], b"".join(rows), names))
    return [record for record in columns_of(message).records if record is not None]


def _key_runs(starts: bytes) -> list[int]:
    have = starts.count(_KEY_STARTS)
    if have == len(starts):
        return []
    runs = [len(list(run)) for _, run in groupby(start == _KEY_STARTS for start in starts)]
    return runs if starts[0] == _KEY_STARTS else [0, *runs]


def _check(dues_ms: Sequence[int], offsets: Sequence[int]) -> None:
    if not 0 < len(offsets) <= MAX_ENTRIES:
        raise FormatError(f"a segment has 1 to {MAX_ENTRIES} entries, not {len(offsets)}")
    if min(offsets) < 0 or max(offsets) > MAX_OFFSET or len(set(offsets)) != len(offsets):
        raise FormatError("entries of a segment have offsets twice, or none that are possible")
    positions = list(zip(dues_ms, offsets, strict=True))
    if dues_ms[0] < 0 or not all(map(lt, positions, islice(positions, 1, None))):
        raise FormatError("entries of a segment are not sorted by due time and offset")


def _deltas(numbers: Sequence[int]) -> list[int]:
    return [*numbers[:1], *map(sub, numbers[1:], numbers)]

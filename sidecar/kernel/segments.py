"""Encodes and decodes segments by the kernel, and leaves the segments that it does not know to :mod:`snapshots`.

The module is separate from :mod:`sidecar.kernel.choice` because it can be imported only if the kernel is compiled.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from index.protocol.record import Record
from sidecar.kernel import _rows, _runs, _segments
from snapshots.envelope import Kind, unwrap, wrap
from snapshots.segments.codec import PYTHON_CODEC, SegmentCodec
from snapshots.segments.row_columns import RowColumns
from snapshots.segments.rows import RowPacker, SegmentRows, rows_of
from snapshots.segments.segment import Columns


def _decode_columns(value: bytes) -> Columns:
    columns = _segments.decode(unwrap(Kind.SEGMENT, value), Record)
    return PYTHON_CODEC.decode_columns(value) if columns is None else Columns(*columns)


def _decode_rows(value: bytes, packer: RowPacker) -> SegmentRows | None:
    found = _segments.rows(unwrap(Kind.SEGMENT, value), packer)
    if found is None:
        return rows_of(_decode_columns(value), packer)
    dues, offsets, timestamps, sizes, body = found
    return SegmentRows(array("q", dues), array("Q", offsets), array("q", timestamps), array("i", sizes), body)


def _encode_body(
    dues_ms: Sequence[int],
    offsets: Sequence[int],
    timestamps_ms: Sequence[int],
    sizes: Sequence[int],
    body: bytes,
    names: Sequence[str],
) -> bytes:
    segment = _rows.join(dues_ms, offsets, timestamps_ms, sizes, body, names)
    if segment is None:
        return PYTHON_CODEC.encode_body(dues_ms, offsets, timestamps_ms, sizes, body, names)
    return wrap(Kind.SEGMENT, segment)


def _in_order(columns: RowColumns) -> RowColumns:
    dues, at, written, to, lengths, contents = _runs.in_order(*columns)
    return array("q", dues), array("Q", at), array("q", written), to, array("i", lengths), contents


NATIVE_CODEC: Final = SegmentCodec(_decode_columns, _decode_rows, _encode_body, _in_order)

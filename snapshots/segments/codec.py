"""The functions of this package that touch every record, as one thing to hand in where records go by the million.

The functions here are the definition. A caller with faster functions that do the same, as the router has in its kernel,
hands these in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from snapshots.segments.row_columns import InOrder, in_order
from snapshots.segments.rows import RowPacker, SegmentRows, decode_rows, encode_body
from snapshots.segments.segment import Columns, decode_columns

DecodeColumns: TypeAlias = Callable[[bytes], Columns]
DecodeRows: TypeAlias = Callable[[bytes, RowPacker], SegmentRows | None]
EncodeBody: TypeAlias = Callable[
    [Sequence[int], Sequence[int], Sequence[int], Sequence[int], bytes, Sequence[str]],
    bytes,
]


@dataclass(frozen=True, slots=True)
class SegmentCodec:
    """Decodes inline segments, joins rows into them and puts those in order, as the functions of the same names do."""

    decode_columns: DecodeColumns
    decode_rows: DecodeRows
    encode_body: EncodeBody
    in_order: InOrder


PYTHON_CODEC: Final = SegmentCodec(decode_columns, decode_rows, encode_body, in_order)

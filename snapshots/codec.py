"""The functions of this package that touch every record, as one thing to hand in where records go by the million.

Those here are the definition. Whoever has faster ones that do the same, as the router has in its kernel, hands in its
own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from snapshots.rows import encode_rows
from snapshots.segment import Columns, decode_columns

DecodeColumns: TypeAlias = Callable[[bytes], Columns]
EncodeRows: TypeAlias = Callable[
    [Sequence[int], Sequence[int], Sequence[int], Sequence[bytes], Sequence[str]],
    bytes,
]


@dataclass(frozen=True, slots=True)
class SegmentCodec:
    """Decodes inline segments and joins rows into them, as the functions of the same names do."""

    decode_columns: DecodeColumns
    encode_rows: EncodeRows


PYTHON_CODEC: Final = SegmentCodec(decode_columns, encode_rows)

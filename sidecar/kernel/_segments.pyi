# _segments.pyx documents each function.
from typing import TypeAlias

from index.protocol.record import Record
from snapshots.segments.rows import RowPacker

REVISION: int

_Columns: TypeAlias = tuple[list[int], list[int], list[Record], list[str] | None, list[bytes | None]]

def decode(body: bytes, record: type[Record]) -> _Columns | None: ...
def rows(body: bytes, packer: RowPacker) -> tuple[bytes, bytes, bytes, bytes, bytes] | None: ...

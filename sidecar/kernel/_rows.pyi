# _rows.pyx documents the function.
from collections.abc import Sequence

REVISION: int

def join(
    dues_ms: Sequence[int],
    offsets: Sequence[int],
    timestamps_ms: Sequence[int],
    sizes: Sequence[int],
    body: bytes,
    names: Sequence[str],
) -> bytes | None: ...

# _runs.pyx documents the function.
from array import array
from typing import TypeVar

REVISION: int

_R = TypeVar("_R")

def in_order(
    dues_ms: array[int],
    offsets: array[int],
    timestamps_ms: array[int],
    routes: list[_R],
    sizes: array[int],
    rows: bytes,
) -> tuple[bytes, bytes, bytes, list[_R], bytes, bytes]: ...

"""Runs the copy loop in C (``copy_loop.c``), which shows the speed of librdkafka and broker without Python."""

import ctypes
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import cimpl

from tests.bench import child
from tests.bench.loops import CONSUMER, producer_settings

SOURCE: Final = Path(__file__).with_name("copy_loop.c")

COMPILER: Final = os.environ.get("CC", "cc")


def compiled(folder: Path) -> Path:
    """Compile the loop to a library in this folder.

    Raise OSError without a compiler, and CalledProcessError if it fails.
    """
    library = folder / "copy_loop.so"
    command = [COMPILER, "-O2", "-shared", "-fPIC", "-Wall", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True)
    return library


def copy(
    *,
    library: str,
    bootstrap: str,
    source: str,
    target: str,
    count: int,
    transaction_records: int,
    linger_ms: int,
    chunk: int,
    as_released: bool,
) -> float:
    """Copy like :func:`tests.bench.loops.copy`, with the same librdkafka and settings, or raise RuntimeError."""
    # The loop finds librdkafka's symbols here: the library is loaded already, and stays the only one.
    ctypes.CDLL(cimpl.__file__, mode=ctypes.RTLD_GLOBAL)
    loop = ctypes.CDLL(library)
    loop.copy_loop.restype, loop.copy_loop_error.restype = ctypes.c_double, ctypes.c_char_p
    rate = float(
        loop.copy_loop(
            _settings({"bootstrap.servers": bootstrap, **CONSUMER}),
            _settings(producer_settings(bootstrap, linger_ms)),
            source.encode(),
            target.encode(),
            ctypes.c_long(count),
            ctypes.c_long(transaction_records),
            ctypes.c_long(chunk),
            int(as_released),
        )
    )
    if rate < 0:
        raise RuntimeError(loop.copy_loop_error().decode())
    return rate


def _settings(named: Mapping[str, object]) -> ctypes.Array[ctypes.c_char_p]:
    """Return names and values in turn, and a terminating null pointer."""
    texts = [str(each).lower() if isinstance(each, bool) else str(each) for pair in named.items() for each in pair]
    return (ctypes.c_char_p * (len(texts) + 1))(*(text.encode() for text in texts), None)


if __name__ == "__main__":
    child.answer(rate=copy(**child.arguments()))

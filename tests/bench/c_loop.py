"""The copying loop in C (``copy_loop.c``): what librdkafka and broker do without Python. A process of its own."""

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
    """The loop as a library in this folder; OSError without a compiler, CalledProcessError when it fails."""
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
    """As :func:`tests.bench.loops.copy`, by the same librdkafka with the same settings; RuntimeError with a reason."""
    # Its names are for the loop to be found by; it is loaded already, and stays the only one.
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
    """Names and values, one after the other, and an end."""
    texts = [str(each).lower() if isinstance(each, bool) else str(each) for pair in named.items() for each in pair]
    return (ctypes.c_char_p * (len(texts) + 1))(*(text.encode() for text in texts), None)


if __name__ == "__main__":
    child.answer(rate=copy(**child.arguments()))

"""The memory of a process beside its pending records, as in OPERATIONS, 'How much it takes'."""

from collections.abc import Mapping
from typing import Final

MIB: Final = 1_048_576
PROCESS_BYTES: Final = 350 * MIB
"""The peak while buckets are sealed, and while a transaction of large records is under way."""

PARTITION_BYTES: Final = 6 * MIB
"""Two thirds of it are for large records: 100 partitions with records of up to 900 kB took 2.8 to 4.1 MiB each."""

UNPACKED_TIMES: Final[Mapping[str, int]] = {"uncompressed": 1, "gzip": 1_032, "lz4": 255, "snappy": 21}
"""Largest ratio of unpacked to packed size that the format of each codec allows."""

MOST_TIMES: Final = max(UNPACKED_TIMES.values())

ANY_CODEC: Final = "producer"
"""Value of compression.type with which a topic takes batches of every codec."""


def own_bytes(payload_memory_bytes: int, partitions: int) -> int:
    """Return the memory of a process with so many partitions, without pending records and the largest fetch."""
    return payload_memory_bytes + PROCESS_BYTES + PARTITION_BYTES * partitions


def unpacked_bytes(batch_bytes: int, codec: str, zstd_bytes: int) -> int:
    """Return the most bytes that a client unpacks a fetch to, with at most one batch of zstd in it.

    ``batch_bytes`` is the largest batch that the topic takes; ``zstd_bytes`` bounds an unpacked batch of zstd.
    """
    if codec == "zstd":
        return zstd_bytes
    times = UNPACKED_TIMES.get(codec)
    return batch_bytes * times if times is not None else max(batch_bytes * MOST_TIMES, zstd_bytes)

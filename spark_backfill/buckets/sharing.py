"""The assignment of slots to tasks: values that Spark's hash partitioning sends to one partition each.

Spark 4.0 offers no partitioning by a given number. Its hash of an int is known, Murmur3 with seed 42, so the module
searches a value for each slot whose hash is that slot. If the hash were ever another one, slots would share tasks,
which costs time only.
"""

from itertools import count

_MASK = 0xFFFFFFFF
_SEED = 42


def slot_keys(slots: int) -> tuple[int, ...]:
    """Return for each slot an int n that ``repartition(slots, n)`` puts into the partition with the slot's number."""
    found: dict[int, int] = {}
    for number in count():
        if len(found) == slots:
            break
        found.setdefault(partition_of(number, slots), number)
    return tuple(found[slot] for slot in range(slots))


def partition_of(number: int, partitions: int) -> int:
    """Return the partition that Spark's hash partitioning gives an int >= 0: ``pmod(hash(number), partitions)``."""
    key = _rotated(number * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    hashed = (_rotated(_SEED ^ key, 13) * 5 + 0xE6546B64 & _MASK) ^ 4
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    hashed ^= hashed >> 16
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    return signed % partitions


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _MASK

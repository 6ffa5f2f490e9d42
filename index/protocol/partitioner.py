"""The partition that Kafka's producers choose for a key."""

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_INT32: Final = 0xFFFFFFFF


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Java's producer and librdkafka's ``murmur2_random`` choose it; O(len(key)).

    >>> [partition_of_key(key, 3) for key in (b"", b"order-1", b"order-2")]
    [0, 1, 0]
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(key: bytes) -> int:
    """Return Kafka's hash of a key, unsigned (``org.apache.kafka.common.utils.Utils.murmur2``)."""
    length = len(key)
    found = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(key[at : at + 4], "little") * _M & _INT32
        part = (part ^ (part >> 24)) * _M & _INT32
        found = (found * _M & _INT32) ^ part
    if whole < length:
        found = (found ^ int.from_bytes(key[whole:], "little")) * _M & _INT32
    found = (found ^ (found >> 13)) * _M & _INT32
    return found ^ (found >> 15)

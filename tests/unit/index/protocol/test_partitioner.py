"""The partition of a key, as Kafka's producers choose it."""

import pytest

from index.protocol.partitioner import murmur2


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # From UtilsTest.testMurmur2 of Apache Kafka.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_as_java_has_it(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF

"""Values of the coordinator's log, in the formats of Kafka 4.3.1."""

import struct

import pytest

from sidecar.kafka.doubts.coordinator_log import java_hash, last_outcome, parse

COMMITS, ABORTS, COMMITTED = 2, 3, 4
STATE = ("d.delay-state", 1)


def value(status: int, *topics: tuple[str, list[int]], version: int = 1, nothing: bool = False) -> bytes:
    """Encode a value after ``TransactionLogValue.json`` of Kafka."""
    head = struct.pack(">hqhib", version, 7, 3, 60_000, status)
    times = struct.pack(">qq", 1, 2)
    if version == 0:
        if nothing:
            return head + struct.pack(">i", -1) + times
        named = [
            struct.pack(">h", len(name)) + name.encode() + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
            for name, numbers in topics
        ]
        return head + struct.pack(">i", len(topics)) + b"".join(named) + times
    if nothing:
        return head + b"\0" + times + b"\0"
    compact = [
        bytes([len(name) + 1])
        + name.encode()
        + bytes([len(numbers) + 1])
        + struct.pack(f">{len(numbers)}i", *numbers)
        + b"\0"
        for name, numbers in topics
    ]
    return head + bytes([len(topics) + 1]) + b"".join(compact) + times + b"\0"


@pytest.mark.parametrize("version", [0, 1])
def test_status_and_partitions(version: int) -> None:
    found = value(COMMITS, ("out", [0, 5]), (STATE[0], [1]), version=version)
    assert parse(found) == (COMMITS, frozenset({("out", 0), ("out", 5), STATE}))
    assert parse(value(COMMITTED, version=version, nothing=True)) == (COMMITTED, frozenset())


def test_a_long_name_has_a_length_of_two_bytes() -> None:
    name = "n" * 200
    raw = value(ABORTS, ("x", [4])).replace(b"\x02x", b"\xc9\x01" + name.encode())
    assert parse(raw) == (ABORTS, frozenset({(name, 4)}))


@pytest.mark.parametrize(
    ("statuses", "outcome"),
    [
        ([], None),
        ([value(COMMITS, (STATE[0], [1]))], True),
        ([value(COMMITS, (STATE[0], [1])), value(ABORTS, (STATE[0], [1]))], False),
        # Values of another partition, and a value that says only that the transaction is complete.
        ([value(COMMITS, (STATE[0], [1])), value(ABORTS, ("out", [1])), value(5, nothing=True)], True),
        ([value(COMMITTED, nothing=True)], None),
        # An unknown version may be about any partition.
        ([value(COMMITS, (STATE[0], [1])), b"\x00\x02" + bytes(40)], None),
        ([value(COMMITS, (STATE[0], [1]))[:30]], None),
    ],
)
def test_the_last_transaction_that_wrote_there_decides(statuses: list[bytes], outcome: bool | None) -> None:
    told = last_outcome(statuses, STATE)
    assert told.committed is outcome
    assert told.found.startswith(f"{len(statuses)} records, the last one ")


def test_what_was_found_is_told_where_it_does_not_decide() -> None:
    assert last_outcome([], STATE).found == "0 records, the last one none"
    found = last_outcome([value(ABORTS, ("out", [1]))], STATE).found
    assert found == "1 records, the last one status 3 with 1 partitions"
    assert last_outcome([b"\x00\x02"], STATE).found == "1 records, the last one of an unknown version: 0002"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("", 0), ("abc", 96354), ("😀", 1772899), ("payments", 1382682413)),
        # Their ``hashCode()`` is negative; that of the last one has no positive counterpart.
        *(("delay-router.orders.delay.0", 311475977), ("polygenelubricants", 0)),
    ],
)
def test_the_hash_is_that_of_kafka_4_3_1(text: str, expected: int) -> None:
    assert java_hash(text) == expected

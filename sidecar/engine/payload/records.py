"""Defines how the router keeps a record of a delay topic between indexing and release."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias, cast

from index.buckets.target_counts import Route
from index.pending.pending import Entry
from index.protocol.record import Record
from index.protocol.schedule import BY_KEY, Decision, Rejection, Schedule
from snapshots.segments.rows import RowPacker

RESIDENT_OVERHEAD_BYTES = 500
"""Bytes of memory that a record takes beside its key and value: tuples, header list and strings (measured with
tracemalloc for three headers of 20 B; one more header is HEADER_OVERHEAD_BYTES more)."""

HEADER_OVERHEAD_BYTES = 120

PACKED_OVERHEAD_BYTES = 300
"""Bytes of memory that a packed record takes beside its row: entry, Packed, numbers and its place in a chunk."""

# A NamedTuple's own constructor is a Python function and costs three times as much.
_new = tuple.__new__


class Scheduled(NamedTuple):
    """An accepted record: its schedule, its size in a transaction, and the record itself unless it must be re-read."""

    schedule: Schedule
    size_bytes: int
    record: Record | None


class Packed(NamedTuple):
    """An accepted record that waits for long, as a row of a segment; its schedule is decided again when it leaves.

    Size and row are at the positions at which a Scheduled has its size and record.
    """

    timestamp_ms: int
    size_bytes: int
    row: bytes
    packer: RowPacker
    targets: Route


Payload: TypeAlias = Scheduled | Packed
"""The form in which an accepted record is kept until it is released."""


class Refused(NamedTuple):
    """A record on its way to the rejected topic: to one of its partitions, or to the partition that its key gives."""

    rejection: Rejection
    record: Record
    partition: int = BY_KEY


class Appended(NamedTuple):
    """A record for the delay partition, which follows from the record at ``offset`` and has its timestamp.

    The transaction notes its offset, ``due_ms`` and ``id_hash``, which is the hash of its id, or ``NO_ID``.
    """

    offset: int
    record: Record
    due_ms: int
    id_hash: bytes


Decide: TypeAlias = Callable[[int, Record], Decision]
"""Decides the record at an offset again, by the rules that held when it was indexed."""


def scheduled(schedule: Schedule, size_bytes: int, record: Record | None) -> Scheduled:
    """Make a Scheduled fast, since there is one for every record."""
    return _new(Scheduled, (schedule, size_bytes, record))


def packed(timestamp_ms: int, row: bytes, packer: RowPacker, targets: Route = ()) -> Packed:
    """Make a Packed fast, since there is one for every record that waits for long; ``targets`` only serve to count."""
    return _new(Packed, (timestamp_ms, PACKED_OVERHEAD_BYTES + len(row), row, packer, targets))


def routes_of(entries: Iterable[Entry[Payload]]) -> list[Route]:
    """Return the targets of each entry of a batch."""
    return [payload.targets if isinstance(payload, Packed) else payload.schedule.targets for _, _, payload in entries]


def resident_bytes(entries: Iterable[Entry[Payload]]) -> int:
    """Return the bytes of payload that these entries hold in memory."""
    # A list, since a generator takes twice as long.
    return sum([payload[1] for _, _, payload in entries if payload[2] is not None])


def transaction_bytes(entries: Iterable[Entry[Payload]]) -> int:
    """Return the cost of releasing these entries in a transaction, the sum of their ``scheduled_size``."""
    payloads = [payload for _, _, payload in entries]
    if Packed not in set(map(type, payloads)):
        # Nearly always each entry has one target, and the set of targets is small.
        targets = {payload[0][1] for payload in cast("list[Scheduled]", payloads)}
        if all(len(each) == 1 for each in targets):
            return sum([payload[1] for payload in payloads])
    return sum(map(scheduled_size, payloads))


def size_of(record: Record) -> int:
    """Return about how many bytes a record holds in memory, a fair measure of its cost in a transaction."""
    key, value, headers, _ = record
    size = RESIDENT_OVERHEAD_BYTES + HEADER_OVERHEAD_BYTES * len(headers)
    for _, content in headers:
        if content is not None:
            size += len(content)
    if value is not None:
        size += len(value)
    if key is not None:
        size += len(key)
    return size


def mean_size(records: int, headers: int, size_bytes: int) -> int:
    """Return about the mean of ``size_of`` of some records that take ``size_bytes`` together."""
    return RESIDENT_OVERHEAD_BYTES + (HEADER_OVERHEAD_BYTES * headers + size_bytes) // records


def scheduled_size(payload: Payload) -> int:
    """Return the cost of an accepted record in a transaction, in memory or not: its size, for each target."""
    targets = payload.targets if isinstance(payload, Packed) else payload.schedule.targets
    if isinstance(targets, str) or len(targets) <= 1:
        return payload.size_bytes
    return payload.size_bytes * len(targets)

"""A record of a delay topic as the router keeps it between indexing and release."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import Message

from index.pending import Entry
from index.record import Record
from index.schedule import Rejection, Schedule

RESIDENT_OVERHEAD_BYTES = 500
"""What a record costs in memory beside its key and value: tuples, header list and strings (measured with tracemalloc
for three headers of 20 B; one more header is HEADER_OVERHEAD_BYTES more)."""

HEADER_OVERHEAD_BYTES = 120

# A NamedTuple's own constructor is a Python function and costs three times as much.
_new = tuple.__new__


class Scheduled(NamedTuple):
    """An accepted record: its schedule, its size in a transaction, and the record itself unless it must be re-read."""

    schedule: Schedule
    size_bytes: int
    record: Record | None


class Refused(NamedTuple):
    """A record on its way to the rejected topic."""

    rejection: Rejection
    record: Record


def record_of(message: Message) -> Record:
    """Copy a consumed message out of the client."""
    # The stubs also allow what may only be given to produce; read, headers are a list of (str, bytes | None).
    headers: Any = message.headers()
    return _new(Record, (message.key(), message.value(), headers or (), message.timestamp()[1]))


def scheduled(schedule: Schedule, size_bytes: int, record: Record | None) -> Scheduled:
    """Make a Scheduled, of which there is one for every record."""
    return _new(Scheduled, (schedule, size_bytes, record))


def resident_bytes(entries: Iterable[Entry[Scheduled]]) -> int:
    """Bytes of payload that these entries hold in memory."""
    return sum(payload[1] for _, _, payload in entries if payload[2] is not None)


def size_of(record: Record) -> int:
    """Approximate bytes a record holds in memory, and a fair measure of what it costs in a transaction."""
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


def scheduled_size(scheduled: Scheduled) -> int:
    """Size of an accepted record, whether it is resident or not."""
    return scheduled.size_bytes

"""Reads the records behind an open transaction, and tells by a state whether their sources have left."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from index.protocol.headers import DELAY_DUE, DELAY_SOURCE, DELAY_SOURCE_TIMESTAMP, DELAY_SPREAD
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE
from sidecar.config.model import Config
from sidecar.engine.ports import Place
from sidecar.kafka.client import clients
from sidecar.kafka.reading.scan import PartitionScan, each_of_part
from snapshots.state.state import StoredState

_READ_WITHIN_S: Final = 5.0


class Hidden(NamedTuple):
    """A record behind the open transaction: its offset, and the delay record that it was made of."""

    offset: int
    source: Place
    source_offset: int
    record: Record


def read_hidden(config: Config, place: Place, within: range) -> Iterator[Hidden]:
    """Yield the records of a range, of open and aborted transactions too.

    The source of a record that names none is a topic without a name. Raise KafkaException when they cannot be read.
    """
    if not within:
        return
    consumer = clients.hidden_reader(config)
    try:
        for message in PartitionScan(consumer, {place: within}).records(silent_for_s=_READ_WITHIN_S):
            # The stubs also allow types that only produce() takes.
            headers: Any = message.headers() or ()
            record = Record(message.key(), message.value(), headers, message.timestamp()[1])
            yield Hidden(message.offset() or 0, *_source_of(record), record)
    finally:
        consumer.close()


def read_visible(config: Config, place: Place, within: range) -> frozenset[int]:
    """Return the offsets of the committed records of a range in which every transaction has ended."""
    consumer = clients.state_reader(config)
    try:
        return frozenset(each.offset for each in each_of_part(consumer, *place, within.start, within.stop))
    finally:
        consumer.close()


def sources_of(records: Iterable[Hidden]) -> set[Place]:
    """Return the delay partitions that these records name as their sources."""
    return {each.source for each in records}


def has_left(stored: StoredState, hidden: Hidden) -> bool:
    """Say whether, by the state, the source of a hidden record has left.

    A record without a time, or with a time that had passed, left as soon as the cursor passed it.
    """
    headers = dict(hidden.record.headers)
    due_ms, sent_ms = _number(headers.get(DELAY_DUE)), _number(headers.get(DELAY_SOURCE_TIMESTAMP)) or 0
    if due_ms is None or due_ms <= sent_ms:
        return stored.has_left(AT_ONCE, hidden.source_offset)
    return stored.has_left(due_ms + (_number(headers.get(DELAY_SPREAD)) or 0), hidden.source_offset)


def has_answered(stored: StoredState, hidden: Hidden) -> bool:
    """Say whether, by the state, the control of a hidden receipt was answered: C passes it in the same transaction."""
    return hidden.source_offset < stored.progress.cursor


def _source_of(record: Record) -> tuple[Place, int]:
    match (dict(record.headers).get(DELAY_SOURCE) or b"").rsplit(b"/", 2):
        case [topic, partition, offset] if partition.isdigit() and offset.isdigit():
            return (topic.decode(errors="replace"), int(partition)), int(offset)
    return ("", 0), 0


def _number(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) < 20 else None  # noqa: PLR2004 - of int64

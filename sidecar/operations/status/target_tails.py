"""Reads the newest records of target topics and counts the records that producers have written there by mistake.

A router removes every ``deliver-*`` header of a record that it releases and adds ``delay-source``. So a record of a
target with a ``deliver-*`` header and without ``delay-source`` was written to the target itself: it was never delayed.

The number of records, of partitions and the time are bounded. The reader commits no offsets and joins no group.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import IsolationLevel, Message
from confluent_kafka.admin import AdminClient, OffsetSpec

from index.protocol.headers import CONTROL_PREFIX, DELAY_SOURCE, Headers, lowered
from sidecar.config.model import Config
from sidecar.engine.ports import Place
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import LogOffset, offsets
from sidecar.kafka.client.errors import error_of, text_of
from sidecar.kafka.reading.handed_over import readable_headers
from sidecar.kafka.reading.scan import PartitionScan, ScanError, Why

NEWEST: Final = 100
"""Offsets that are read of each partition, marks of transactions included."""

MOST_PARTITIONS: Final = 200
"""Partitions that are read of all targets together: at most 20,000 records, with :data:`NEWEST` of each."""

READ_S: Final = 5.0
"""Time for all reads together, since a person waits for ``check``."""


@dataclass(slots=True)
class TargetTail:
    """Counts of the newest records of one target.

    ``unread`` says why some of them were not read, and is empty where all were. ``header`` and ``place`` describe the
    newest record that was written to the target itself.
    """

    records: int = 0
    bypassing: int = 0
    header: str = ""
    place: str = ""
    newest_ms: int = -1
    unread: str = ""


def tails(config: Config, admin: AdminClient, partitions: Mapping[str, int]) -> dict[str, TargetTail]:
    """Return the counts of the newest records of these targets; ``partitions`` gives the partition count of each."""
    found = {name: TargetTail() for name in partitions}
    places = sorted((number, name) for name, count in partitions.items() for number in range(count))
    for _, name in places[MOST_PARTITIONS:]:
        found[name].unread = f"check reads {MOST_PARTITIONS} partitions at most"
    spans = _spans(admin, [(name, number) for number, name in places[:MOST_PARTITIONS]], found)
    if spans:
        _read(config, spans, found)
    return found


def bypassed_by(headers: Headers) -> str:
    """Return the first control header of a record that no router has released; empty where there is none.

    >>> bypassed_by([("trace", b"1"), ("Deliver-At", b"5")])
    'deliver-at'
    >>> bypassed_by([("deliver-at", b"5"), ("delay-source", b"orders.delay/0/7")])
    ''
    """
    names = [lowered(name) for name, _ in headers]
    if DELAY_SOURCE in names:
        return ""
    return next((name for name in names if name.startswith(CONTROL_PREFIX)), "")


def _spans(admin: AdminClient, places: Iterable[Place], found: Mapping[str, TargetTail]) -> dict[Place, range]:
    """Return the offsets to read of each partition that is not empty; note the error of each that gives no offsets."""
    wanted = [*places]
    ends = offsets(admin, dict.fromkeys(wanted, OffsetSpec.latest()), IsolationLevel.READ_COMMITTED)
    begins = offsets(admin, dict.fromkeys(wanted, OffsetSpec.earliest()), IsolationLevel.READ_COMMITTED)
    spans: dict[Place, range] = {}
    for place in wanted:
        begin, end = begins[place], ends[place]
        if isinstance(begin, LogOffset) and isinstance(end, LogOffset):
            spans[place] = range(max(begin.offset, end.offset - NEWEST), end.offset)
        else:
            failed = end if not isinstance(end, LogOffset) else begin
            assert not isinstance(failed, LogOffset)
            found[place[0]].unread = text_of(failed)
    return {place: span for place, span in spans.items() if span}


def _read(config: Config, spans: Mapping[Place, range], found: Mapping[str, TargetTail]) -> None:
    until_s = time.monotonic() + READ_S
    consumer = clients.bulk_reader(config)
    try:
        scan = PartitionScan(consumer, spans)
        while scan.left and time.monotonic() < until_s:
            try:
                for message in scan.records(until_s):
                    _note(found[message.topic() or ""], message)
            except ScanError as error:
                if error.why is not Why.OUT_OF_TIME and error.place in scan.left:
                    found[error.place[0]].unread = text_of(error_of(error))
                    scan.leave(error.place)
    finally:
        consumer.close()
    for name, _ in scan.left:
        found[name].unread = f"not all of them came within {READ_S:.0f} s"


def _note(tail: TargetTail, message: Message) -> None:
    tail.records += 1
    header, written_ms = bypassed_by(readable_headers(message)), message.timestamp()[1]
    if not header:
        return
    tail.bypassing += 1
    if written_ms >= tail.newest_ms:
        shown = f"{message.topic()}/{message.partition()}/{message.offset()}"
        tail.header, tail.place, tail.newest_ms = header, shown, written_ms

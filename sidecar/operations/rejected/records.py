"""Reads and writes the records of a rejected topic: rejected records, and marks that name those driven again."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Message

from index.errors import DelayRouterError
from index.protocol.headers import (
    DELAY_ERROR,
    DELAY_ERROR_MESSAGE,
    DELAY_OCCURRENCE,
    DELAY_REDRIVEN,
    DELAY_SERIES,
    DELAY_SOURCE,
    RECURRING,
    SERIES,
    Headers,
    lowered,
)
from index.protocol.readers import read_hops
from index.protocol.schedule import Reason
from index.rules.unreadable import are_plain
from sidecar.engine.release.shortening import is_shortened
from sidecar.kafka.reading.handed_over import readable_headers

REDRIVEN_OFFSETS: Final = "delay-redriven-offsets"
"""The only header of a mark."""

MAX_MARKED: Final = 100_000
"""Most offsets in one mark; far more than one transaction drives."""

_ADDED: Final = [DELAY_ERROR, DELAY_ERROR_MESSAGE, DELAY_SOURCE]
_OF_A_SERIES: Final = [DELAY_OCCURRENCE, DELAY_SERIES]
_GONE: Final = frozenset({DELAY_ERROR, DELAY_ERROR_MESSAGE, DELAY_REDRIVEN})
_RECURS: Final = RECURRING.union((SERIES, *_OF_A_SERIES))
_SOURCE: Final = re.compile(r"([^/]+)/([0-9]{1,10})/([0-9]{1,19})")
_RANGE: Final = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")


class RecordPosition(NamedTuple):
    """The position of a record in its delay topic."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class RejectedRecord(NamedTuple):
    """A rejected record; ``headers`` are its original headers, without those that rejecting and driving have added.

    An occurrence of a series also loses the headers that make it recur.
    """

    partition: int
    offset: int
    rejected_ms: int
    source: RecordPosition
    code: str
    message: str
    redriven: int
    """Number of times that it was driven again before."""
    deliver_id: bytes | None
    obstacle: str
    """Reason that it cannot be driven again; empty where it can."""
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def place(self) -> tuple[int, int]:
        """Partition and offset in the rejected topic."""
        return self.partition, self.offset


class Mark(NamedTuple):
    """A mark; ``offsets`` are the offsets of its own partition that were driven again."""

    partition: int
    offsets: frozenset[int]


def read(message: Message, id_names: Iterable[str]) -> RejectedRecord | Mark | None:
    """Return a message of a rejected topic as a record or a mark; None when neither a router nor a redrive wrote it.

    ``id_names`` are the headers that name a schedule, in lower case. Raise DelayRouterError for an unreadable mark.
    """
    headers = readable_headers(message)
    partition, offset = message.partition() or 0, message.offset() or 0
    if [name for name, _ in headers] == [REDRIVEN_OFFSETS]:
        return Mark(partition, _marked(headers[0][1] or b"", f"{message.topic()}/{partition}/{offset}"))
    if [name for name, _ in headers[-3:]] != _ADDED:
        return None
    code, said, whence = (_text(value) for _, value in headers[-3:])
    source = _SOURCE.fullmatch(whence)
    if source is None:
        return None
    came = headers[:-3]
    ids = [value for name, value in came if lowered(name) in id_names]
    return RejectedRecord(
        partition,
        offset,
        message.timestamp()[1],
        RecordPosition(source[1], int(source[2]), int(source[3])),
        code,
        said,
        max((read_hops(value or b"") for name, value in came if name == DELAY_REDRIVEN), default=0),
        ids[-1] if ids else None,
        _obstacle(code, said, is_sure=are_plain(headers)),
        message.key(),
        message.value(),
        _returned(came),
    )


def _returned(came: Headers) -> Headers:
    """Return the headers with which a record goes back.

    An occurrence goes back without the headers that make it recur: its series goes on without it, and a recurring copy
    would begin a second series.
    """
    occurred = [name for name, _ in came[-2:]] == _OF_A_SERIES
    gone = _GONE | _RECURS if occurred else _GONE
    return [header for header in came if lowered(header[0]) not in gone]


def _obstacle(code: str, message: str, *, is_sure: bool) -> str:
    if code == Reason.UNREADABLE or not is_sure:
        return "its headers cannot be handed over as they came"
    return "the rejected topic did not take all of it" if is_shortened(message) else ""


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def mark_headers(offsets: Iterable[int]) -> list[tuple[str, bytes | None]]:
    """Return the headers of a mark.

    >>> mark_headers([20, 17, 21, 22])
    [('delay-redriven-offsets', b'17,20-22')]
    """
    parts: list[str] = []
    for first, last in _runs(sorted(offsets)):
        parts.append(str(first) if first == last else f"{first}-{last}")
    return [(REDRIVEN_OFFSETS, ",".join(parts).encode())]


def _runs(offsets: Sequence[int]) -> Iterable[tuple[int, int]]:
    first = last = -1
    for offset in offsets:
        if offset != last + 1 or first < 0:
            if first >= 0:
                yield first, last
            first = offset
        last = offset
    if first >= 0:
        yield first, last


def _marked(raw: bytes, place: str) -> frozenset[int]:
    """Return the offsets of a mark; raise DelayRouterError for an unreadable one, whose records could go out twice."""
    found: set[int] = set()
    for part in _text(raw).split(","):
        match = _RANGE.fullmatch(part)
        first = int(match[1]) if match else 0
        last = int(match[2] or first) if match else -1
        if not 0 <= last - first < MAX_MARKED - len(found):
            raise DelayRouterError(
                f"{place}: this version cannot read a mark of records driven again; use the version that wrote it"
            )
        found.update(range(first, last + 1))
    return frozenset(found)

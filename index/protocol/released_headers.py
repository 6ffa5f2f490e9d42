"""The headers of a released record, of a rejected one, and of a receipt.

Released: the record's own headers byte for byte, in order, duplicates and nulls kept, without the control headers and
without incoming headers that have names of the router's own. The router's headers follow, so that a reader can trust
them::

    delay-due               b"1767225600000"      epoch ms it was due; its timestamp when it named no time
    delay-spread            b"18541"              ms after that it was to leave, unless 0 (index.rules.spreading)
    delay-source            b"orders.delay/3/42"  topic/partition/offset it waited at
    delay-source-timestamp  b"1767225000000"      its timestamp there, -1 when it had none
    delay-id                as given              only when it was given
    delay-hops              b"1"                  only when a router has released it before, and no time was named since
    delay-occurrence        b"3"                  only of a recurring schedule: its number, from 1
    delay-series            b"orders.delay/3/17"  and topic/partition/offset of its first record

A record whose attempts are counted (index.rules.retrying) has further headers, for each of its targets its own::

    delay-attempt             b"3"       the number of this attempt; incoming headers of these names are dropped
    delay-target              b"orders"  the target of this copy
    delay-attempts-exhausted  b"8"       instead of both, in the dead-letter topic: how many were made; the incoming
                                         headers of the other two names stay

Rejected: all headers as they came, the two headers of an occurrence where the record is one, then ``delay-error``,
``delay-error-message`` and ``delay-source``. Incoming headers of these names stay as well; the router's are the last of
their name, and Kafka's ``Headers.lastHeader`` returns the last.

Receipt of a control: all headers of the control as they came, then ``delay-source``, which is the place of the control.

Decision: ``delay-hops`` ends loops of delay topics that deliver to each other (index.protocol.readers.MAX_HOPS). Within
one configuration such targets are refused; topics of other routers are not known by name. Routers remove headers that
name a time, so a loop between routers alone names no time from its second round on. A record that an application
schedules again, with all its headers, does name one. So only records without a time are counted, and a consumer may
send a record back as often as it likes, unless the delay topic counts attempts.
"""

from index.protocol.headers import (
    DELAY_ATTEMPT,
    DELAY_ATTEMPTS_EXHAUSTED,
    DELAY_DUE,
    DELAY_ERROR,
    DELAY_ERROR_MESSAGE,
    DELAY_HOPS,
    DELAY_ID,
    DELAY_OCCURRENCE,
    DELAY_SERIES,
    DELAY_SOURCE,
    DELAY_SOURCE_TIMESTAMP,
    DELAY_SPREAD,
    DELAY_TARGET,
    RETRY,
    Headers,
    StrippedNames,
    lowered,
)
from index.protocol.readers import read_hops
from index.protocol.recurring import Occurrence
from index.protocol.schedule import AT_ONCE, Attempted, Rejection


class ReleasedHeaders:
    """Builds the headers of the records that one partition releases; used by one thread.

    ``stripped`` comes from the rules. ``source`` is the common beginning of all places, ``topic/partition/``.
    """

    def __init__(self, stripped: StrippedNames, source: str) -> None:
        self._stripped = stripped
        self._source = source.encode() + b"%d"
        self._due_ms = -1
        self._due: tuple[str, bytes] = (DELAY_DUE, b"")

    def of(
        self, headers: Headers, due_ms: int, offset: int, timestamp_ms: int, deliver_id: bytes | None
    ) -> list[tuple[str, bytes | None]]:
        """Return the headers of one record; ``due_ms`` and ``deliver_id`` belong to its schedule.

        AT_ONCE means that no time was named, so the record's own timestamp replaces it. This runs for every released
        record.
        """
        stripped = self._stripped
        released: list[tuple[str, bytes | None]] = []
        for header in headers:
            if not stripped[header[0]]:
                released.append(header)  # noqa: PERF401 -- a comprehension is a call of its own: 0.1 us more
        passed_on = due_ms == AT_ONCE and any(name == DELAY_SOURCE for name, _ in headers)
        if due_ms == AT_ONCE:
            due_ms = max(timestamp_ms, 0)
        if due_ms != self._due_ms:
            # Records leave in the order of their due times, and many share one.
            self._due_ms, self._due = due_ms, (DELAY_DUE, b"%d" % due_ms)
        released += (
            self._due,
            (DELAY_SOURCE, self._source % offset),
            (DELAY_SOURCE_TIMESTAMP, b"%d" % timestamp_ms),
        )
        if deliver_id is not None:
            released.append((DELAY_ID, deliver_id))
        if passed_on:
            hops = max((read_hops(raw or b"") for name, raw in headers if name == DELAY_HOPS), default=0)
            released.append((DELAY_HOPS, b"%d" % (hops + 1)))
        return released


def attempt_headers(
    released: list[tuple[str, bytes | None]], attempt: Attempted, target: str
) -> list[tuple[str, bytes | None]]:
    """Return the headers of a copy of a released record whose attempts are counted.

    >>> attempt_headers([("delay-attempt", b"1"), ("trace", b"7")], Attempted(2), "orders")
    [('trace', b'7'), ('delay-attempt', b'2'), ('delay-target', b'orders')]
    """
    if attempt.exhausted:
        kept = [header for header in released if lowered(header[0]) != DELAY_ATTEMPTS_EXHAUSTED]
        return [*kept, (DELAY_ATTEMPTS_EXHAUSTED, b"%d" % attempt.number)]
    # The count of attempts ends loops, so hops need not.
    kept = [header for header in released if header[0] != DELAY_HOPS and lowered(header[0]) not in RETRY]
    return [*kept, (DELAY_ATTEMPT, b"%d" % attempt.number), (DELAY_TARGET, target.encode())]


def spread_header(shift_ms: int) -> tuple[str, bytes | None]:
    """Return the header of a released record that was to leave ``shift_ms`` after it was due."""
    return DELAY_SPREAD, b"%d" % shift_ms


def series_headers(occurrence: Occurrence, source: str) -> list[tuple[str, bytes | None]]:
    """Return the headers of an occurrence of a recurring schedule, released or rejected; ``source`` as above."""
    return [
        (DELAY_OCCURRENCE, b"%d" % occurrence.number),
        (DELAY_SERIES, f"{source}{occurrence.first_offset}".encode()),
    ]


def rejected_headers(headers: Headers | None, rejection: Rejection, source: str) -> list[tuple[str, bytes | None]]:
    """Build the headers of a rejected record; ``source`` is its whole ``topic/partition/offset``."""
    return [
        *(headers or ()),
        (DELAY_ERROR, rejection.reason.encode()),
        (DELAY_ERROR_MESSAGE, rejection.message.encode()),
        (DELAY_SOURCE, source.encode()),
    ]


def receipt_headers(headers: Headers, source: str) -> list[tuple[str, bytes | None]]:
    """Build the headers of a receipt from the headers of its control; ``source`` is the control's whole place."""
    return [*headers, (DELAY_SOURCE, source.encode())]

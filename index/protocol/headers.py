"""The names of the delay protocol: control headers, their aliases, and the headers that the router adds.

Producers schedule a record by headers, whose names are ASCII and are compared without case::

    deliver-at         not before this instant: epoch milliseconds, or RFC 3339 with an offset
    deliver-after      relative to the record's own timestamp: milliseconds, an ISO 8601 duration, or 10s, 5m, 36h, 7d
    deliver-to         target topic; repeated = fan-out
    deliver-key        key of the released record
    deliver-partition  partition of the target
    deliver-id         the caller's name for this schedule, up to 256 bytes
    deliver-expire-after  how late it may be released at most, counted from its due time: as deliver-after, 0 = no limit

Where the delay topic allows it, further headers make the schedule recur (:mod:`index.protocol.recurring`)::

    deliver-every      again and again, so far apart: as deliver-after
    deliver-cron       at these minutes, five fields, in deliver-timezone (UTC)
    deliver-until      not after this instant: as deliver-at
    deliver-times      so many times
    deliver-missed     after downtime "one" of the missed occurrences, or "all"

Where the delay topic counts attempts, one more (:mod:`index.rules.retrying`)::

    deliver-attempts-max  attempts of this record, 1 to 1000

An *alias* is another header name with one of these roles, and with a unit of its own. With aliases the producers of
another system migrate without a release. ``PRESETS`` holds such sets, taken from the documents and sources of those
systems. One difference stays: etf1 and Karafka release without a key when no target key is given; this router keeps the
key of the record, as for every other record.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
"""Record headers in order, duplicates kept; a null value is None, which differs from an empty one."""

CONTROL_PREFIX: Final = "deliver-"
"""Every header with this prefix belongs to the protocol, known or not, and is removed on release."""

RECURRING: Final = frozenset(
    CONTROL_PREFIX + name for name in ("every", "cron", "timezone", "until", "times", "missed")
)
"""Control headers that make a schedule recur (:mod:`index.protocol.recurring`); rejected where the delay topic does
not allow it."""

SERIES: Final = CONTROL_PREFIX + "series"
"""Header that only routers write, into the next occurrence of a series (:mod:`index.protocol.occurrences`)."""

RESERVED: Final = RECURRING.union(
    CONTROL_PREFIX + name for name in ("cancel", "replace", "move", "if-due", "cancel-where")
)
"""Control headers of the contract that not every delay topic acts on. A delay topic that does not act on one rejects
the record, because releasing it at once would contradict the request."""

ATTEMPTS_MAX: Final = CONTROL_PREFIX + "attempts-max"
"""Control header with the number of attempts of one record, where the delay topic counts attempts."""

DELAY_DUE: Final = "delay-due"
DELAY_SPREAD: Final = "delay-spread"
DELAY_SOURCE: Final = "delay-source"
DELAY_SOURCE_TIMESTAMP: Final = "delay-source-timestamp"
DELAY_ID: Final = "delay-id"
DELAY_HOPS: Final = "delay-hops"
DELAY_OCCURRENCE: Final = "delay-occurrence"
DELAY_SERIES: Final = "delay-series"
DELAY_ERROR: Final = "delay-error"
DELAY_ERROR_MESSAGE: Final = "delay-error-message"
DELAY_REDRIVEN: Final = "delay-redriven"
"""Number of times that a rejected record was redriven. The tool that redrives it writes this header, and a router
passes it on like a header of the user: a producer that makes it up only has its own record redriven less often."""

DELAY_ATTEMPT: Final = "delay-attempt"
DELAY_TARGET: Final = "delay-target"
DELAY_ATTEMPTS_EXHAUSTED: Final = "delay-attempts-exhausted"
RETRY: Final = frozenset((DELAY_ATTEMPT, DELAY_TARGET, DELAY_ATTEMPTS_EXHAUSTED, ATTEMPTS_MAX))
"""Headers of retries. They mean nothing in a delay topic that counts no attempts: there the first three are headers of
the user, which a consumer brings back with its record."""

PROVENANCE: Final = frozenset(
    (
        *(DELAY_DUE, DELAY_SPREAD, DELAY_SOURCE, DELAY_SOURCE_TIMESTAMP, DELAY_ID, DELAY_HOPS),
        *(DELAY_OCCURRENCE, DELAY_SERIES),
    )
)
"""Headers that the router adds to a released record; incoming headers of these names are dropped, in any case."""

OURS: Final = PROVENANCE | {DELAY_ERROR, DELAY_ERROR_MESSAGE, DELAY_REDRIVEN}
"""Every header that the router or its tools write."""

MAX_NAME_CHARS: Final = 256
"""Most characters of an alias; longer names that producers choose are not remembered."""

MAX_TOPIC_CHARS: Final = 249
"""Kafka's own limit: a log directory is ``<topic>-<partition>`` plus a suffix, in at most 255 bytes."""

MAX_REMEMBERED: Final = 4096
"""Most names remembered at once; they take at most 1 MiB."""

_SHOWN_BYTES: Final = 80
_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class HeaderRole(StrEnum):
    """The role of a control header."""

    AT = "at"
    AFTER = "after"
    TO = "to"
    KEY = "key"
    PARTITION = "partition"
    ID = "id"
    EXPIRE = "expire-after"
    KIND = "kind"
    """Must be ``schedule``: systems that send cancellations through the same topic tell the two apart by it."""
    REFUSED = "refused"
    """A request that this router cannot fulfil; ignoring it would deliver something else than was asked for."""
    IGNORED = "ignored"
    """Bookkeeping of the other system: removed on release, without a meaning here."""
    HOPS = "hops"
    """Number of routers in a row that have passed the record on without a time; never an alias."""


class Unit(StrEnum):
    """The notation of the value of a time header; the other roles have only ``NATIVE``."""

    NATIVE = "native"
    """The notation of the ``deliver-`` header of the same role: milliseconds, or its other notations."""
    MS = "ms"
    S = "s"
    US = "us"
    """Microseconds, as Debezium's MicroTimestamp."""
    BE_MS = "be-ms"
    """Milliseconds as a big-endian number of 1 to 8 bytes: Java's LongSerializer, Spring's retry headers."""
    RFC3339 = "rfc3339"
    ISO8601 = "iso8601"
    NSERVICEBUS = "nservicebus"
    """``2030-01-31 08:00:00:000000 Z``, the only form of a time in the headers of NServiceBus."""


class Alias(NamedTuple):
    """Another name for a control header, and the unit that its producers write."""

    name: str
    role: HeaderRole
    unit: Unit = Unit.NATIVE


PRESETS: Final[Mapping[str, tuple[Alias, ...]]] = {
    "activemq": (
        Alias("AMQ_SCHEDULED_DELAY", HeaderRole.AFTER, Unit.MS),
        # Artemis.
        Alias("_AMQ_SCHED_DELIVERY", HeaderRole.AT, Unit.MS),
        Alias("AMQ_SCHEDULED_PERIOD", HeaderRole.REFUSED),
        Alias("AMQ_SCHEDULED_REPEAT", HeaderRole.REFUSED),
        Alias("AMQ_SCHEDULED_CRON", HeaderRole.REFUSED),
        # It removes schedules.
        Alias("AMQ_SCHEDULER_ACTION", HeaderRole.REFUSED),
    ),
    "cesium": (
        Alias("cesium-deliver-at", HeaderRole.AT, Unit.MS),
        Alias("cesium-delay-ms", HeaderRole.AFTER, Unit.MS),
    ),
    "dapr": (
        # Dapr takes an HTTP date too, which is refused here.
        Alias("ScheduledEnqueueTimeUtc", HeaderRole.AT, Unit.RFC3339),
    ),
    "etf1": (
        Alias("scheduler-epoch", HeaderRole.AT, Unit.S),
        Alias("scheduler-target-topic", HeaderRole.TO),
        Alias("scheduler-target-key", HeaderRole.KEY),
    ),
    "karafka": (
        Alias("schedule_target_epoch", HeaderRole.AT, Unit.S),
        Alias("schedule_target_topic", HeaderRole.TO),
        Alias("schedule_target_key", HeaderRole.KEY),
        Alias("schedule_target_partition", HeaderRole.PARTITION),
        Alias("schedule_target_partition_key", HeaderRole.REFUSED),
        Alias("schedule_source_type", HeaderRole.KIND),
        Alias("schedule_schema_version", HeaderRole.IGNORED),
    ),
    "nservicebus": (
        Alias("NServiceBus.DeliverAt", HeaderRole.AT, Unit.NSERVICEBUS),
        # A message for the timeout manager of version 7 and before has this time beside the other.
        Alias("NServiceBus.Timeout.Expire", HeaderRole.REFUSED),
    ),
    "pulsar": (
        Alias("deliverAt", HeaderRole.AT, Unit.MS),
        Alias("deliverAfterMs", HeaderRole.AFTER, Unit.MS),
        Alias("deliverAfterSeconds", HeaderRole.AFTER, Unit.S),
    ),
    "rabbitmq": (Alias("x-delay", HeaderRole.AFTER, Unit.MS),),
    "timebridge": (
        Alias("X-Timebridge-When", HeaderRole.AT, Unit.RFC3339),
        Alias("X-Timebridge-Where", HeaderRole.TO),
    ),
}
"""Header sets of other systems, by the name used in the configuration."""

NATIVE: Final = tuple(
    Alias(CONTROL_PREFIX + role, role)
    for role in (
        HeaderRole.AT,
        HeaderRole.AFTER,
        HeaderRole.TO,
        HeaderRole.KEY,
        HeaderRole.PARTITION,
        HeaderRole.ID,
        HeaderRole.EXPIRE,
    )
)


def lowered(name: str) -> str:
    """Return the name with A to Z in lower case and nothing else changed; header names are compared in this form."""
    return name.translate(_LOWER)


def quoted(raw: bytes | None) -> str:
    r"""Show a header value in a message: printable ASCII, the rest escaped, and capped; safe in any log.

    >>> print(quoted(b"soon\n"), quoted(None))
    'soon\n' null
    """
    if raw is None:
        return "null"
    shown = repr(raw[:_SHOWN_BYTES])[1:]
    return shown if len(raw) <= _SHOWN_BYTES else f"{shown}... ({len(raw)} bytes)"


class StrippedNames(dict[str, bool]):
    """The answer for each header name: is it removed on release? ``stripped[name]``.

    All names that start with ``deliver-`` are removed, every alias, and the provenance names, which the router writes
    itself, all of them in any case. Names seen are remembered, so that a lookup is one step, up to a limit, because
    producers choose them.

    >>> stripped = StrippedNames(["x-due"])
    >>> [name for name in ("deliver-at", "Deliver-Anything", "X-Due", "delay-due", "trace-id") if not stripped[name]]
    ['trace-id']
    """

    def __init__(self, control_names: Iterable[str]) -> None:
        """Take the names of all control headers, aliases included."""
        super().__init__()
        self._ours = PROVENANCE.union(map(lowered, control_names))

    def and_also(self, names: Iterable[str]) -> "StrippedNames":
        """Return answers by which these names are removed, too.

        >>> stripped = StrippedNames(["x-due"]).and_also(RETRY)
        >>> [name for name in ("x-due", "Delay-Attempt", "delay-target", "trace-id") if not stripped[name]]
        ['trace-id']
        """
        return StrippedNames(self._ours.union(names))

    def __missing__(self, name: str) -> bool:
        """Judge a name that is not remembered."""
        plain = lowered(name)
        stripped = plain in self._ours or plain.startswith(CONTROL_PREFIX)
        if len(name) <= MAX_NAME_CHARS:
            if len(self) >= MAX_REMEMBERED:
                self.clear()
            self[name] = stripped
        return stripped

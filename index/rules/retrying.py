"""Retries: a delay topic that counts attempts replaces a ladder of retry topics.

A consumer that fails writes its record to the delay topic, with the headers it has. It comes back after a wait that
grows with each attempt, and after the last attempt it goes to the dead-letter topic::

    delay-attempt  absent ─► 1 s ─► 1 ─► 2 s ─► 2 ─► 4 s ─► 3 ─► ... ─► 128 s ─► 8 ─► dead letter
                   wait: min(first * factor^(n-1), max), sooner by up to its jitter

==========================  ============================================  ==========================================
header                      in a record that comes                        in the record that leaves
==========================  ============================================  ==========================================
``delay-attempt``           attempts so far, 0 to 1000; absent: 0         the number of this attempt
``delay-target``            its target, unless ``deliver-to`` names one   the target that this copy is written to
``deliver-attempts-max``    attempts of this record, 1 to 1000            removed
``delay-attempts-exhausted``  dropped                                     only at the end: attempts that were made
==========================  ============================================  ==========================================

A record is decided as if it had said itself how long to wait and where to go (:class:`Retrying`): the rules without a
retry decide it, with the headers filled in. So all other headers and limits keep their meaning. A time
header of its own replaces the wait of one attempt, which counts. A ``delay-target`` that is not allowed gives way to
the default target.

An exhausted record leaves at once. Its time, targets and expiry are not looked at. It keeps ``delay-attempt`` and
``delay-target``, so that it can be sent again. Nothing loops for ever: delay topics that deliver to each other carry
``delay-attempt`` along, and dead-letter topics that do so count ``delay-hops``.

``delay-attempt`` is not signed. A producer that makes it up has its own record retried more or less often, as
``deliver-attempts-max`` allows anyway. A value that no router writes is INVALID_SCHEDULE, one given twice
AMBIGUOUS_HEADER.

All arithmetic is in whole numbers: a power in floating point may differ between two machines, and then a replay would
decide otherwise than the router before. The jitter comes from the offset, like a spread (:mod:`index.rules.spreading`),
but from another sequence, so that the two never cancel out.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from index.protocol.control_headers import CANCEL, CANCEL_WHERE, MOVE
from index.protocol.headers import (
    ATTEMPTS_MAX,
    DELAY_ATTEMPT,
    DELAY_TARGET,
    MAX_REMEMBERED,
    HeaderRole,
    Headers,
    lowered,
)
from index.protocol.rejections import rank, unreadable
from index.protocol.schedule import (
    AT_ONCE,
    Attempted,
    Control,
    Decision,
    Reason,
    Rejection,
    Schedule,
    schedule_of,
)
from index.protocol.times import INT64_MAX, parse_number
from index.rules.targets import topic_of

MAX_ATTEMPTS: Final = 1_000
"""Most attempts of a record. With the longest wait of a day these are three years."""

ONE: Final = 1_000
"""The factor 1 and the jitter 1, in thousandths."""

MAX_FACTOR: Final = 100 * ONE

_READ: Final = frozenset((DELAY_ATTEMPT, DELAY_TARGET, ATTEMPTS_MAX))
_CHANGES_OTHERS: Final = frozenset((CANCEL, MOVE, CANCEL_WHERE))
_MOST: Final = 1_000_000
_LONGEST_NAME: Final = max(map(len, _READ))
_APPLIED_TO_TARGET: Final = frozenset(
    (HeaderRole.AT, HeaderRole.AFTER, HeaderRole.TO, HeaderRole.PARTITION, HeaderRole.EXPIRE)
)
"""Roles of the headers of an exhausted record that are not looked at."""

_PLASTIC: Final = 0xC13F_A9A9_02A6_328F
"""2**64 divided by the plastic number, odd."""

_FRACTION: Final = (1 << 64) - 1
_new_tuple = tuple.__new__


class Retry(NamedTuple):
    """The retries of a delay topic; factor and jitter are in thousandths.

    >>> retry = Retry(1_000, 2_000, 60_000, 100, 8, "orders.dlq")
    >>> waits_ms(retry)
    (1000, 2000, 4000, 8000, 16000, 32000, 60000)
    """

    first_ms: int
    factor: int
    max_ms: int
    jitter: int
    attempts: int
    dead_letter: str

    def plain(self) -> dict[str, int | str]:
        """Return every field as a JSON value."""
        return dict(zip(self._fields, self, strict=True))

    def refuse_impossible(self) -> None:
        """Raise ValueError, naming the field, when a field cannot be accepted."""
        for name, number, least, most in (
            ("first_ms", self.first_ms, 1, INT64_MAX),
            ("factor", self.factor, ONE, MAX_FACTOR),
            ("max_ms", self.max_ms, 1, INT64_MAX),
            ("jitter", self.jitter, 0, ONE),
            ("attempts", self.attempts, 0, MAX_ATTEMPTS),
        ):
            if not least <= number <= most:
                raise ValueError(f"retry: {name} {number}: expected {least} to {most}")
        if not self.dead_letter and self.attempts:
            raise ValueError("retry: dead_letter: records without an attempt left need a topic; name one")


def thousandths(raw: object) -> int:
    """Return a number in thousandths, rounded; raise ValueError for any other value.

    >>> thousandths(2), thousandths(0.1), thousandths(1.0006)
    (2000, 100, 1001)
    """
    # Python counts true as 1. The comparison also refuses the numbers inf and nan, which TOML has.
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not -_MOST <= raw <= _MOST:
        raise ValueError("a number is needed, as in 2 or 0.25")
    return round(raw * ONE)


@lru_cache(maxsize=256)
def waits_ms(retry: Retry) -> tuple[int, ...]:
    """Return the wait of each attempt, rounded up, up to the first wait that all further attempts share."""
    waits: list[int] = []
    grown, divisor = retry.first_ms, 1
    while len(waits) < MAX_ATTEMPTS:
        waits.append(min(-(-grown // divisor), retry.max_ms))
        if waits[-1] == retry.max_ms or retry.factor == ONE:
            break
        grown, divisor = grown * retry.factor, divisor * ONE
    return tuple(waits)


def wait_ms(retry: Retry, number: int) -> int:
    """Return the wait of an attempt; its number begins with 1."""
    waits = waits_ms(retry)
    return waits[min(number, len(waits)) - 1]


def jitter_ms(retry: Retry, own_ms: int) -> int:
    """Return how much sooner than a wait of ``own_ms`` a record may leave."""
    return own_ms * retry.jitter // ONE


def attempts_of(retry: Retry, headers: Headers) -> int:
    """Return the number of attempts of an accepted record: its own limit, or that of its delay topic.

    >>> retry = Retry(1_000, 2_000, 60_000, 100, 8, "orders.dlq")
    >>> attempts_of(retry, []), attempts_of(retry, [("Deliver-Attempts-Max", b"3")])
    (8, 3)
    """
    return next((_count(value) for name, value in headers if lowered(name) == ATTEMPTS_MAX), retry.attempts)


def ladder(retry: Retry) -> Iterator[tuple[int, int, int, int]]:
    """Yield each attempt: its number, the shortest and the longest wait, and the sum of the longest waits so far.

    >>> list(ladder(Retry(1_000, 2_000, 3_000, 100, 3, "dlq")))
    [(1, 900, 1000, 1000), (2, 1800, 2000, 3000), (3, 2700, 3000, 6000)]
    """
    total_ms = 0
    for number in range(1, retry.attempts + 1):
        most_ms = wait_ms(retry, number)
        total_ms += most_ms
        yield number, most_ms - jitter_ms(retry, most_ms), most_ms, total_ms


def sooner(schedule: Schedule, timestamp_ms: int, offset: int) -> Schedule:
    """Return the schedule of the record at an offset, with its wait shortened by its jitter.

    >>> from index.rules.rules import Rules
    >>> rules = Rules("d", default_target="t", retry=Retry(1_000, 2_000, 60_000, 100, 8, "dlq"))
    >>> [rules.placed(rules.decide([], 0), 0, offset).due_ms for offset in range(5)]
    [1000, 925, 950, 974, 999]
    """
    attempt, due_ms = schedule.attempt, schedule.due_ms
    if attempt is None or not attempt.jitter_ms or due_ms == AT_ONCE or due_ms <= timestamp_ms:
        return schedule
    sooner_ms = (offset * _PLASTIC & _FRACTION) * attempt.jitter_ms >> 64
    return _new_tuple(Schedule, (due_ms - sooner_ms, *schedule[1:]))


class PlainRules(Protocol):
    """Rules that count no attempts."""

    def role(self, name: str, /) -> HeaderRole | None:
        """Return the role of a header name."""

    def decide(self, headers: Headers | None, timestamp_ms: int, /) -> Decision:
        """Decide a record."""

    def names_time(self, headers: Headers | None, /) -> bool:
        """Return whether the record names a time."""

    def allowed(self, target: str, /) -> bool:
        """Return whether records may be released to a topic."""


class _Given(NamedTuple):
    """The headers of retries in a record: the number of this attempt, and how many there are."""

    number: int
    most: int


class Retrying:
    """Decides the records of a delay topic that counts attempts.

    ``plain`` decides records that have an attempt left, and ``dead`` the others, whose only target is the dead-letter
    topic.
    """

    __slots__ = ("_dead", "_plain", "_retry")

    def __init__(self, retry: Retry, plain: PlainRules, dead: PlainRules) -> None:
        self._retry = retry
        self._plain = plain
        self._dead = dead

    def decide(self, headers: Headers, timestamp_ms: int) -> Decision:
        """Decide one record: as it would be decided if it named its wait and its target."""
        own: dict[str, bytes | None] = {}
        others: list[tuple[str, bytes | None]] = []
        changes_others = False
        for header in headers:
            name = header[0]
            # Names that producers choose may be long, and are not remembered then.
            plain = known_name(name) if len(name) <= _LONGEST_NAME else ""
            if plain not in _READ:
                others.append(header)
                changes_others = changes_others or plain != ""
                continue
            if plain in own:
                return Rejection(Reason.AMBIGUOUS_HEADER, f"{name}: is given more than once")
            own[plain] = header[1]
        if changes_others:
            # It is no schedule, so there is no attempt to count.
            return self._plain.decide(others, timestamp_ms)
        given = self._given(own)
        if isinstance(given, Rejection):
            decision = self._plain.decide(others, timestamp_ms)
            return min(given, decision, key=rank) if isinstance(decision, Rejection) else given
        if given.number > given.most:
            return self._exhausted(others, timestamp_ms, given.number - 1)
        return self._next(others, timestamp_ms, given.number, own.get(DELAY_TARGET))

    def _given(self, own: dict[str, bytes | None]) -> _Given | Rejection:
        number, most = 1, self._retry.attempts
        for name, least in ((DELAY_ATTEMPT, 0), (ATTEMPTS_MAX, 1)):
            if name not in own:
                continue
            raw = own[name]
            value = _count(raw)
            if not least <= value <= MAX_ATTEMPTS:
                return unreadable(name, raw, ValueError(f"expected a number from {least} to {MAX_ATTEMPTS}"))
            number, most = (value + 1, most) if name == DELAY_ATTEMPT else (number, value)
        return _Given(number, most)

    def _next(
        self, headers: list[tuple[str, bytes | None]], timestamp_ms: int, number: int, target: bytes | None
    ) -> Decision:
        sooner_ms, role = 0, self._plain.role
        names_target = target is None or any(role(name) == HeaderRole.TO for name, _ in headers)
        if not names_target and self._plain.allowed(topic_of(target)):
            headers = [*headers, ("deliver-to", target)]
        if not self._plain.names_time(headers):
            own_ms = wait_ms(self._retry, number)
            headers = [*headers, ("deliver-after", b"%d" % own_ms)]
            sooner_ms = jitter_ms(self._retry, own_ms)
        return _counted(self._plain.decide(headers, timestamp_ms), Attempted(number, jitter_ms=sooner_ms))

    def _exhausted(self, headers: list[tuple[str, bytes | None]], timestamp_ms: int, made: int) -> Decision:
        role = self._plain.role
        kept = [header for header in headers if role(header[0]) not in _APPLIED_TO_TARGET]
        decision = self._dead.decide(kept, timestamp_ms)
        schedule = schedule_of(decision)
        if schedule is not None:
            # No lateness keeps it from the dead-letter topic.
            decision = _with(decision, schedule._replace(expire_after_ms=0))
        return _counted(decision, Attempted(made, exhausted=True))


@lru_cache(maxsize=MAX_REMEMBERED)
def known_name(name: str) -> str:
    """Return the plain name of a header that decides here; empty for all others."""
    plain = lowered(name)
    return plain if plain in _READ or plain in _CHANGES_OTHERS else ""


def _count(raw: bytes | None) -> int:
    """Read a number; return -1 for a value that no router writes."""
    try:
        return parse_number(raw or b"")
    except ValueError:
        return -1


def _counted(decision: Decision, attempt: Attempted) -> Decision:
    schedule = schedule_of(decision)
    # Schedule._replace takes three times as long.
    return decision if schedule is None else _with(decision, _new_tuple(Schedule, (*schedule[:-1], attempt)))


def _with(decision: Decision, schedule: Schedule) -> Decision:
    return decision._replace(schedule=schedule) if isinstance(decision, Control) else schedule

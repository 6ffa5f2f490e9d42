"""Counts the attempts of one partition, where its delay topic counts them (:mod:`index.rules.retrying`).

The counts of the last whole minute are a rate, and say how it is now. The counts since the take-over also show an
event that comes once an hour. The places of the last exhausted records are remembered, so that people can look them up.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from index.partition.survey import MINUTE_MS
from index.protocol.schedule import ATTEMPT_LABELS, Attempted
from sidecar.clock import Clock

REMEMBERED: Final = 5
"""Exhausted records of a partition that are remembered: each is part of every report."""

_PLACES: Final = {label: place for place, label in enumerate(ATTEMPT_LABELS)}
_EXHAUSTED: Final = len(ATTEMPT_LABELS)
_NOTHING: Final = (0,) * (len(ATTEMPT_LABELS) + 1)


class AttemptCounts(NamedTuple):
    """The attempts of one partition.

    * ``since_ms``: the time of its take-over.
    * ``released``: released records by ATTEMPT_LABELS, and last the exhausted ones, since then.
    * ``last_minute``: the same of the last whole minute; empty before the end of the first one.
    * ``exhausted``: the newest exhausted records, the last one last: the offset of each, and the time of its release.
    """

    since_ms: int
    released: tuple[int, ...] = _NOTHING
    last_minute: tuple[int, ...] = ()
    exhausted: tuple[tuple[int, int], ...] = ()

    def plain(self) -> dict[str, object]:
        """Return every field as a JSON value."""
        return dict(zip(self._fields, self, strict=True))


class AttemptCounter:
    """Counts the attempts of a partition that is taken over now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms = clock.now_ms()
        self._began_s = clock.running_s()
        self._released = self._this_minute = _NOTHING
        self._last_minute: tuple[int, ...] = ()
        self._minute = 0
        self._exhausted: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)

    def add(self, attempts: Sequence[tuple[int, Attempted]]) -> tuple[int, ...]:
        """Count the attempts that have just been released, each with its offset; return their counts."""
        self._turn()
        counts = [*_NOTHING]
        now_ms = self._clock.now_ms()
        # Thousands of records share a few attempts.
        for attempt, count in Counter([attempt for _, attempt in attempts]).items():
            counts[_EXHAUSTED if attempt.exhausted else _PLACES[attempt.label]] += count
        if counts[_EXHAUSTED]:
            self._exhausted.extend((offset, now_ms) for offset, attempt in attempts if attempt.exhausted)
        self._released = _sum(self._released, counts)
        self._this_minute = _sum(self._this_minute, counts)
        return tuple(counts)

    def counts(self) -> AttemptCounts:
        """Return the counts as of now."""
        self._turn()
        return AttemptCounts(self._since_ms, self._released, self._last_minute, tuple(self._exhausted))

    def _turn(self) -> None:
        minute = int((self._clock.running_s() - self._began_s) * 1_000) // MINUTE_MS
        if minute != self._minute:
            self._last_minute = self._this_minute if minute == self._minute + 1 else _NOTHING
            self._minute, self._this_minute = minute, _NOTHING


def _sum(one: Iterable[int], other: Iterable[int]) -> tuple[int, ...]:
    return tuple(map(sum, zip(one, other, strict=True)))

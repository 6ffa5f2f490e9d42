"""What was read of state topics before, so that who looks again reads only what is new since.

A state topic grows with every transaction until it is compacted, to hundreds of megabytes where much was cancelled;
what is left of it is small.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Final, NamedTuple, TypeVar

from index.errors import FormatError
from sidecar.finding.remembered import Remembered
from sidecar.ports import Stored

MOST_BYTES: Final = 64 * 1_048_576
"""Of what is left of all of them; what was not asked for longest is forgotten first."""

_RECORD_BYTES: Final = 200

T = TypeVar("T")

Latest = dict[bytes | None, bytes]
"""The last value of each key."""

ReadSince = Callable[[int], tuple[Iterable[Stored], int]]
"""Reads what is settled of a partition from an offset on; also where that ended."""


class _Known(NamedTuple):
    latest: Latest
    read_to: int


class KnownStates:
    """Of all partitions that were looked at; any thread may ask.

    >>> states = KnownStates()
    >>> log = [Stored(0, b"a", b"1"), Stored(1, b"b", b"2"), Stored(2, b"a", None)]
    >>> states.latest(("orders.delay-state", "its id", 0), lambda offset: (log[offset:], len(log)))
    {b'b': b'2'}
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._known = Remembered[Hashable, _Known](most_bytes)

    def folded(self, place: Hashable, read: ReadSince, fold: Callable[[Latest], T]) -> T:
        """What ``fold`` makes of the state at a place, which is read from its beginning where it refuses the rest.

        What was removed leaves a trace for as long as the topic keeps tombstones, ten minutes as ``init`` makes it. Who
        looks again later may remember something that is not there any more, which the progress does not know of.
        """
        is_known = self._known.get(place) is not None
        try:
            return fold(self.latest(place, read))
        except FormatError:
            if not is_known:
                raise
            self._known.forget(place)
            return fold(self.latest(place, read))

    def latest(self, place: Hashable, read: ReadSince) -> Latest:
        """What is left of the state at a place, which is another when its topic was created again."""
        known = self._known.get(place) or _NOTHING
        latest = dict(known.latest)
        records, read_to = read(known.read_to)
        for _, key, value in records:
            # At the end, in the order of the log.
            latest.pop(key, None)
            if value is not None:
                latest[key] = value
        size_bytes = sum(_RECORD_BYTES + len(key or b"") + len(value) for key, value in latest.items())
        self._known.keep(place, _Known(latest, read_to), size_bytes)
        return dict(latest)


_NOTHING: Final = _Known({}, 0)

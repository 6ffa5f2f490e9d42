"""The recurring schedules of a delay partition, found in its log alone, for a partition whose state is begun anew.

The log holds the pending occurrence of a series and the ones that have left, because each was a record of it. Only the
last record of a series can be pending: the transaction that writes it has released, moved or begun the one before. A
state that is begun anew must not release the others: each of them would be followed by a next one, and the series would
go on several times::

    log   ── F ──── 2 ──── 3 ──── 4 ──►      F the first record of a series, 2 to 4 its occurrences
             gone   gone   gone   pending

Only signed records count (:mod:`index.protocol.occurrences`): no record of a producer can take the place of the last.

The last record is gone, too, where a control has taken it in transit (:mod:`index.named.transit`)::

    log   ── 3 ──── X ──── 4 ──►      3 has left and is followed by 4; X cancels or replaces their id

If X had been read before 3 left, it would have taken 3, and 4 would not have been written. So X was read later, and has
taken 4. A moved occurrence follows its move in this respect: a control that is read before the move is written takes
the move, and one that is read later takes the moved occurrence.

The rules of the replay say which records are controls, and which id a schedule has. A series goes on if it was ended in
transit by a control with ``deliver-if-due`` or ``deliver-cancel-where``, which may have met only the occurrence before,
or by one whose id no recurring schedule in front of it has that is still in the log.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from pyroaring import BitMap64, FrozenBitMap64

from index.named.mask import Mask
from index.named.transit import NO_ID, InTransit, Lot
from index.pending.progress import Position
from index.protocol.control_headers import NAMES
from index.protocol.headers import DELAY_SOURCE, Headers, lowered
from index.protocol.occurrences import is_ours
from index.protocol.record import Record
from index.protocol.recurring import Recurrence, may_recur, recurrence_of
from index.protocol.schedule import Action, Control, Decision, schedule_of

Decide: TypeAlias = Callable[[Headers, int], Decision]
"""Decides a record from its headers and its timestamp."""


class SeriesInLog(NamedTuple):
    """The recurring schedules that are found in a log.

    * ``gone``: offsets of records that have left, because a later record of their series follows, or that a control has
      taken in transit.
    * ``known``: how many series have an occurrence in the log that the key has signed.
    * ``unknown``: how many others have an occurrence there; a router with this key will take these for forged.
    """

    gone: FrozenBitMap64 = FrozenBitMap64()
    known: int = 0
    unknown: int = 0

    @property
    def mask(self) -> Mask:
        """The mask that keeps the gone records from being released again; not stored yet."""
        mask = Mask()
        mask.add(self.gone)
        return mask

    def transit(self, cursor: int) -> Mapping[Lot, Sequence[InTransit]]:
        """Return a note that makes a router ask the mask about records from ``cursor`` on, if the mask has any of them.

        A router asks the mask about records that it reads for the first time only up to the last one in transit. No id
        has the hash of the note.
        """
        if not self.gone or self.gone.max() < cursor:
            return {}
        return {(0, 0): (InTransit(Position(0, self.gone.max()), NO_ID),)}


class _Taken:
    """The offset of the last control that takes every schedule of an id, for each id of a recurring schedule."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self._last: dict[bytes, int] = {}

    def read(self, offset: int, record: Record, *, recurs: bool) -> int:
        """Read the next record; return the offset of the last control in front of it that takes its id, or -1."""
        if not recurs and not any(lowered(name) in NAMES for name, _ in record.headers):
            return -1
        decision, before = self._decide(record.headers, record.timestamp_ms), -1
        schedule = schedule_of(decision) if recurs else None
        if schedule is not None and schedule.deliver_id is not None:
            before = self._last.setdefault(schedule.deliver_id, -1)
        if isinstance(decision, Control) and _takes_all(decision) and decision.deliver_id in self._last:
            self._last[decision.deliver_id] = offset
        return before


def series_in_log(records: Iterable[tuple[int, Record]], key: bytes, from_offset: int, decide: Decide) -> SeriesInLog:
    """Find the series that ``key`` signs in a log, from its records by offset.

    Only offsets from ``from_offset`` on are reported as gone. ``decide`` has the rules of the replay.
    """
    taken = _Taken(decide)
    last: dict[int, int] = {}
    unknown: set[int] = set()
    gone = BitMap64()
    for offset, record in records:
        recurs = may_recur(record.headers)
        taken_at = taken.read(offset, record, recurs=recurs)
        recurrence = recurrence_of(record.headers) if recurs else None
        if not isinstance(recurrence, Recurrence) or recurrence.occurrence is None:
            continue
        first = recurrence.occurrence.first_offset
        if is_ours(record, recurrence, key):
            gone.add(last.get(first, first))
            last[first] = offset
            if taken_at > _source(record, offset):
                gone.add(offset)
        else:
            unknown.add(first)
    gone.remove_range(0, from_offset)
    return SeriesInLog(FrozenBitMap64(gone), len(last), len(unknown - last.keys()))


def _takes_all(control: Control) -> bool:
    return control.action in (Action.CANCEL, Action.REPLACE) and control.if_due_ms is None


def _source(record: Record, offset: int) -> int:
    """Return the offset of the record that a signed occurrence was written for: the one before it, or its move.

    An occurrence that does not name that record counts as its own source: no control lies in between.
    """
    named = [raw or b"" for name, raw in record.headers if name == DELAY_SOURCE]
    return int(named[-1].rpartition(b"/")[2]) if named else offset

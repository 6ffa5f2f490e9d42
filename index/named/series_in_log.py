"""The recurring schedules of a delay partition, found in its log alone, for a partition whose state is begun anew.

The log holds the pending occurrence of a series and the ones that have left, because each was a record of it. Only the
last record of a series can be pending: the transaction that writes it has released, moved or begun the one before. A
state that is begun anew must not release the others: each of them would be followed by a next one, and the series would
go on several times::

    log   ── F ──── 2 ──── 3 ──── 4 ──►      F the first record of a series, 2 to 4 its occurrences
             gone   gone   gone   pending

Only signed records count (:mod:`index.protocol.occurrences`): no record of a producer can take the place of the last.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pyroaring import BitMap64, FrozenBitMap64

from index.named.mask import Mask
from index.named.transit import NO_ID, InTransit, Lot
from index.pending.progress import Position
from index.protocol.occurrences import is_ours
from index.protocol.record import Record
from index.protocol.recurring import Recurrence, may_recur, recurrence_of


class SeriesInLog(NamedTuple):
    """The recurring schedules that are found in a log.

    * ``gone``: offsets of records that have left, because a later record of their series follows.
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


def series_in_log(records: Iterable[tuple[int, Record]], key: bytes, from_offset: int) -> SeriesInLog:
    """Find the series that ``key`` signs in a log, from its records by offset.

    Only offsets from ``from_offset`` on are reported as gone.
    """
    last: dict[int, int] = {}
    unknown: set[int] = set()
    gone = BitMap64()
    for offset, record in records:
        recurrence = recurrence_of(record.headers) if may_recur(record.headers) else None
        if not isinstance(recurrence, Recurrence) or recurrence.occurrence is None:
            continue
        first = recurrence.occurrence.first_offset
        if is_ours(record, recurrence, key):
            gone.add(last.get(first, first))
            last[first] = offset
        else:
            unknown.add(first)
    gone.remove_range(0, from_offset)
    return SeriesInLog(FrozenBitMap64(gone), len(last), len(unknown - last.keys()))

"""The number of cancelled records that are still counted among the pending ones.

A cancelled record cannot be taken out of a bucket, nor out of one that is being sealed: it stays until W reaches it,
and the mask drops it then (:mod:`index.named.mask`). Until then the counts of memory and of segments include it,
although it is not pending. The mask does not give the number of such records: it also holds records that were cancelled
before they were sealed, and records that W has passed. So they are counted here, and the progress has the number of
them in buckets (``Progress.cancelled``)::

    a receipt is committed ──► +1 for each schedule of it that stays where it is
    W passes a cancelled one ──► -1

The schedule of a move is cancelled, and leaves the count again if the record that replaces it cannot be written.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from pyroaring import BitMap64

from index.named.receipts import Receipt
from index.pending.pending import Entry
from index.pending.progress import Position

P = TypeVar("P")

_BEHIND_ALL: Final = 1 << 63


class CountedStill:
    """The counts of one owned partition, and the offsets of the cancelled records that are still to be sealed.

    ``plan`` counts for the next transaction, ``spare`` corrects it, and ``confirm`` takes over the counts once it is
    committed.
    """

    def __init__(self) -> None:
        self._unsealed = BitMap64()
        self._planned = BitMap64()
        self._new = BitMap64()

    def __len__(self) -> int:
        """Return how many cancelled records are counted and in no bucket."""
        return len(self._unsealed)

    @property
    def offsets(self) -> BitMap64:
        """The offsets of the counted records that are in no bucket; read-only."""
        return self._unsealed

    def plan(
        self,
        in_buckets: int,
        passed: Sequence[Entry[P]],
        receipts: Iterable[Receipt],
        stays: Callable[[Position], bool],
        unsealed_from: int,
        sealed_to: int | None,
    ) -> int:
        """Return how many cancelled records are in buckets after the next transaction; ``in_buckets`` were before it.

        ``passed`` are the cancelled records that W passes with it. ``stays`` returns whether a schedule named in one of
        the ``receipts`` lies behind W in a bucket or in entries that are being sealed. All offsets below
        ``unsealed_from`` are in a bucket; if the transaction installs a sealed bucket, all below ``sealed_to`` are in
        one afterwards.
        """
        cancelled = [place for receipt in receipts for place in receipt.cancelled]
        fresh = {place.offset for place in cancelled}
        gone = BitMap64(offset for _, offset, _ in passed if offset not in fresh)
        self._new = BitMap64(place.offset for place in cancelled if stays(place))
        in_bucket = _below(self._new, unsealed_from)
        in_buckets += len(in_bucket) - len(gone - self._unsealed)
        self._planned = (self._unsealed - gone) | (self._new - in_bucket)
        if sealed_to is not None:
            sealed = _below(self._planned, sealed_to)
            self._planned -= sealed
            in_buckets += len(sealed)
        # The mask of a restored state was not counted, so more records may pass than were counted.
        return max(0, in_buckets)

    def spare(self, offset: int) -> int:
        """Take a schedule that stays pending out of the planned count; return how many fewer are in buckets: 0 or 1."""
        if offset not in self._new:
            return 0
        self._new.discard(offset)
        if offset not in self._planned:
            return 1
        self._planned.discard(offset)
        return 0

    def confirm(self) -> None:
        """Take over the counts of the committed transaction."""
        self._unsealed = self._planned


def _below(offsets: BitMap64, limit: int) -> BitMap64:
    """Return the offsets below a limit.

    Without a loop: each loop over an empty bitmap leaks 224 bytes in pyroaring 1.2.0, and this is called for each
    transaction.
    """
    below = BitMap64(offsets)
    below.remove_range(limit, _BEHIND_ALL)
    return below

"""Named schedules of one delay partition: controls that are evaluated, receipts that are owed, and what is masked.

A control is owed like a rejection: it is evaluated when it is indexed, against everything pending in front of it, and
its receipt leaves in the next transaction, which moves C past it::

    control ──► evaluate ──► receipt owed ──────────► receipt in flight ──► done
                   │         what it cancels          what it cancels
                   └───────► is *doomed*: it stays ──► is in the *mask*, ──► let go of in memory
                             where it is              and does not leave

What is doomed is not let go of before the receipt is committed. Were it, S or W or C could pass it first, and whoever
took over from there would evaluate the control again and find nothing: neither released nor in a receipt.

[S, C) is not evaluated again after a restart: what its controls cancelled is in the mask.

What the router has appended to the partition and not read yet is pending, too (:mod:`index.transit`). What a control
moves is appended with its receipt. So the next control of the same id is only evaluated after that (``is_moving``):
before, there is nothing that it could find, neither what was moved nor what takes its place.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pyroaring import BitMap64

from index.mask import Mask
from index.names import Names, hash_of
from index.pending import Entry
from index.progress import Position
from index.receipts import Control, Receipt, receipt_of
from index.record import Record
from index.transit import Transit

P = TypeVar("P")


class NamedSchedules:
    """Of one owned partition; the caller tells what is pending."""

    def __init__(self, mask: Mask, transit: Transit) -> None:
        self.mask = mask
        self.transit = transit
        self.names = Names()
        self._receipts: list[Receipt] = []
        self._doomed = BitMap64()
        self._in_flight: list[Receipt] = []
        self._moving: set[bytes] = set()

    @property
    def owed(self) -> int:
        """How many receipts must leave."""
        return len(self._receipts)

    @property
    def doomed(self) -> BitMap64:
        """Offsets of what a receipt speaks of that has not been committed: they must not leave."""
        return self._doomed

    @property
    def first_owed(self) -> int | None:
        """Offset of the first control whose receipt must leave."""
        return self._receipts[0].offset if self._receipts else None

    @property
    def last_owed(self) -> int:
        """Offset of the last control whose receipt must leave; there must be one."""
        return self._receipts[-1].offset

    def evaluate(
        self,
        offset: int,
        control: Control,
        record: Record,
        due_ms: int | None,
        held: Mapping[Position, int],
        is_pending: Callable[[Position], bool],
    ) -> Receipt:
        """Evaluate a control; its receipt is owed from here on.

        ``due_ms`` is set where it is a schedule itself, as it was asked for; ``held`` are places of its id that
        wait behind W, and how long after they were asked for.
        """
        id_hash = hash_of(control.deliver_id)
        known = {*held, *filter(is_pending, self.names.find(id_hash))}
        pending = [place for place in known if place.offset < offset] + self.transit.find(id_hash, offset)
        live = [place for place in pending if self._is_live(place.offset)]
        in_log_order = tuple(sorted(live, key=lambda place: place.offset))
        asked_ms = self.names.asked_ms(in_log_order)
        asked_ms |= {place.offset: place.due_ms - shift_ms for place, shift_ms in held.items() if shift_ms}
        receipt = receipt_of(offset, control, in_log_order, due_ms, record, asked_ms)
        self._receipts.append(receipt)
        self._doomed.update(receipt.masks)
        if receipt.moved is not None:
            self._moving.add(control.deliver_id)
        return receipt

    def is_moving(self, deliver_id: bytes) -> bool:
        """Whether a receipt is owed that moves a schedule of this id: another control of it has to wait."""
        return deliver_id in self._moving

    def is_cancelled(self, offset: int) -> bool:
        """Whether a control has cancelled what is being read at this offset, which was in transit then."""
        return offset < self.transit.reaches and not self._is_live(offset)

    def sweep(self, is_pending: Callable[[Position], bool]) -> None:
        """Let go of what has left, if it is time to."""
        if self.names.must_sweep:
            self.names.sweep(lambda place: self._is_live(place.offset) and is_pending(place))

    def cursor_before_doomed(self, cursor: int, late: Sequence[Entry[P]]) -> int:
        """How far C may go when it stays in front of a late record that is not due, at ``cursor``.

        Receipts from there on stay, and then C must not pass a late record that one of them has cancelled.
        """
        while True:
            doomed = BitMap64(o for each in self._receipts if each.offset >= cursor for o in each.masks)
            held_back = min((offset for _, offset, _ in late if offset < cursor and offset in doomed), default=cursor)
            if held_back == cursor:
                return cursor
            cursor = held_back

    def leave(self, cursor: int) -> list[Receipt]:
        """The receipts of the next transaction, which moves C to ``cursor``; what they cancel is masked by it."""
        assert not self._in_flight, "receipts are in flight already"
        self._in_flight = [each for each in self._receipts if each.offset < cursor]
        self._receipts = [each for each in self._receipts if each.offset >= cursor]
        self._moving = {each.control.deliver_id for each in self._receipts if each.moved is not None}
        for receipt in self._in_flight:
            self.mask.add(receipt.masks)
        self.transit.leave(cursor)
        return self._in_flight

    def confirm(self) -> list[Position]:
        """The transaction was committed; returns the schedules that were cancelled by it."""
        cancelled = [place for receipt in self._in_flight for place in receipt.cancelled]
        for receipt in self._in_flight:
            if receipt.cancelled:
                self.names.remove(hash_of(receipt.control.deliver_id), receipt.cancelled)
        self._doomed -= BitMap64(o for receipt in self._in_flight for o in receipt.masks)
        self._in_flight = []
        self.mask.committed()
        self.transit.confirm()
        return cancelled

    def check(self) -> None:
        """Assert every invariant."""
        self.mask.check()
        self.names.check()
        self.transit.check()
        offsets = [receipt.offset for receipt in (*self._in_flight, *self._receipts)]
        assert offsets == sorted(set(offsets))
        assert self._moving == {each.control.deliver_id for each in self._receipts if each.moved is not None}
        cancelled = [offset for receipt in (*self._in_flight, *self._receipts) for offset in receipt.masks]
        assert len(cancelled) == len(set(cancelled)), "a schedule is in two receipts"
        assert BitMap64(cancelled) == self._doomed
        assert not any(offset in self.mask for receipt in self._receipts for offset in receipt.masks)

    def _is_live(self, offset: int) -> bool:
        return offset not in self._doomed and offset not in self.mask

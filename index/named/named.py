"""Named schedules of one delay partition: evaluated controls, receipts that are owed, and cancelled offsets.

A control is owed like a rejection: it is evaluated when it is indexed, against everything pending in front of it, and
its receipt leaves in the next transaction, which moves C past it::

    control ──► evaluate ──► receipt owed ──────────► receipt in flight ──► done
                   │         its schedules            its schedules
                   └───────► are *doomed*: they ────► are in the *mask* ──► leave memory
                             stay where they are      and are not released

A doomed schedule stays in memory until the receipt is committed. Otherwise S or W or C could pass it first. An owner
that took over then would evaluate the control again and not find the schedule: it would be neither released nor in a
receipt.

[S, C) is not evaluated again after a restart: the schedules that its controls cancelled are in the mask.

Records that the router has appended to the partition and not read yet are pending, too (:mod:`index.named.transit`). A
schedule that a control moves is appended together with the receipt. Until then the next controls of the same id apply
to the record that the move will write: to them the schedule is pending at the offset of the move. It lies behind all
others of its id, as its record will::

    log       S ──── move 1 ──── move 2 ──── cancel       S a schedule; all three controls have its id
    receipts         S           move 1      move 2       the schedule that each of them cancels
    mask             S                                    nothing is written for move 1 and move 2

The transaction writes only the moves that no other control has taken until then. Such a chain of receipts leaves as a
whole: C does not stop between two of its links.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, islice
from typing import Final, TypeVar

from pyroaring import BitMap64

from index.named.mask import Mask
from index.named.names import Names, hash_of
from index.named.queries import Queries, Query
from index.named.receipts import ControlOutcome, Matched, Receipt, receipt_of
from index.named.transit import Transit
from index.pending.pending import Entry
from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.schedule import Control
from index.protocol.where import parse_where

P = TypeVar("P")

IsPending = Callable[[Position], bool]

MANY: Final = 16
"""Places that have left are removed only where there are more than this, because a removal has a cost of its own."""


class NamedSchedules:
    """The named schedules of one owned partition; the caller tells whether a place is pending."""

    def __init__(self, mask: Mask, transit: Transit, queries: Queries | None = None) -> None:
        self.mask = mask
        self.transit = transit
        self.queries = queries or Queries()
        self.names = Names()
        self._receipts: list[Receipt] = []
        self._doomed = BitMap64()
        self._in_flight: list[Receipt] = []
        self._moved: dict[bytes, list[Position]] = {}
        self._links: list[Receipt] = []

    @property
    def owed(self) -> int:
        """Number of receipts that must leave."""
        return len(self._receipts)

    @property
    def doomed(self) -> BitMap64:
        """Offsets of schedules in receipts that were not committed yet: they must not leave."""
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

        ``due_ms`` is set for a control that is a schedule itself, and is the time that was requested. ``held`` maps the
        places of its id that wait behind W to their shifts: how long after the requested time each one is due.
        """
        id_hash = hash_of(control.deliver_id)
        if control.if_due_ms is None:
            written = self._all(id_hash, held, is_pending)
        else:
            written = self._due_at(id_hash, control.if_due_ms, held, is_pending)
        written += self.transit.find(id_hash, offset)
        live = {place for place in written if self.is_live(place.offset)}
        moved = self._moved.get(control.deliver_id, ())
        unwritten = [place for place in moved if control.if_due_ms in (None, place.due_ms)]
        pending = (*sorted(live, key=lambda place: place.offset), *unwritten)
        if not pending and control.if_due_ms is not None:
            # Any other schedule of its id shows that something has changed.
            others = filter(is_pending, self.names.latest(id_hash))
            live_ones = (place for place in chain(held, others) if self.is_live(place.offset))
            pending = tuple(islice(chain(moved, live_ones), 1))
        asked_ms = self.names.asked_ms(pending)
        asked_ms |= {place.offset: place.due_ms - held[place] for place in pending if held.get(place)}
        receipt = receipt_of(offset, control, pending, due_ms, record, asked_ms)
        receipt = receipt._replace(unwritten_count=len(unwritten))
        self._owe(receipt)
        return receipt

    def query(
        self, offset: int, control: Control, record: Record, behind: Sequence[Position], matched: Matched, left: int
    ) -> Receipt:
        """Put the predicate of a control into force; its receipt is owed, and nothing else is.

        ``behind`` are the matching schedules behind the control, in transit. ``left`` is about how many of the others
        stay where they are.
        """
        assert not self._receipts, "a query is read when nothing is owed"
        live = tuple(place for place in behind if self.is_live(place.offset))
        receipt = Receipt(offset, control, ControlOutcome.CANCELLED_WHERE, live, None, record, matched=matched)
        self._owe(receipt)
        self.queries.owe(Query(offset, parse_where(control.where), left))
        return receipt

    def _all(self, id_hash: bytes, held: Mapping[Position, int], is_pending: IsPending) -> list[Position]:
        """Return the places where records of this id are pending; remove the places that have left, where most have."""
        known = self.names.find(id_hash)
        pending = list(filter(is_pending, known))
        if len(known) > 2 * len(pending) + MANY:
            self.names.let_go(id_hash, set(known).difference(pending))
        return [*held, *pending]

    def _due_at(
        self, id_hash: bytes, asked_ms: int, held: Mapping[Position, int], is_pending: IsPending
    ) -> list[Position]:
        """Return the places where records of this id are pending that were requested for this time; O(places found)."""
        known = (place for place in self.names.find(id_hash, asked_ms) if place not in held and is_pending(place))
        return [*known, *(place for place, shift_ms in held.items() if place.due_ms - shift_ms == asked_ms)]

    def _owe(self, receipt: Receipt) -> None:
        self._receipts.append(receipt)
        self._doomed.update(receipt.masks)
        moved = self._moved.setdefault(receipt.control.deliver_id, [])
        if receipt.unwritten:
            self._links.append(receipt)
            moved[:] = [place for place in moved if place not in receipt.unwritten]
        if receipt.moved is not None and receipt.due_ms is not None:
            moved.append(Position(receipt.due_ms, receipt.offset))
        if not moved:
            del self._moved[receipt.control.deliver_id]

    def is_live(self, offset: int) -> bool:
        """Return whether no control has named the record at this offset."""
        return offset not in self._doomed and offset not in self.mask

    def is_cancelled(self, offset: int) -> bool:
        """Return whether a control has cancelled the record that is read at this offset, while it was in transit."""
        return offset < self.transit.reaches and not self.is_live(offset)

    def sweep(self, is_pending: Callable[[Position], bool]) -> None:
        """Remove places that have left, when it is time to; doomed places stay, because they may be spared."""
        if self.names.must_sweep:
            self.names.sweep(lambda place: place.offset not in self.mask and is_pending(place))

    def cursor_before_doomed(self, cursor: int, late: Sequence[Entry[P]]) -> int:
        """Return how far C may go when it stays in front of a late record that is not due, at ``cursor``.

        The receipts from there on stay. So C must not pass a late record that one of them has cancelled, nor a move
        whose schedule one of them has taken.
        """
        while True:
            cursor = self.cursor_before_links(cursor)
            doomed = BitMap64(o for each in self._receipts if each.offset >= cursor for o in each.masks)
            held_back = min((offset for _, offset, _ in late if offset < cursor and offset in doomed), default=cursor)
            if held_back == cursor:
                return cursor
            cursor = held_back

    def cursor_before_links(self, cursor: int) -> int:
        """Return how far C may go towards ``cursor`` so that each receipt leaves together with the moves before it."""
        for receipt in reversed(self._links):
            if receipt.offset >= cursor:
                cursor = min(cursor, *(place.offset for place in receipt.unwritten))
        return cursor

    def spare(self, schedule: Position, moves: Collection[int], why: str) -> None:
        """Leave a schedule where it is, because the moves in flight at these offsets cannot write it again."""
        self._in_flight = [
            receipt.unmoved(ControlOutcome.NOT_MOVED, why) if receipt.offset in moves else receipt
            for receipt in self._in_flight
        ]
        self._doomed.discard(schedule.offset)
        self.mask.spare(schedule.offset)

    def leave(self, cursor: int) -> list[Receipt]:
        """Return the receipts of the next transaction, which moves C to ``cursor``; it masks their schedules."""
        assert not self._in_flight, "receipts are in flight already"
        self._in_flight = [each for each in self._receipts if each.offset < cursor]
        self._receipts = [each for each in self._receipts if each.offset >= cursor]
        self._links = [each for each in self._links if each.offset >= cursor]
        stays = {name: [place for place in moved if place.offset >= cursor] for name, moved in self._moved.items()}
        self._moved = {name: moved for name, moved in stays.items() if moved}
        for receipt in self._in_flight:
            self.mask.add(receipt.masks)
        self.transit.leave(cursor)
        return self._in_flight

    def confirm(self) -> list[Position]:
        """Note that the transaction was committed; return the schedules that it cancelled."""
        cancelled: list[Position] = []
        for receipt in self._in_flight:
            if receipt.written:
                id_hash = hash_of(receipt.control.deliver_id)
                in_transit = [place for place in receipt.written if place.offset > receipt.offset]
                read = self.names.read_as(id_hash, in_transit) if in_transit else ()
                gone = {*receipt.written, *read}
                self.names.remove(id_hash, gone)
                cancelled += gone
        self._doomed -= BitMap64(o for receipt in self._in_flight for o in receipt.masks)
        self._in_flight = []
        self.mask.committed()
        self.transit.confirm()
        self.queries.confirm()
        return cancelled

    def check(self) -> None:
        """Assert every invariant."""
        self.mask.check()
        self.names.check()
        self.transit.check()
        self.queries.check()
        offsets = [receipt.offset for receipt in (*self._in_flight, *self._receipts)]
        assert offsets == sorted(set(offsets))
        assert self._links == [each for each in self._receipts if each.unwritten]
        taken = {place.offset for receipt in self._links for place in receipt.unwritten}
        moved = {each.offset for each in self._receipts if each.moved is not None}
        assert taken <= moved, "a chain of moves is torn"
        assert {place.offset for places in self._moved.values() for place in places} == moved - taken
        assert all(self._moved.values())
        cancelled = [offset for receipt in (*self._in_flight, *self._receipts) for offset in receipt.masks]
        assert len(cancelled) == len(set(cancelled)), "a schedule is in two receipts"
        assert BitMap64(cancelled) == self._doomed
        assert not any(offset in self.mask for receipt in self._receipts for offset in receipt.masks)

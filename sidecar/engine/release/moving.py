"""Moves schedules: writes the schedules that receipts move to the delay partition again, due at another time.

The receipt names the schedule as cancelled and tells its new due time. The same transaction writes the record that
takes its place, and that record is in transit (:mod:`index.named.transit`) until it is read. If one transaction moves a
schedule several times, only the last move is written (:mod:`index.named.named`). If another control takes the schedule
after the moves, no move is written.

If a schedule cannot be written again, no receipt tells it as moved:

* The delay topic refuses the record: the schedule stays where it was.
* The schedule was in transit, and the rules of its place refuse it: it is rejected, as it would be when it is read.
* The record of the schedule is gone: it is lost.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from index.named.names import hash_of
from index.named.receipts import ControlOutcome, Receipt
from index.pending.pending import Entry
from index.pending.progress import Position
from index.protocol.moving import moved_occurrence, moved_record
from index.protocol.record import Record
from index.protocol.recurring import recurrence_of
from index.protocol.schedule import Rejection, schedule_of
from index.rules.rules import Rules
from index.rules.unreadable import as_accepted
from sidecar.engine.payload.records import Appended, Decide, Refused, Scheduled, scheduled, size_of

RecordsOf = Callable[[Sequence[Position]], Mapping[int, Record | None]]
"""Reads the records of pending schedules by their places; None for one that is gone."""


class Spared(NamedTuple):
    """A schedule that stays where it was: its entry, the moves that could not write it again, and why."""

    entry: Entry[Scheduled]
    moves: Sequence[int]
    why: str


class Chain(NamedTuple):
    """The moves of one schedule: its place, and the receipts of the moves in order."""

    place: Position
    receipts: list[Receipt]

    @property
    def offsets(self) -> list[int]:
        """The offsets of the controls."""
        return [receipt.offset for receipt in self.receipts]


@dataclass(slots=True)
class Moves:
    """The moves of one transaction.

    * ``appended``: records that stand for a schedule from now on, by the offset of its last move.
    * ``lost``: offsets of schedules whose records are gone.
    * ``refused``: schedules that the rules refuse, by their own offsets.
    """

    appended: dict[int, Appended] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    refused: list[tuple[int, Refused]] = field(default_factory=list)
    _written: dict[int, tuple[Chain, Entry[Scheduled]]] = field(default_factory=dict)
    _given_up: dict[int, tuple[ControlOutcome, str]] = field(default_factory=dict)

    def append(self, chain: Chain, appended: Appended, entry: Entry[Scheduled]) -> None:
        """Write this record for the schedule of a chain; ``entry`` stands for the schedule until then."""
        self.appended[appended.offset] = appended
        self._written[appended.offset] = chain, entry

    def give_up(self, chain: Chain, missed: ControlOutcome, why: str = "") -> None:
        """Write nothing for the schedule of a chain."""
        self._given_up |= dict.fromkeys(chain.offsets, (missed, why))

    def told(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Return the receipts; the receipt of a move that was given up does not name its schedule as moved."""
        return [
            receipt.unmoved(*self._given_up[receipt.offset])
            if receipt.moved is not None and receipt.offset in self._given_up
            else receipt
            for receipt in receipts
        ]

    def spare(self, refused: Mapping[int, Rejection]) -> list[Spared]:
        """Give up the moves whose record the delay topic refuses, and return their schedules."""
        spared = []
        for offset in self.appended.keys() & refused.keys():
            del self.appended[offset]
            reason, message = refused[offset]
            chain, entry = self._written[offset]
            self.give_up(chain, ControlOutcome.NOT_MOVED, f"{reason}: {message}")
            spared.append(Spared(entry, chain.offsets, f"{reason}: {message}"))
        return spared


@dataclass(frozen=True, slots=True)
class Moving:
    """Finds the moves of one partition.

    ``read`` reads the records to move, ``decide`` decides them again, and ``key`` signs occurrences. ``source`` is the
    prefix of offsets in ``delay-source``.
    """

    read: RecordsOf
    decide: Decide
    key: bytes
    source: str

    def look(self, receipts: Sequence[Receipt], rules_at: Callable[[int], Rules], now_ms: int) -> Moves:
        """Return the moves of these receipts; errors of ``read`` pass, and then nothing may be concluded."""
        moves = Moves()
        chains = chains_of(receipts)
        found = self.read([chain.place for chain in chains]) if chains else {}
        for chain in chains:
            record = found.get(chain.place.offset)
            if record is None:
                moves.lost.append(chain.place.offset)
                moves.give_up(chain, ControlOutcome.NOT_PENDING)
            else:
                self._append(moves, chain, record, rules_at(chain.place.offset), now_ms)
        return moves

    def _append(self, moves: Moves, chain: Chain, record: Record, rules: Rules, now_ms: int) -> None:
        """Append the record that stands for a schedule from now on, or reject the schedule."""
        place, receipt = chain.place, chain.receipts[-1]
        assert receipt.due_ms is not None
        decision = self.decide(place.offset, record)
        if isinstance(decision, Rejection):
            moves.refused.append((place.offset, Refused(decision, record)))
            moves.give_up(chain, ControlOutcome.NOT_PENDING)
            return
        schedule = schedule_of(decision)
        assert schedule is not None, f"offset {place.offset} was pending, and is no schedule: {decision}"
        # The delay of the record is counted from its timestamp, as the delay of its control is.
        written_ms = max(now_ms, receipt.record.timestamp_ms)
        due_ms, source = receipt.due_ms, f"{self.source}{receipt.offset}"
        recurrence = recurrence_of(record.headers) if rules.recurring else None
        accepted = as_accepted(record)
        if recurrence is None or isinstance(recurrence, Rejection):
            moved = moved_record(accepted, schedule, rules.controls.role, source, due_ms, written_ms)
        else:
            signed = due_ms, self.key, written_ms, receipt.record.timestamp_ms
            moved = moved_occurrence(record, recurrence, place.offset, source, *signed)
        id_hash = hash_of(receipt.control.deliver_id)
        # The place in transit has the requested time, and a spread makes the schedule due later.
        entry = schedule.due_ms, place.offset, scheduled(schedule, size_of(accepted), accepted)
        moves.append(chain, Appended(receipt.offset, moved, due_ms, id_hash), entry)


def chains_of(receipts: Iterable[Receipt]) -> list[Chain]:
    """Return the chains of the schedules that these receipts move, and that no later receipt takes."""
    chains: dict[int, Chain] = {}
    for receipt in receipts:
        taken = {place.offset: chains.pop(place.offset) for place in receipt.unwritten}
        place = receipt.moved
        if place is None:
            continue
        chain = taken[place.offset] if place in receipt.unwritten else Chain(place, [])
        chain.receipts.append(receipt)
        chains[receipt.offset] = chain
    return list(chains.values())

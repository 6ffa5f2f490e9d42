"""What the receipts of one transaction move: each is written again to the delay partition, due at another time.

The receipt names the schedule as cancelled and tells its new due time; the record that takes its place is written by
the same transaction, and is in transit (:mod:`index.transit`) until it is read. Where it cannot be written nothing is
told as moved: what the delay topic refuses is rejected instead, as is what was in transit itself and is refused by the
rules of today; what is gone is lost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from index.moving import moved_occurrence, moved_record
from index.names import hash_of
from index.progress import Position
from index.receipts import Outcome, Receipt
from index.record import Record
from index.recurring import recurrence_of
from index.rules import Rules
from index.schedule import Rejection
from index.unreadable import as_accepted
from sidecar.payload.records import Appended, Decide, Refused

RecordsOf = Callable[[Sequence[Position]], Mapping[int, Record | None]]
"""Reads the records of pending schedules by their places; None for one that is gone."""


@dataclass(slots=True)
class Moves:
    """Of one transaction, all by the offset of the control.

    * ``places``: the schedules that are moved.
    * ``records``: their records, as they came.
    * ``appended``: what stands for them from now on.
    * ``lost``: offsets of schedules whose records are gone.
    * ``refused``: schedules that the rules refuse, by their own offsets.
    """

    places: dict[int, Position] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)
    appended: dict[int, Appended] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    refused: list[tuple[int, Refused]] = field(default_factory=list)

    def told(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """The receipts as they are true: one whose schedule is not written again does not name that."""
        return [
            _unmoved(receipt) if receipt.moved is not None and receipt.offset not in self.appended else receipt
            for receipt in receipts
        ]

    def give_up(self, refused: Mapping[int, Rejection]) -> list[tuple[int, Refused]]:
        """Append nothing for these controls; the schedules are rejected, and returned by their own offsets."""
        rejected = []
        for offset in self.appended.keys() & refused.keys():
            del self.appended[offset]
            rejected.append((self.places[offset].offset, Refused(refused[offset], self.records[offset])))
        return rejected


@dataclass(frozen=True, slots=True)
class Moving:
    """Of one partition: ``read`` reads what is to be moved, ``decide`` decides it again, ``key`` signs occurrences.

    Offsets of the partition are named behind ``source``.
    """

    read: RecordsOf
    decide: Decide
    key: bytes
    source: str

    def look(self, receipts: Sequence[Receipt], rules_at: Callable[[int], Rules], now_ms: int) -> Moves:
        """What these receipts move; errors as of ``read``, and then nothing may be concluded."""
        moves = Moves()
        moving = [(receipt, receipt.moved) for receipt in receipts if receipt.moved is not None]
        if not moving:
            return moves
        found = self.read([place for _, place in moving])
        for receipt, place in moving:
            assert receipt.due_ms is not None
            record = found.get(place.offset)
            if record is None:
                moves.lost.append(place.offset)
                continue
            schedule = self.decide(place.offset, record)
            if isinstance(schedule, Rejection):
                moves.refused.append((place.offset, Refused(schedule, record)))
                continue
            # Its delay is counted from its timestamp, as that of its control is.
            written_ms = max(now_ms, receipt.record.timestamp_ms)
            moves.places[receipt.offset], moves.records[receipt.offset] = place, record
            rules, due_ms, source = rules_at(place.offset), receipt.due_ms, f"{self.source}{receipt.offset}"
            recurrence = recurrence_of(record.headers) if rules.recurring else None
            if recurrence is None or isinstance(recurrence, Rejection):
                accepted, role = as_accepted(record), rules.controls.role
                moved = moved_record(accepted, schedule, role, source, due_ms, written_ms)
            else:
                signed = due_ms, self.key, written_ms, receipt.record.timestamp_ms
                moved = moved_occurrence(record, recurrence, place.offset, source, *signed)
            id_hash = hash_of(receipt.control.deliver_id)
            moves.appended[receipt.offset] = Appended(receipt.offset, moved, due_ms, id_hash)
        return moves


def _unmoved(receipt: Receipt) -> Receipt:
    others = receipt.cancelled[:-1]
    outcome = Outcome.CANCELLED if others else Outcome.NOT_PENDING
    return receipt._replace(cancelled=others, outcome=outcome, due_ms=None)

"""The log of a delay partition, the producers and consumers that write to it, and the transactions of its router."""

import random
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

PERIOD: Final = 25
"""Ticks between two occurrences of a series."""

ATTEMPTS: Final = 3
NOBODY: Final = -1
_IDS: Final = 4
_PRIME: Final = 7_919


class Kind(Enum):
    """The kinds of records in the log; an aborted transaction leaves gaps."""

    SCHEDULE = "schedule"
    REPLACE = "replace"
    ATTEMPT = "attempt"
    CANCEL = "cancel"
    MOVE = "move"
    QUERY = "query"
    GAP = "gap"


SCHEDULES: Final = frozenset((Kind.SCHEDULE, Kind.REPLACE, Kind.ATTEMPT))
CONTROLS: Final = frozenset((Kind.REPLACE, Kind.CANCEL, Kind.MOVE, Kind.QUERY))


class Written(NamedTuple):
    """One record of the log.

    ``more`` is the number of occurrences that follow. A query cancels schedules due from ``due`` to before ``due_to``.
    ``attempt`` is the number of attempts already made. A record that the router has written ``follows`` another. If a
    producer has moved it, ``asked`` is the time at which the producer sent the move.
    """

    kind: Kind
    sent: int = 0
    id: int = NOBODY
    due: int = 0
    more: int = 0
    takes_all: bool = False
    due_to: int = 0
    attempt: int = 0
    follows: int = NOBODY
    asked: int = NOBODY


class Released(NamedTuple):
    """A record that reached its target, or the dead-letter topic, at ``time``."""

    offset: int
    time: int
    is_dead: bool = False


class Answered(NamedTuple):
    """The receipt of the control at ``offset``, with the offsets of the schedules that it cancelled.

    ``behind`` is the number of outputs before its transaction.
    """

    offset: int
    cancelled: tuple[int, ...]
    behind: int


Output = Released | Answered


def wait(attempt: int) -> int:
    """Return the longest wait of a record with so many attempts behind it."""
    return 4 << attempt


def due_of(log: Sequence[Written], offset: int) -> int:
    """Return when the schedule at an offset is due; an attempt leaves sooner by a hash of its place."""
    record = log[offset]
    if record.kind is not Kind.ATTEMPT:
        return record.due
    if record.attempt >= ATTEMPTS:
        return 0
    longest = wait(record.attempt)
    return record.sent + longest - offset * _PRIME % (longest // 4)


class World:
    """The world outside the router: the log, the outputs, time, and chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 1_000
        self.log: list[Written] = []
        self.outputs: list[Output] = []
        self.written_behind: dict[int, int] = {}
        """How many outputs there were before the transaction that wrote a record, by its offset."""

        self._consumed = 0

    def produces(self) -> None:
        """Append one random record of a producer."""
        chance, now = self.chance, self.now
        name, kind = chance.randrange(_IDS), chance.random()
        if kind < 0.35:
            record = Written(Kind.SCHEDULE, now, name, now + chance.randrange(-10, 80))
        elif kind < 0.55:
            due, more, takes_all = now + chance.randrange(-60, 60), chance.randrange(1, 4), chance.random() < 0.5
            record = Written(Kind.SCHEDULE, now, name, due, more, takes_all)
        elif kind < 0.65:
            record = Written(Kind.ATTEMPT, now)
        elif kind < 0.78:
            record = Written(Kind.CANCEL, now, name)
        elif kind < 0.86:
            record = Written(Kind.REPLACE, now, name, now + chance.randrange(-10, 80))
        elif kind < 0.96:
            record = Written(Kind.MOVE, now, name, now + chance.randrange(-40, 80))
        else:
            due = now + chance.randrange(-20, 80)
            record = Written(Kind.QUERY, now, due=due, due_to=due + chance.randrange(5, 60))
        self.log.append(record)

    def consumes(self) -> None:
        """Read all new outputs; most attempts fail and are written again, with their number."""
        for output in self.outputs[self._consumed :]:
            if isinstance(output, Released) and not output.is_dead and self.log[output.offset].kind is Kind.ATTEMPT:
                record = self.log[output.offset]
                if self.chance.random() < 0.8:
                    self.log.append(Written(Kind.ATTEMPT, self.now, attempt=record.attempt + 1, follows=output.offset))
        self._consumed = len(self.outputs)

    def append(self, records: Sequence[Written]) -> list[int]:
        """Append the records of a transaction, others in between, and return their offsets."""
        offsets = []
        for record in records:
            if self.chance.random() < 0.3:
                self.produces()
            self.written_behind[len(self.log)] = len(self.outputs)
            offsets.append(len(self.log))
            self.log.append(record)
        return offsets

    def aborts(self) -> bool:
        """Say whether a crash ends the transaction here."""
        return self.chance.random() < 0.08

    def erase(self, offsets: Sequence[int]) -> None:
        """Turn the records of an aborted transaction into gaps."""
        for offset in offsets:
            self.log[offset] = Written(Kind.GAP)

"""What surrounds a router: a clock that anybody may move, a delay topic, a transactional store, and bad luck."""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from index.headers import Headers

START_MS = 1_800_000_000_000
FIRST_OFFSET = 500
REJECTED = "d.rejected"


class CrashedError(Exception):
    """The router was killed here."""


class FencedError(Exception):
    """Another router has taken the partition over."""


class AbortedError(Exception):
    """The transaction was aborted cleanly: nothing of it will ever be visible."""


class UnknownOutcomeError(Exception):
    """The answer to a commit was lost: it may or may not have happened, or happen yet."""


@dataclass
class Clock:
    """The clock of whichever router runs; nothing promises that it only goes forward."""

    now_ms: int = START_MS


@dataclass(frozen=True)
class Produced:
    """A record of the delay topic, and next to it what its producer meant, in words of its own.

    ``due_us`` is 0 for a record without a time; ``legible`` tells whether its headers can be read at all.
    """

    offset: int
    headers: Headers
    timestamp_ms: int
    due_us: int
    target: str
    legible: bool


@dataclass
class DelayLog:
    """Records in offset order; offsets of control records and aborted transactions are gaps."""

    records: list[Produced] = field(default_factory=list)
    end: int = FIRST_OFFSET

    def read(self, from_offset: int, most: int) -> tuple[list[Produced], int | None]:
        """Records from an offset on, and the end of the log when it was reached."""
        ahead = [record for record in self.records if record.offset >= from_offset]
        return ahead[:most], self.end if len(ahead) <= most else None


class Left(NamedTuple):
    """A record that left the partition, by the offset it had there."""

    offset: int
    topic: str


@dataclass(frozen=True)
class Transaction:
    """Records and state that become visible together; ``begun_ms`` is what the router's clock showed."""

    begun_ms: int
    left: list[Left]
    state: list[tuple[bytes, bytes]]


class Faults:
    """Bad luck, dealt from the seed; off when a run is brought to its end."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.crash_chance = rng.choice([0.0, 0.01, 0.05])
        self.abort_chance = rng.choice([0.0, 0.1])
        self.unknown_chance = rng.choice([0.0, 0.1])

    def stop(self) -> None:
        """From here on everything works."""
        self.crash_chance = self.abort_chance = self.unknown_chance = 0.0

    def point(self, after: str) -> None:
        """Perhaps die, after the effect that is named."""
        if self.rng.random() < self.crash_chance:
            raise CrashedError(after)


class Store:
    """Target, rejected and state topics of one partition, written by one fenced producer at a time."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._in_doubt: Transaction | None = None
        self.epoch = 0
        self.state: list[tuple[bytes, bytes]] = []
        self.committed: list[Transaction] = []

    def fence(self) -> int:
        """Shut everybody else out; a commit whose answer was lost is settled now, one way or the other."""
        self.epoch += 1
        settled, self._in_doubt = self._in_doubt, None
        if settled is not None and self._faults.rng.random() < 0.5:
            self._apply(settled)
        return self.epoch

    def commit(self, epoch: int, transaction: Transaction) -> None:
        """Make a transaction visible as a whole, or say why not."""
        if epoch != self.epoch:
            raise FencedError
        # A producer with a transaction in doubt must be given up; whoever goes on with it finds it settled or not.
        luck = self._faults.rng.random()
        if luck < self._faults.abort_chance:
            raise AbortedError
        if luck < self._faults.abort_chance + self._faults.unknown_chance:
            self._in_doubt = transaction
            raise UnknownOutcomeError
        self._apply(transaction)

    def compact(self) -> None:
        """Keep the last value of every key."""
        self.state = list(dict(self.state).items())

    def _apply(self, transaction: Transaction) -> None:
        self.committed.append(transaction)
        self.state += transaction.state

"""Models the brokers of shared transactions: epochs of transactional ids, state, and released records."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from index.errors import ConnectionLostError
from sidecar.engine.ports import Place
from snapshots.state.lane import LaneName
from tests.simulation.violation import Violation
from tests.support.transaction_errors import AGAIN, FENCED, NOT_YET, REFUSED

NO_ANSWER: Final = KafkaError(KafkaError._TIMED_OUT, "no answer")

HANGS_FOR: Final = 30
"""Switches, in which others can take a partition over."""


class Standing(NamedTuple):
    """The state of a partition: all records below ``cursor`` are released, and the lane that may write."""

    cursor: int = 0
    lane: LaneName | None = None


class Written(NamedTuple):
    """The part of one partition in a transaction: the records from one offset up to another, and the lane it notes."""

    place: Place
    from_offset: int
    standing: Standing

    @property
    def has_records(self) -> bool:
        """Says whether the part releases records."""
        return self.from_offset < self.standing.cursor


@dataclass
class Chances:
    """Chances of the failures of brokers and connections."""

    abort: float
    no_answer: float
    arrives_late: float
    lost: float
    abort_fails: float
    fence_fails: float
    hangs: float

    @classmethod
    def drawn(cls, rng: random.Random) -> "Chances":
        """Draw the chances of a run."""
        return cls(*(rng.choice([0.0, most]) for most in (0.1, 0.1, 0.02, 0.05, 0.1, 0.5, 0.1)))


NONE: Final = Chances(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass
class ModelledBrokers:
    """The topics and the transactional ids; ``switch`` lets other threads run, ``note`` writes a line of the run."""

    rng: random.Random
    switch: Callable[[], None]
    note: Callable[[str], None]
    chances: Chances
    states: dict[Place, Standing] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    in_doubt: dict[str, list[Written]] = field(default_factory=dict)
    in_trouble: set[Place] = field(default_factory=set)
    """The partitions whose records are refused."""
    blamed: set[Place] = field(default_factory=set)
    """The partitions that were in trouble when a transaction with their records was refused."""
    shared: int = 0
    """Transactions with records of several topics."""

    def standing(self, place: Place) -> Standing:
        """Return the state of a partition."""
        return self.states.get(place, Standing())

    def producer(self, transactional_id: str) -> "ModelledProducer":
        """Return a producer that has not fenced the others of its id yet."""
        return ModelledProducer(self, transactional_id)

    def is_settled(self, place: Place) -> bool:
        """Say whether a reader of the state sees all of it: no transaction that may still commit has a part of it."""
        return all(each.place != place for parts in self.in_doubt.values() for each in parts)

    def settle(self, transactional_id: str) -> None:
        """End the last transaction of an id, one way or the other, as its coordinator does after a while."""
        settled = self.in_doubt.pop(transactional_id, [])
        if settled and self.rng.random() < 0.5:
            self.apply(settled)

    def fence(self, transactional_id: str) -> int:
        """Shut the other producers of an id out, and settle a commit without an answer."""
        self.switch()
        if self.rng.random() < self.chances.fence_fails:
            # A marker of the last transaction is missing, or the coordinator has not heard of the request.
            if self.rng.random() < 0.5:
                self.settle(transactional_id)
            raise KafkaException(NOT_YET)
        self.settle(transactional_id)
        epoch = self.epochs[transactional_id] = self.epochs.get(transactional_id, 0) + 1
        # The answer takes its time.
        self.switch()
        return epoch

    def perhaps_late(self) -> None:
        """Let a commit without an answer arrive after all, by chance."""
        if self.in_doubt and self.rng.random() < self.chances.arrives_late:
            self.apply(self.in_doubt.pop(self.rng.choice([*self.in_doubt])))

    def apply(self, transaction: list[Written]) -> None:
        """Make a transaction visible; raise Violation if a part of it does not continue its partition."""
        self.note(f"visible: {transaction}")
        self.shared += len({each.place[0] for each in transaction if each.has_records}) > 1
        for place, from_offset, standing in transaction:
            cursor = self.standing(place).cursor
            if from_offset != cursor:
                raise Violation(f"{'doubled' if from_offset < cursor else 'lost'} in {place}: {from_offset}, {cursor}")
            self.states[place] = standing


class ModelledProducer:
    """A transactional producer with the methods that a lane calls."""

    def __init__(self, brokers: ModelledBrokers, transactional_id: str) -> None:
        self._brokers = brokers
        self._id = transactional_id
        self._epoch = -1
        self._open: list[Written] = []
        self._has_lost_connection = False

    def init(self) -> None:
        """Fence the other producers of the id."""
        self._epoch = self._brokers.fence(self._id)
        self._brokers.note(f"fenced: {self._id}, epoch {self._epoch}")

    def init_transactions(self, _: float) -> None:
        """Try again to fence the other producers of the id."""
        self.init()

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._brokers.switch()
        self.require_connections()
        if self._open:
            raise Violation("a transaction is open")

    def write(self, written: Written) -> None:
        """Write the records and the state of a partition."""
        self._open.append(written)

    def commit_transaction(self) -> None:
        """Commit, or raise KafkaException; the thread may hang before the commit is sent."""
        brokers, chances = self._brokers, self._brokers.chances
        for _ in range(HANGS_FOR if brokers.rng.random() < chances.hangs else 1):
            brokers.switch()
        self._require_present()
        if guilty := {each.place for each in self._open if each.has_records} & brokers.in_trouble:
            brokers.blamed |= guilty
            raise KafkaException(REFUSED)
        luck = brokers.rng.random()
        if luck < chances.abort:
            raise KafkaException(AGAIN)
        if luck < chances.abort + chances.no_answer:
            brokers.in_doubt[self._id], self._open = self._open, []
            raise KafkaException(NO_ANSWER)
        transaction, self._open = self._open, []
        brokers.apply(transaction)
        self._has_lost_connection = brokers.rng.random() < chances.lost
        # The answer takes its time.
        brokers.switch()

    def abort_transaction(self) -> None:
        """Abort, or raise KafkaException."""
        self._brokers.switch()
        self._require_present()
        self._open = []
        if self._brokers.rng.random() < self._brokers.chances.abort_fails:
            raise KafkaException(NO_ANSWER)

    def require_connections(self) -> None:
        """Raise ConnectionLostError if the end of the last transaction may still be on its way."""
        if self._has_lost_connection:
            raise ConnectionLostError("in the simulation", 0.0)

    def purge(self) -> None:
        """Forget the open transaction, which the next fence aborts."""
        self._open = []

    def _require_present(self) -> None:
        if self._brokers.epochs.get(self._id) != self._epoch:
            raise KafkaException(FENCED)

"""Models brokers that refuse records: too large for a topic, or for a topic that is gone.

A broker refuses the whole transaction and does not name the record. The search for it may run out of time, so that the
router knows the topic only.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isinf

from index.named.receipts import receipt_record
from index.protocol.record import Record
from index.protocol.schedule import Reason, Rejection
from sidecar.engine.release.transaction import Refusals, Transaction

SHARE = 0.2
"""The share of runs in which brokers refuse records."""

OUT_OF_TIME = 0.5
"""The chance that a bounded search leaves records undecided."""

GONE = 0.2
"""The chance that the topic of a target is deleted, when topics are."""

TOO_LARGE = Rejection(Reason.RECORD_TOO_LARGE, "too large in the simulation")


@dataclass
class Refusing:
    """The records that brokers refuse.

    ``most_bytes`` has the size of the largest record that a topic takes, for topics with a limit. ``gone`` are targets
    without a topic, and ``were_gone`` those that ever were. ``luck`` decides which searches run out of time; without
    it, none does.
    """

    most_bytes: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    were_gone: set[str] = field(default_factory=set)
    luck: random.Random | None = None

    def lose(self, targets: Iterable[str]) -> None:
        """Delete the topics of these targets, and make all others."""
        self.gone.clear()
        self.gone.update(targets)
        self.were_gone |= self.gone

    def lose_some(self, targets: Iterable[str]) -> None:
        """Delete the topics of some of these targets, and make all others."""
        assert self.luck is not None
        self.lose([each for each in targets if self.luck.random() < GONE])

    def refuses(self, topic: str, record: Record | None) -> bool:
        """Say whether a topic refuses a record now."""
        return topic in self.gone or self.is_too_large(topic, record)

    def is_too_large(self, topic: str, record: Record | None) -> bool:
        """Say whether a record is too large for a topic."""
        return topic in self.most_bytes and size_of(record) > self.most_bytes[topic]

    def find(self, transaction: Transaction, rejected: str, receipts: str, within_s: float) -> Refusals:
        """Return the refused records of a transaction, as far as a search finds them in this time."""
        written = [
            (target, offset, record)
            for _, offset, (schedule, _, record) in transaction.released
            for target in schedule.targets
        ]
        written += [(rejected, offset, refused.record) for offset, refused in transaction.rejected]
        found = {offset: topic for topic, offset, record in written if self.is_too_large(topic, record)}
        doubted = self._doubted(set(found.values()), within_s)
        undecided = frozenset(offset for topic, offset, _ in written if topic in doubted)
        answers = ((each.offset, receipt_record(each)) for each in transaction.receipts)
        return Refusals(
            dict.fromkeys(found.keys() - undecided, TOO_LARGE),
            doubted,
            undecided,
            unanswered=frozenset(offset for offset, record in answers if self.is_too_large(receipts, record)),
        )

    def _doubted(self, refusing: set[str], within_s: float) -> frozenset[str]:
        """Return the topics whose records a search has no time for: none, or one of those that refuse a record."""
        if isinf(within_s) or self.luck is None or self.luck.random() >= OUT_OF_TIME:
            return frozenset()
        return frozenset(self.luck.sample(sorted(refusing), min(1, len(refusing))))


def some_refusing(seed: int, targets: Iterable[str], rejected: str) -> Refusing:
    """Return brokers that take every record, or brokers some of whose topics have a limit."""
    # A random generator of its own, so that the rest of the run stays the same without it.
    luck = random.Random(f"{seed}, some topics refuse others")
    if luck.random() >= SHARE:
        return Refusing()
    most_bytes = {target: luck.choice([40, 60]) for target in targets if luck.random() < 0.5}
    if luck.random() < 0.7:
        most_bytes[rejected] = luck.choice([0, 10, 30, 50])
    return Refusing(most_bytes, luck=luck)


def size_of(record: Record | None) -> int:
    """Return the bytes that the content of a record has."""
    assert record is not None, "a record was not read"
    headers = sum(len(name) + len(raw or b"") for name, raw in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers

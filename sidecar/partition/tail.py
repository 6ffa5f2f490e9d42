"""The tail of an owned partition: its delay topic read on from where the index is, begun anew where that has to be.

What the intake has read ahead is decided already, so it is thrown away, and read again, whenever that no longer holds:

* a bucket was adopted: the index is behind its range now;
* a rule epoch began: it begins at the next record to index, and that may have been decided by the old rules;
* it is known what was staged: until then nothing beyond C is read, since C would pass it.

Rejected: deciding again what was read ahead. Where there was no memory for it, the record is not there any more. And
letting the epoch begin where the intake has got to: what is decided by it could be indexed before it is committed.
"""

import time
from collections.abc import Callable

from confluent_kafka import TopicPartition

from index.rule_history import RuleHistory
from sidecar.intake.decided import Indexed
from sidecar.intake.fetching import Connects, Fetching
from sidecar.intake.intake import NEVER, Intake, PartitionLedger
from sidecar.partition.context import Shared

LOOK_WITHIN_S = 10.0
"""Longest wait at a take-over for what is staged, if there is anything, before the delay topic is read on."""


class Tail:
    """Used by the worker of the partition only; ``soon_ms`` as in Intake.

    With ``has_looked`` something may be staged, and it tells whether all of it is known.
    """

    def __init__(
        self,
        shared: Shared,
        place: tuple[str, int],
        ledger: PartitionLedger,
        history: RuleHistory,
        soon_ms: int,
        connects: Connects,
        has_looked: Callable[[], bool] | None = None,
    ) -> None:
        self._shared = shared
        self._place = place
        self._ledger = ledger
        self._history = history
        self._soon_ms = soon_ms
        self._connects = connects
        self._has_looked = has_looked
        self._look_until_s = time.monotonic() + LOOK_WITHIN_S
        self._intake = self._read_on()

    @property
    def is_looking(self) -> bool:
        """Whether it is not known yet what was staged: to read on now might pass it."""
        return self._has_looked is not None

    @property
    def may_end_look(self) -> bool:
        """Whether it is known by now, or was waited for long enough."""
        if self._has_looked is None or self._ledger.replaying:
            return False
        return self._has_looked() or time.monotonic() > self._look_until_s

    def end_look(self) -> None:
        """Read on beyond C."""
        self._has_looked = None
        self.begin_anew()

    def enter(self, history: RuleHistory) -> None:
        """Decide by this history, whose last epoch begins at the next record to index."""
        self._history = history
        self.begin_anew()

    def begin_anew(self) -> None:
        """Read on from where the index is now."""
        # A new client begins there at once; one that is told to seek may still hand over older records.
        self._intake.close()
        self._intake = self._read_on()

    def fill(self, wait_s: float, max_bytes: int = NEVER) -> Indexed:
        """Index what has arrived, as ``Intake.fill``; KafkaException on any error."""
        return self._intake.fill(wait_s, max_bytes)

    def lag(self) -> int:
        """Offsets of the delay topic not indexed yet."""
        return self._intake.lag()

    def close(self) -> None:
        """End reading; what nobody has indexed is forgotten."""
        self._intake.close()

    def _read_on(self) -> Intake:
        shared = self._shared
        at = TopicPartition(*self._place, self._ledger.indexed_to)
        return Intake(
            Fetching(self._connects, at),
            self._place,
            self._ledger,
            self._history,
            shared.budget,
            now_ms=shared.clock.now_ms,
            soon_ms=self._soon_ms,
            until_offset=self._ledger.committed.cursor if self.is_looking else NEVER,
            stops_at_bad=self._connects.stops_at_bad,
        )

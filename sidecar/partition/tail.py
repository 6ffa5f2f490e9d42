"""The tail of an owned partition: its delay topic read on from where the index is, begun anew where that has to be.

What the intake has read ahead is decided already, so it is thrown away, and read again, whenever that no longer holds:

* a bucket was adopted: the index is behind its range now;
* a rule epoch began: it begins at the next record to index, and that may have been decided by the old rules;
* it is known what was staged: until then nothing beyond C is read, since C would pass it.

Rejected: deciding again what was read ahead. Where there was no memory for it, the record is not there any more. And
letting the epoch begin where the intake has got to: what is decided by it could be indexed before it is committed.
"""

from collections.abc import Callable

from index.rule_history import RuleHistory
from sidecar.context import PartitionContext
from sidecar.intake.decided import Indexed
from sidecar.intake.deciding import NEVER
from sidecar.intake.intake import Intake, Places
from sidecar.payload.ledger import PartitionLedger

ReadOn = Callable[[PartitionLedger, RuleHistory, int, Places], Intake]
"""Begins to read where the index is, deciding by these rules, up to an offset that is not indexed."""

HELD_UP_RECORDS = 10_000
HELD_UP_SHARE = 4
"""So many offsets at most, and this part of the memory for payload, so that other partitions keep the rest."""


class Tail:
    """Used by the worker of the partition only.

    With ``has_looked`` something may be staged, and it tells whether all of it is known.
    """

    def __init__(
        self,
        context: PartitionContext,
        ledger: PartitionLedger,
        history: RuleHistory,
        read_on: ReadOn,
        places: Places,
        has_looked: Callable[[], bool] | None = None,
    ) -> None:
        self._clock = context.clock
        self._ledger = ledger
        self._history = history
        self._begin = read_on
        self._places = places
        self._has_looked = has_looked
        self._look_until_s = context.clock.running_s() + context.limits.staged_within_s
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
        return self._has_looked() or self._clock.running_s() > self._look_until_s

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
        # Another reader begins there; one that is told to seek may still hand over older records.
        self._intake.close()
        self._intake = self._read_on()

    def fill(self, wait_s: float, max_bytes: int = NEVER) -> Indexed:
        """Index what has arrived, as ``Intake.fill``; ClusterError on any error."""
        return self._intake.fill(wait_s, max_bytes)

    def lag(self) -> int:
        """Offsets of the delay topic not indexed yet."""
        return self._intake.lag()

    def close(self) -> None:
        """End reading; what nobody has indexed is forgotten."""
        self._intake.close()

    def _read_on(self) -> Intake:
        until_offset = self._ledger.committed.cursor if self.is_looking else NEVER
        return self._begin(self._ledger, self._history, until_offset, self._places)


def is_held_up(ledger: PartitionLedger, resident_bytes: int, payload_memory_bytes: int) -> bool:
    """Whether intake of a paused partition has to wait for the end of the pause, behind a record that came late.

    Such a record may not leave, so C stands in front of it, and nothing behind it can be sealed: it stays in memory,
    and is read again by whoever takes the partition over.
    """
    if not ledger.owed:
        return False
    behind_cursor = ledger.indexed_to - ledger.committed.cursor
    return behind_cursor >= HELD_UP_RECORDS or resident_bytes >= payload_memory_bytes // HELD_UP_SHARE

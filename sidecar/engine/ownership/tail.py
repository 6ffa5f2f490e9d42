"""The tail of an owned partition: reads the delay partition on from the end of the index, and begins anew if it must.

The intake reads records ahead, and decides them. They are thrown away, and read again, after each of these events:

* A bucket was adopted: the index is behind its range now.
* A rule epoch began: it begins at the next record to index, and the old rules may have decided that record.
* The staged records are known: until then no record beyond C is read, since C would pass the staged ranges.

Rejected: to decide the records that were read ahead again, since a record without room in memory is not there any more.
Rejected: to begin the epoch behind the records that were read ahead, since records that it decides could be indexed
before it is committed.
"""

from collections.abc import Callable

from index.rules.rule_history import RuleHistory
from sidecar.engine.context import PartitionContext
from sidecar.engine.intake.decided import Indexed
from sidecar.engine.intake.deciding import NEVER
from sidecar.engine.intake.intake import IdPlaces, Intake
from sidecar.engine.payload.ledger import PartitionLedger

ReadOn = Callable[[PartitionLedger, RuleHistory, int, IdPlaces], Intake]
"""Begins to read at the end of the index, decides by these rules, and ends before the offset."""

HELD_UP_RECORDS = 10_000
HELD_UP_SHARE = 4
"""The bounds of a paused partition: this many offsets, and one of so many shares of the memory for payload. Other
partitions keep the remainder."""


class PartitionTail:
    """Reads one partition on; used by its worker only.

    ``has_looked`` is given if records may be staged, and says whether all of them are known.
    """

    def __init__(
        self,
        context: PartitionContext,
        ledger: PartitionLedger,
        history: RuleHistory,
        read_on: ReadOn,
        places: IdPlaces,
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
        """Says whether the staged records are not known yet, so that a reader beyond C might pass them."""
        return self._has_looked is not None

    @property
    def may_end_look(self) -> bool:
        """Says whether the staged records are known by now, or the time to wait for them is over."""
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
        """Read on from the end of the index."""
        # A new reader begins there, since a reader that seeks may still hand over older records.
        self._intake.close()
        self._intake = self._read_on()

    def fill(self, wait_s: float, max_bytes: int = NEVER) -> Indexed:
        """Index the records that have arrived, as ``Intake.fill`` does; raise ClusterError on any error."""
        return self._intake.fill(wait_s, max_bytes)

    @property
    def waits(self) -> bool:
        """Says that no record may be indexed before the next transaction."""
        return self._intake.waits

    def lag(self) -> int:
        """Return the number of offsets of the delay partition that are not indexed yet."""
        return self._intake.lag()

    def close(self) -> None:
        """End reading, and forget the records that are not indexed."""
        self._intake.close()

    def _read_on(self) -> Intake:
        until_offset = self._ledger.committed.cursor if self.is_looking else NEVER
        return self._begin(self._ledger, self._history, until_offset, self._places)


def is_held_up(ledger: PartitionLedger, resident_bytes: int, payload_memory_bytes: int) -> bool:
    """Say whether the intake of a paused partition has to wait for the end of the pause, behind a late record.

    A late record may not leave, so C stands in front of it, and no record behind it can be sealed. The records behind
    it stay in memory, and the next owner reads them again.
    """
    if not ledger.owed:
        return False
    behind_cursor = ledger.indexed_to - ledger.committed.cursor
    return behind_cursor >= HELD_UP_RECORDS or resident_bytes >= payload_memory_bytes // HELD_UP_SHARE

"""What housekeeping adds to a transaction, next to the records that leave."""

from dataclasses import dataclass

from index.batch import Installs
from index.rule_history import RuleHistory


@dataclass(frozen=True, slots=True)
class Chores:
    """Segments to write, or a manifest to install, and keys to remove.

    A manifest is never in the transaction of a segment it names, since the offset of a segment is only known once it is
    committed. ``removed`` are keys of the state topic, ``reclaimed`` of the snapshots topic, ``withdrawn`` of the
    backfill topic. ``history`` is that of the rules from this transaction on, where it starts an epoch.
    """

    segments: tuple[tuple[bytes, bytes], ...] = ()
    installs: Installs | None = None
    removed: tuple[bytes, ...] = ()
    reclaimed: tuple[bytes, ...] = ()
    withdrawn: tuple[bytes, ...] = ()
    history: RuleHistory | None = None

    def __bool__(self) -> bool:
        kept = self.segments or self.installs or self.removed or self.reclaimed
        return bool(kept or self.withdrawn or self.history)

    @property
    def size_bytes(self) -> int:
        """What the segments cost in a transaction; anything else is small."""
        return sum(len(value) for _, value in self.segments)

    def without_refusable(self) -> "Chores":
        """The same without what the broker may refuse, which is tried again later."""
        return Chores(history=self.history)


NOTHING = Chores()

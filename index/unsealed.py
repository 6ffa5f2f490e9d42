"""Entries that are in no bucket yet: those of the mutable bucket, and of one that is being sealed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pyroaring import BitMap64

from index.pending import Entry, PendingIndex

P = TypeVar("P")


@dataclass(slots=True)
class Unsealed(Generic[P]):
    """The entries of one ledger range that are in no bucket yet; ``offsets`` gives S as its minimum."""

    from_offset: int
    entries: PendingIndex[P] = field(default_factory=PendingIndex)
    offsets: BitMap64 = field(default_factory=BitMap64)
    # Added in runs: one call for many is ten times cheaper than one each.
    fresh: list[int] = field(default_factory=list)

    def add(self, run: Sequence[Entry[P]]) -> None:
        """Add entries."""
        self.entries.add(run)
        self.fresh += [offset for _, offset, _ in run]

    def settle(self) -> BitMap64:
        """The offsets of all entries."""
        if self.fresh:
            self.offsets.update(self.fresh)
            self.fresh = []
        return self.offsets

"""The contents of one transaction of a partition: records that leave, a bucket that is installed, and the progress."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from index.buckets.bucket import Manifest
from index.named.receipts import Receipt
from index.partition.adopting import Adoption
from index.pending.pending import Entry
from index.pending.progress import BEFORE_ALL, Position, Progress

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Installation:
    """A manifest that is committed with a batch: the frozen bucket's, or that of a bucket merged from others.

    Entries of a sealed bucket up to ``keep_to`` stay in memory, because they are due soon.
    """

    manifest: Manifest
    merged_from: tuple[int, ...] = ()
    keep_to: Position = BEFORE_ALL


Installs: TypeAlias = Installation | Adoption


@dataclass(frozen=True, slots=True)
class Batch(Generic[P, R]):
    """The records that leave in one transaction, and the progress that must be committed with it.

    ``late`` are entries that W had already passed when they became known, by indexing or by adopting their bucket.
    ``due_bytes`` is the planned size of ``due`` in a transaction. ``cancelled`` are entries that W or C passes and that
    do not leave: their receipts are in this batch or were in an earlier one.
    """

    late: list[Entry[P]]
    due: list[Entry[P]]
    rejected: list[tuple[int, R]]
    progress: Progress
    installs: Installs | None = None
    due_bytes: int = 0
    receipts: Sequence[Receipt] = ()
    cancelled: list[Entry[P]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.late) + len(self.due) + len(self.rejected) + len(self.receipts)

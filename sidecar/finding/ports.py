"""What a walk through one partition needs of who makes it: where it reads, and how much it may."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from index.bucket import SegmentRef
from index.id_pages import IdPage, IdPageRef
from index.record import Record
from snapshots.segment import StoredEntry


class Stored(Protocol):
    """Where the records of the partition are read."""

    def segment(self, ref: SegmentRef) -> Sequence[StoredEntry] | None:
        """What a segment holds, by (due, offset); None when it is there no more."""

    def id_page(self, ref: IdPageRef) -> IdPage | None:
        """A page of ids; None when it is there no more, or is not the one that is meant."""

    def records(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Records of the delay partition at ascending offsets; None for one that is gone."""

    def log(self, from_offset: int, to_offset: int | None = None) -> Iterator[tuple[int, Record]]:
        """Every committed record of the delay partition in [from, to) that is left, with its offset.

        Without ``to_offset`` to its end.
        """

    def log_start(self) -> int:
        """The first offset that the delay partition still has."""


class Allowance(Protocol):
    """How much a page may still read."""

    def is_spent(self) -> bool:
        """Whether it has to end."""

    def spend(self, records: int) -> None:
        """So many were read."""

"""The history of rules: the epochs of a delay partition, as one immutable value.

A decision must replay, so every decision takes the rules by the offset of its record::

    offsets   100 ............ 250 ............ 400 ........ not read yet
    rules      A                B                C, in force

A change of rules makes a new history, which replaces the old one as a whole.

>>> history = RuleHistory.beginning(100, Rules("d")).with_epoch(250, Rules("d", default_target="out"))
>>> history.at(249).default_target, history.at(250).default_target
('', 'out')
>>> history.over(200, 300) is None
True
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from index.errors import FormatError
from index.rules.rules import Rules


class RuleEpoch(NamedTuple):
    """Rules that decide records at and beyond ``from_offset``, up to the next epoch."""

    from_offset: int
    rules: Rules


@dataclass(frozen=True, slots=True)
class RuleHistory:
    """Epochs by rising offset, at least one; raises FormatError otherwise."""

    epochs: tuple[RuleEpoch, ...]
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = tuple(epoch.from_offset for epoch in self.epochs)
        if not starts or any(one >= two for one, two in pairwise(starts)):
            raise FormatError(f"rule epochs start at {list(starts)}; they must rise and there must be one")
        object.__setattr__(self, "_starts", starts)

    @classmethod
    def beginning(cls, from_offset: int, rules: Rules) -> "RuleHistory":
        """Return the history of a partition that has known no other rules."""
        return cls((RuleEpoch(from_offset, rules),))

    @property
    def from_offset(self) -> int:
        """The first offset whose rules are known."""
        return self._starts[0]

    @property
    def last(self) -> RuleEpoch:
        """The epoch that has not ended."""
        return self.epochs[-1]

    @property
    def in_force(self) -> Rules:
        """The rules that decide the next records."""
        return self.epochs[-1].rules

    def at(self, offset: int) -> Rules:
        """Return the rules that decide the record at ``offset``; the oldest known rules for records before them."""
        return self.epochs[self._number_of(offset)].rules

    def ends_at(self, offset: int) -> int | None:
        """Return the offset where the epoch of ``offset`` ends; None for the last one."""
        number = self._number_of(offset)
        return self._starts[number + 1] if number + 1 < len(self._starts) else None

    def over(self, lowest: int, highest: int) -> Rules | None:
        """Return the rules that decide all records from ``lowest`` to ``highest`` inclusive; None where several do."""
        number = self._number_of(lowest)
        return self.epochs[number].rules if number == self._number_of(highest) else None

    def with_epoch(self, from_offset: int, rules: Rules) -> "RuleHistory":
        """Add an epoch of ``rules`` that begins at ``from_offset``; the same history where they are in force already.

        An epoch that begins at or beyond ``from_offset`` has decided nothing, and is dropped.
        """
        if rules == self.in_force:
            return self
        before = self.epochs[: bisect_right(self._starts, from_offset - 1)]
        return RuleHistory((*before, RuleEpoch(from_offset, rules)))

    def since(self, needed_from: int) -> "RuleHistory":
        """Drop the epochs that end at or before ``needed_from``."""
        return RuleHistory(self.epochs[self._number_of(needed_from) :])

    def check(self, needed_from: int) -> None:
        """Raise FormatError when records that are needed were decided by rules that are not known."""
        if self.from_offset > needed_from:
            raise FormatError(f"rule epochs start at {self.from_offset}, but records from {needed_from} on need rules")

    def _number_of(self, offset: int) -> int:
        return max(bisect_right(self._starts, offset) - 1, 0)

"""Models the routers of a group: the owner, the routers that have heard of it, and the others."""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from index.errors import ConnectionLostError
from index.rules.rules import Rules
from tests.simulation.serving import Serving
from tests.simulation.settings import Surroundings
from tests.simulation.world import (
    AbortedError,
    CrashedError,
    Faults,
    FencedError,
    OutOfRangeError,
    RecordRefusedError,
    UnknownOutcomeError,
)

HEARS_AT_ONCE = 0.6
ORDERLY = 0.7
"""The share of ends of a worker that give the state back, if it is written by a lane."""

INTERRUPTIONS = (
    *(CrashedError, UnknownOutcomeError, AbortedError, RecordRefusedError, FencedError, OutOfRangeError),
    ConnectionLostError,
)
"""The errors after which a router discards all knowledge of the partition."""


@dataclass(eq=False)
class Member:
    """A router process: the last decision it heard from the group, its configuration, and its worker while that serves.

    ``may_fence``: a worker that has just been started takes over without asking; after that it asks the group first.
    """

    number: int
    around: Surroundings
    is_told: bool = False
    may_fence: bool = False
    serving: Serving | None = None

    def use(self, rules: Rules) -> None:
        """Follow these rules from now on, also while the worker serves."""
        self.around.rules = rules

    def end(self) -> None:
        """Discard all knowledge of the partition."""
        if self.serving is not None:
            self.serving.leave()
        self.serving = None

    def end_by(self, interruption: BaseException) -> None:
        """Discard all knowledge of the partition; if the router was killed, start its process anew."""
        self.end()
        if isinstance(interruption, CrashedError):
            self.around.process = self.around.process.anew()

    def give_back(self) -> None:
        """End in an orderly way, if no fault comes between."""
        if self.serving is not None:
            with suppress(*INTERRUPTIONS):
                self.serving.owned.give_back()
        self.end()

    def hear(self, *, assigned: bool) -> None:
        """Take in a decision of the group: start or end the worker."""
        if assigned and not self.is_told:
            self.may_fence = True
        if not assigned and self.around.process.is_lucky(ORDERLY):
            self.give_back()
        elif not assigned:
            self.end()
        self.is_told = assigned


class Group:
    """The coordinator. Its decisions reach the members late, and an answer may predate the last change."""

    def __init__(self, rng: random.Random, faults: Faults, members: Sequence[Member]) -> None:
        self._rng = rng
        self._faults = faults
        self.members = members
        self.owner = self._before = members[0]
        self.owner.hear(assigned=True)

    @property
    def is_heard(self) -> bool:
        """Say whether every member knows the owner."""
        return all(member.is_told is (member is self.owner) for member in self.members)

    def give_to(self, member: Member) -> None:
        """Give the partition to a member; each of the two members concerned may hear of it at once."""
        self._before, self.owner = self.owner, member
        for each in (self._before, member):
            if self._rng.random() < HEARS_AT_ONCE:
                self.tell(each)

    def tell(self, member: Member) -> None:
        """Tell a member the last decision."""
        member.hear(assigned=member is self.owner)

    def tell_someone(self) -> None:
        """Tell one member that has not heard the last decision."""
        unaware = [member for member in self.members if member.is_told is not (member is self.owner)]
        if unaware:
            self.tell(self._rng.choice(unaware))

    def answers(self, member: Member) -> bool:
        """Say whether the partition belongs to this member, according to an answer that may predate the last change."""
        is_stale = self._rng.random() < self._faults.stale_chance
        return member is (self._before if is_stale else self.owner)

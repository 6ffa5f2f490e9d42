"""The routers of a group: who owns the partition, who has heard of it, and who believes otherwise."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from index.rules import Rules
from tests.simulation.serving import Serving
from tests.simulation.settings import Surroundings
from tests.simulation.world import Faults

HEARS_AT_ONCE = 0.6


@dataclass(eq=False)
class Member:
    """A router process: what it has been told by the group, its configuration, and its worker once that serves.

    ``may_fence``: a worker that has just been started takes over without asking; after that the group is asked first.
    """

    number: int
    around: Surroundings
    is_told: bool = False
    may_fence: bool = False
    serving: Serving | None = None

    def use(self, rules: Rules) -> None:
        """Follow these rules from here on, also while it serves."""
        self.around.rules = rules

    def end(self) -> None:
        """Throw away what it knows of the partition."""
        self.serving = None

    def hear(self, *, assigned: bool) -> None:
        """Be told by the group what it has decided; a worker is started, or ended."""
        if assigned and not self.is_told:
            self.may_fence = True
        if not assigned:
            self.end()
        self.is_told = assigned


class Group:
    """The coordinator. What it tells its members arrives late, and what it answers may be of before the last change."""

    def __init__(self, rng: random.Random, faults: Faults, members: Sequence[Member]) -> None:
        self._rng = rng
        self._faults = faults
        self.members = members
        self.owner = self._before = members[0]
        self.owner.hear(assigned=True)

    @property
    def is_heard(self) -> bool:
        """Whether everybody knows who the owner is."""
        return all(member.is_told is (member is self.owner) for member in self.members)

    def give_to(self, member: Member) -> None:
        """Decide anew; perhaps each of the two concerned hears of it at once."""
        self._before, self.owner = self.owner, member
        for each in (self._before, member):
            if self._rng.random() < HEARS_AT_ONCE:
                self.tell(each)

    def tell(self, member: Member) -> None:
        """Let a member hear what was decided."""
        member.hear(assigned=member is self.owner)

    def tell_someone(self) -> None:
        """Let one of those hear it who have not yet."""
        unaware = [member for member in self.members if member.is_told is not (member is self.owner)]
        if unaware:
            self.tell(self._rng.choice(unaware))

    def answers(self, member: Member) -> bool:
        """Whether the partition is still this member's, as the group says, or said when the answer was on its way."""
        is_stale = self._rng.random() < self._faults.stale_chance
        return member is (self._before if is_stale else self.owner)

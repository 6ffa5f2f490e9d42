"""Models the routers of a group: the owner, the routers that have heard of it, and the others.

The shipped loop decides what a router does with its partition, from its assignment to the end (:mod:`.serving`).

Modelled is what the group decides, and when a router hears of it. The shipped code for that is not played: the client
calls back in the thread of its consumer (:mod:`sidecar.kafka.client.membership`, which asks the coordinator by a
commit), and :mod:`sidecar.process.workers` waits for the end of threads, within a deadline. Both only pass on that a
partition is given, revoked or lost; tests with a broker play them. The delay topics to serve
(:mod:`sidecar.process.served_topics`) are selected before a partition is assigned, by a check of the whole cluster.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from index.rules.rules import Rules
from tests.simulation.serving import SteppedWorker
from tests.simulation.settings import Surroundings
from tests.simulation.world import Faults

HEARS_AT_ONCE = 0.6
ORDERLY = 0.7
"""The share of ends of a worker that give the state back, if it is written by a lane."""


@dataclass(eq=False)
class Member:
    """A router process: the last decision it heard from the group, its configuration, and its worker while it has one.

    ``checks``: the ledger looks at itself after each step. ``asks`` asks the group.
    """

    number: int
    around: Surroundings
    checks: bool = True
    is_told: bool = False
    asks: Callable[[], bool] = lambda: False
    worker: SteppedWorker | None = None

    @property
    def serving(self) -> SteppedWorker | None:
        """The worker while it serves the partition, by its own knowledge."""
        return self.worker if self.worker is not None and self.worker.loop.rounds is not None else None

    def use(self, rules: Rules) -> None:
        """Follow these rules from now on, also while the worker serves."""
        self.around.rules = rules

    def crash(self) -> None:
        """Begin anew in a new process."""
        if self.worker is not None:
            self.worker.begin_anew()
        self.around.process = self.around.process.anew()

    def hear(self, *, assigned: bool) -> None:
        """Take in a decision of the group: start or end the worker."""
        if assigned and not self.is_told:
            self.worker = SteppedWorker(self.around, self.asks, checks=self.checks)
        elif not assigned:
            is_orderly = self.around.process.luck is None or self.around.process.is_lucky(ORDERLY)
            if self.worker is not None and is_orderly:
                self.worker.stop()
            elif self.worker is not None:
                self.worker.vanish()
            self.worker = None
        self.is_told = assigned


class Group:
    """The coordinator. Its decisions reach the members late, and an answer may predate the last change."""

    def __init__(self, rng: random.Random, faults: Faults, members: Sequence[Member]) -> None:
        self._rng = rng
        self._faults = faults
        self.members = members
        for member in members:
            member.asks = partial(self.answers, member)
        self.owner = self._before = members[0]

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

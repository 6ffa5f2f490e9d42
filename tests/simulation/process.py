"""Models the transactional producers of a router process: one of the partition's own id, and one of a lane.

The lane has other partitions, of which only the harm to the lane is modelled here: one of them meets an unknown
outcome, or is taken over by another process, which fences the lane. The registry of lanes is the shipped one
(:class:`sidecar.kafka.writing.lanes.Lanes`). Transactions with parts of several partitions are played in
:mod:`tests.simulation.shared`.
"""

import random
from math import inf
from typing import Final, cast

from index.errors import ConnectionLostError
from sidecar.clock import SystemClock
from sidecar.kafka.client.connections import OnThrottle, RenewableProducer
from sidecar.kafka.writing.lanes import Lanes, Member
from snapshots.state.lane import LaneName
from tests.simulation.world import DELAY_PLACE, GROUP, Faults, Held, Store, Transaction

LANES_SHARE: Final = 0.4
"""The share of runs in which processes have lanes."""

MIXED: Final = 0.25
"""The share of processes without lanes in such a run."""

MEANWHILE_CHANCE: Final = 0.05

ENDED_BY_ANOTHER_CHANCE: Final = 0.3
"""The chance that another partition of the process ends a lane before the one that is played does."""

PARTITIONS: Final = 2
"""How many partitions each process has, as far as its lanes know; with one lane they share it."""


class SimulatedProducer:
    """A transactional producer: its id, and the epoch that it got when it fenced the ones before."""

    def __init__(self, store: Store, transactional_id: str) -> None:
        self._store = store
        self.transactional_id = transactional_id
        self.epoch = -1

    def init(self) -> None:
        """Fence the producers of the same id."""
        self.epoch = self._store.fence(self.transactional_id)

    @property
    def is_present(self) -> bool:
        """Says whether no other producer has fenced this one."""
        return self.epoch == self._store.present(self.transactional_id).epoch

    def claim(self, claim: Transaction) -> None:
        """Commit the claim of a group; raise ConnectionLostError if the end of a transaction may be on its way."""
        held = Held(self.transactional_id, self.epoch)
        if self._store.has_lost_connection(held):
            raise ConnectionLostError("in the simulation", -inf)
        self._store.commit(held, claim)

    def purge(self) -> None:
        """Do nothing: the next producer of the id settles an open transaction."""


class SimulatedProcess:
    """The lanes of one router process; a process that was killed gets a new object."""

    def __init__(self, store: Store | None, luck: random.Random | None = None, group: str = GROUP) -> None:
        """Have no lanes if ``luck`` is None, or by chance."""
        self._store = store
        self.luck = luck
        self.group = group
        most = int(luck is not None and luck.random() >= MIXED)
        self.lanes = Lanes(group, most, self._make, SystemClock())
        self.lanes.partitions = PARTITIONS

    def _make(self, transactional_id: str, _: OnThrottle | None) -> RenewableProducer:
        assert self._store is not None
        return cast("RenewableProducer", SimulatedProducer(self._store, transactional_id))

    def join(self) -> Member | None:
        """Let the partition join the lane."""
        return self.lanes.join(DELAY_PLACE, lambda _: None, _init)

    def end(self, name: LaneName, mine: Member | None) -> bool:
        """End a lane, and say whether that fenced it."""
        assert self._store is not None
        before = self._store.present(name.transactional_id)
        self.lanes.end(name, DELAY_PLACE, mine, _init)
        return self._store.present(name.transactional_id) != before

    def is_lucky(self, chance: float) -> bool:
        """Draw from the generator of the process; no luck without lanes."""
        return self.luck is not None and self.luck.random() < chance

    def anew(self, group: str | None = None) -> "SimulatedProcess":
        """Return the process after a restart, perhaps in another group."""
        return SimulatedProcess(self._store, self.luck, group or self.group)


def some_process(seed: int, store: Store, faults: Faults) -> SimulatedProcess:
    """Return a process, with lanes in some runs; other routers then act more often between two effects of one."""
    # A random generator of its own, so that the rest of the run stays the same without it.
    luck = random.Random(f"{seed}, lanes")
    if luck.random() >= LANES_SHARE:
        return SimulatedProcess(store)
    faults.meanwhile_chance = max(faults.meanwhile_chance, luck.choice([0.0, MEANWHILE_CHANCE]))
    return SimulatedProcess(store, luck)


def _init(producer: RenewableProducer, *, within_s: float = 0.0) -> None:
    del within_s
    cast("SimulatedProducer", producer).init()

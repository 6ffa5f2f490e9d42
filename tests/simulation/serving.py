"""Serves one ownership of the partition: a worker's steps with the shipped code, on ports of the simulation."""

from collections.abc import Callable

from index.partition.transaction_size import TransactionSize
from index.rules.rules import Rules
from sidecar.engine.ownership import owned_partition, rounds
from tests.simulation.host import Host
from tests.simulation.settings import Surroundings
from tests.simulation.world import Faults

MAINTAINS = 0.5
TIMEOUT_S = 60.0


class SimulatedSize(TransactionSize):
    """A size limit drawn at random."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(1 << 20, TIMEOUT_S)
        self._faults = faults

    def limit_bytes(self, now_s: float) -> int:
        """Return a limit with room for one record, for several, or for all."""
        return min(self._faults.rng.choice(self._faults.sizes_bytes), super().limit_bytes(now_s) + (1 << 20))


class Serving:
    """An ownership, taken over by the constructor and discarded after any interruption."""

    def __init__(
        self, around: Surroundings, *, checks: bool, make_host: Callable[[Surroundings], Host] | None = None
    ) -> None:
        """Take over with a host; a wrong router may replace ``Host`` in this module."""
        self._around = around
        self._checks = checks
        self.host = (make_host or Host)(around)
        try:
            self.host.fence()
            self.owned = owned_partition.take_over(self.host)
        except BaseException:
            self.host.leave()
            raise
        self.rounds = rounds.Rounds(self.host.context, self.owned, SimulatedSize(around.faults), 30)

    @property
    def rules(self) -> Rules:
        """The latest rules that the router has heard of."""
        return self._around.rules

    def turn(self, reads: int, most_records: int) -> None:
        """Do some of the waiting work of the pool, and one round."""
        self.host.reads = reads
        self.host.pool.turn()
        if self.owned.ledger.replaying:
            self.rounds.replay()
        else:
            self.rounds.batch_records = most_records
            self.rounds.once()
            if self._around.faults.rng.random() < MAINTAINS:
                self.owned.maintain()
        if self._checks:
            self.owned.ledger.check()

    def leave(self) -> None:
        """Leave the lane, after the end of the ownership."""
        self.host.leave()

    def close(self) -> None:
        self.owned.close()

"""Serves the partition for one router: the shipped loop, which the scheduler takes from step to step.

The loop (:class:`sidecar.engine.ownership.serving.ServingLoop`) decides when the router takes over, when it asks the
group first, and what it does after each error. The worker here stands for the thread: a pause of the loop takes as long
as the scheduler lets other routers act.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from index.errors import ClusterError, NotYetError, RefusedError
from index.partition.transaction_size import TransactionSize
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import LIMITS
from sidecar.engine.ownership import serving
from sidecar.engine.ownership.owned_partition import OwnedPartition
from sidecar.engine.ownership.rounds import Rounds
from tests.simulation.checker import Violation
from tests.simulation.host import METRICS, Host, SimulatedClock
from tests.simulation.process import SimulatedProducer
from tests.simulation.settings import Surroundings
from tests.simulation.world import DELAY_TOPIC, CrashedError, Faults

MAINTAINS = 0.5
"""The share of rounds that report, and do the work beside releases."""

TIMEOUT_S = 60.0
SESSION_TIMEOUT_S = 10.0
DRAIN_STEP_S = 2.0
"""The time that a step takes while the partition is drained."""

DRAINED_BY_S = LIMITS.drain_within_s + 3 * DRAIN_STEP_S
EXPECTED = ClusterError, NotYetError, RefusedError
"""The errors that a router may meet; any other one is a defect."""


class SimulatedSize(TransactionSize):
    """A size limit drawn at random."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(1 << 20, TIMEOUT_S)
        self._faults = faults

    def usual_bytes(self, now_s: float) -> int:
        """Return a limit with room for one record, for several, or for all."""
        return min(self._faults.rng.choice(self._faults.sizes_bytes), super().usual_bytes(now_s) + (1 << 20))


class LoopClock(SimulatedClock):
    """The clock by which a loop reports and drains; it goes on by chance after each round."""

    passed_s = 0.0

    def running_s(self) -> float:
        """Return a time of its own, so that the chance of a report does not depend on other routers."""
        return self.passed_s


class SteppedWorker:
    """A worker without a thread, which has been assigned the partition: the process of one shipped loop.

    ``met`` is the error that the last step has met, None without one; ``pause_s`` is the pause behind that step.
    """

    def __init__(
        self,
        around: Surroundings,
        asks: Callable[[], bool],
        *,
        checks: bool,
        make_host: Callable[[Surroundings], Host] | None = None,
    ) -> None:
        """Begin with the first step; a wrong router may replace ``Host`` in this module."""
        self._around = around
        self._asks = asks
        self._checks = checks
        self._make_host = make_host
        self._clock = LoopClock(around.clock)
        self._own: SimulatedProducer | None = None
        self._is_stopping = self._was_told = False
        self._drained_s = 0.0
        self.met: Exception | None = None
        self.pause_s = 0.0
        context = PartitionContext(
            DelayTopicConfig(name=DELAY_TOPIC), 0, around.process.group, METRICS, self._clock, limits=around.limits
        )
        self.loop = serving.ServingLoop(context, self, SimulatedSize(around.faults), 30, SESSION_TIMEOUT_S, "")
        self._steps = self.loop.steps()

    @property
    def rounds(self) -> Rounds:
        """The rounds of the present ownership."""
        assert self.loop.rounds is not None
        return self.loop.rounds

    @property
    def owned(self) -> OwnedPartition:
        """The present ownership."""
        return self.rounds.owned

    @property
    def rules(self) -> Rules:
        """The latest rules that the router has heard of."""
        return self._around.rules

    @property
    def is_owner(self) -> bool:
        """Says whether no other router has taken over since this one did."""
        return self._own is not None and self._own.is_present

    def turn(self, reads: int, most_records: int) -> None:
        """Do some of the waiting work of the pool, and the next step of an ownership."""
        self.ports.reads = reads
        self.ports.pool.turn()
        self.rounds.batch_records = most_records
        self.step()

    def step(self) -> None:
        """Do the next step of the loop, and the take-overs that follow at once; raise the error of a defect."""
        self.met = None
        self.pause_s = next(self._steps)
        while self.loop.rounds is None and not self.pause_s and self._around.faults.commits_are_fresh:
            self.pause_s = next(self._steps)
        self._raise_defect()
        if self.loop.rounds is not None:
            self._require_drained()
            if self._checks:
                self.owned.ledger.check()

    def stop(self) -> None:
        """End in an orderly way, if no fault comes between."""
        self._is_stopping, self.met = True, None
        with suppress(CrashedError):
            for _ in self._steps:
                pass
        self._raise_defect()

    def vanish(self) -> None:
        """End without another step."""
        self._steps.close()

    def begin_anew(self) -> None:
        """Discard all knowledge of the partition, as a process does that was killed; the next step asks the group."""
        self._steps.close()
        self._steps = self.loop.steps()

    def _raise_defect(self) -> None:
        if self.met is not None and not isinstance(self.met, EXPECTED):
            raise self.met

    def _require_drained(self) -> None:
        if not self._around.drained or self.owned.ledger.replaying:
            self._drained_s = 0.0
            return
        self._clock.passed_s += DRAIN_STEP_S
        self._drained_s += DRAIN_STEP_S
        if self._drained_s > DRAINED_BY_S:
            raise Violation("a partition is still served, long after a policy has drained it")

    def is_stopping(self) -> bool:
        return self._is_stopping

    def is_drained(self) -> bool:
        return bool(self._around.drained)

    def still_ours(self) -> bool:
        self._was_told = self._asks()
        return self._was_told

    def host(self) -> Host:
        """Make the ports of an ownership. Raise Violation if the router was fenced, and has not asked since."""
        if self._own is not None and not self.is_owner and not self._was_told:
            raise Violation("a fenced router takes over again, though the group has not given it the partition")
        self._was_told = False
        self.ports = (self._make_host or Host)(self._around)
        self._own = self.ports.own
        self.ports.serve_client = self._let_time_pass
        self.ports.budget.is_served = lambda: self.loop.rounds is not None
        # The first round of an ownership reports by chance, as all others do.
        self._clock.passed_s = -LIMITS.report_every_s
        return self.ports

    def _let_time_pass(self) -> None:
        if self._around.faults.rng.random() < MAINTAINS:
            self._clock.passed_s += LIMITS.report_every_s

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Note an error that ends an ownership."""
        try:
            yield
        except Exception as error:
            self.met = error
            raise

    def doubt_topics(self) -> None:
        """Do nothing: nobody looks at topics."""

    def why_slow(self, _: float) -> str:
        return ""

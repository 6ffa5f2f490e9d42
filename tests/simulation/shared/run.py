"""Plays one run of shared transactions, from one seed."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Final, cast
from unittest.mock import patch

from confluent_kafka import KafkaException
from structlog.testing import capture_logs

from index.errors import ConnectionLostError, NotYetError
from sidecar.clock import Clock
from sidecar.engine.ownership.lanes import end_former, require_noted
from sidecar.engine.ports import Place
from sidecar.engine.release.transaction import Outcome, Result
from sidecar.kafka.client.connections import OnThrottle, RenewableProducer
from sidecar.kafka.writing import lane as lane_module
from sidecar.kafka.writing import lanes as lanes_module
from sidecar.kafka.writing.lane import Finish, Lane
from sidecar.kafka.writing.lanes import Lanes, Member
from snapshots.state.lane import LaneName
from tests.simulation.replacing import Wrong, replaced
from tests.simulation.shared.brokers import NONE, Chances, ModelledBrokers, ModelledProducer, Standing, Written
from tests.simulation.shared.scheduler import Scheduler
from tests.simulation.violation import Violation

PLACES: Final[tuple[Place, ...]] = (("d", 0), ("d", 1), ("e", 0))
LANES: Final = 0, 1, 1, 1, 2
"""The numbers of lanes of which each process has one; without lanes each partition has a producer of its own."""

SWITCHES: Final = 800
"""Switches with faults."""

SETTLE_SWITCHES: Final = 6_000
STEPS: Final = {"rebalance": 0.01, "kill": 0.002, "trouble": 0.002}
"""The chance of each event between two switches."""

ROUNDS: Final = 30
"""Most transactions of one ownership."""


@dataclass(eq=False)
class ModelledProcess:
    """A router process: its lanes, and the worker of each partition that it believes to own."""

    lanes: Lanes
    workers: dict[Place, object] = field(default_factory=dict)
    is_killed: bool = False


class _Writers:
    """The state of a partition as a take-over reads it; the shipped ``end_former`` asks it."""

    def __init__(self, run: "SharedRun", process: ModelledProcess, place: Place, member: Member | None) -> None:
        self._run, self._process, self._place, self._member = run, process, place, member
        self.standing = Standing()

    def lane(self) -> LaneName | None:
        self._run.scheduler.switch()
        brokers = self._run.brokers
        if not brokers.is_settled(self._place) and (lane := brokers.standing(self._place).lane) is not None:
            self.end(lane)
        if not brokers.is_settled(self._place):
            raise NotYetError("an open transaction hides the end of the state")
        self.standing = brokers.standing(self._place)
        return self.standing.lane

    def end(self, lane: LaneName) -> None:
        self._process.lanes.end(lane, self._place, self._member, _init)

    def groups(self) -> frozenset[str]:
        return frozenset()

    def claim(self, group: str) -> None:
        raise AssertionError(f"there is one group, and no {group}")

    def end_group(self, group: str) -> None:
        raise AssertionError(f"there is one group, and no {group}")


class SharedRun:
    """One run; ``play`` raises Violation if a guarantee is broken."""

    def __init__(self, seed: int, wrong: type[Wrong] | None = None) -> None:
        self._rng = random.Random(f"{seed}, shared")
        self._wrong = wrong
        self.trace: list[str] = []
        self.scheduler = Scheduler(self._rng)
        chances = Chances.drawn(self._rng)
        self.brokers = ModelledBrokers(self._rng, self.scheduler.switch, self.trace.append, chances)
        self._processes: list[ModelledProcess] = []
        self._lanes: list[Lanes] = []

    @property
    def given_up(self) -> int:
        """The number of transactional ids that the processes of the run have given up."""
        return sum(len(each.given_up) for each in self._lanes)

    def play(self) -> None:
        """Play the run to its end."""
        with self._replaced():
            self._processes = [self._process(), self._process()]
            for place in PLACES:
                self._assign(place, self._processes[0])
            try:
                self._play()
            finally:
                self.scheduler.end()

    def _play(self) -> None:
        while self.scheduler.switches < SWITCHES:
            self.scheduler.turn()
            self.brokers.perhaps_late()
            for event, chance in STEPS.items():
                if self._rng.random() < chance:
                    getattr(self, f"_{event}")()
        self._settle()
        until = self.scheduler.switches + SETTLE_SWITCHES
        owed = {place: self.brokers.standing(place).cursor + 3 for place in PLACES}
        while any(self.brokers.standing(place).cursor < cursor for place, cursor in owed.items()):
            if not self.scheduler.turn() or self.scheduler.switches > until:
                raise Violation(f"not done: {self.brokers.states}")

    def _settle(self) -> None:
        """Stop the faults, and let the first process own everything."""
        self.trace.append("settling")
        self.brokers.chances = NONE
        self.brokers.in_trouble.clear()
        for transactional_id in [*self.brokers.in_doubt]:
            self.brokers.settle(transactional_id)
        for place in PLACES:
            self._assign(place, self._processes[0])

    def _process(self) -> ModelledProcess:
        clock = cast("Clock", SimpleNamespace(running_s=self._now_s))
        lanes = Lanes("g", self._rng.choice(LANES), self._make, clock)
        lanes.partitions = len(PLACES)
        self._lanes.append(lanes)
        return ModelledProcess(lanes)

    def _now_s(self) -> float:
        return self.scheduler.switches / 10

    def _make(self, transactional_id: str, _: OnThrottle | None) -> RenewableProducer:
        return cast("RenewableProducer", self.brokers.producer(transactional_id))

    def _assign(self, place: Place, process: ModelledProcess) -> None:
        """Give a partition to a process; the worker of its former owner hears of it when it looks."""
        for each in self._processes:
            each.workers.pop(place, None)
        worker = process.workers[place] = object()
        name = f"{self._processes.index(process)}| {place}"
        self.scheduler.start(name, lambda: self._serve(process, place, worker), lambda: process.is_killed)

    def _rebalance(self) -> None:
        """Give some partitions to a process, perhaps to the one that has them."""
        process = self._rng.choice(self._processes)
        for place in self._rng.sample(PLACES, self._rng.randint(1, len(PLACES))):
            self._assign(place, process)

    def _kill(self) -> None:
        """Kill a process and start another one, to which the group gives some of the partitions."""
        number = self._rng.randrange(len(self._processes))
        former = self._processes[number]
        former.is_killed = True
        self._processes[number] = self._process()
        self.trace.append(f"{number}| killed")
        for place in former.workers:
            self._assign(place, self._rng.choice(self._processes))

    def _trouble(self) -> None:
        self.brokers.in_trouble ^= {self._rng.choice(PLACES)}
        self.trace.append(f"in trouble: {self.brokers.in_trouble}")

    def _serve(self, process: ModelledProcess, place: Place, worker: object) -> None:
        """Serve a partition until the worker hears that the group has decided anew."""

        def is_assigned() -> bool:
            return process.workers.get(place) is worker

        while is_assigned():
            try:
                self._own(process, place, is_assigned)
            except (KafkaException, ConnectionLostError, NotYetError) as error:
                self.trace.append(f"{place}: {error!r}")

    def _own(self, process: ModelledProcess, place: Place, is_assigned: Callable[[], bool]) -> None:
        """Take the partition over, and release until something ends the ownership."""
        own = self.brokers.producer(f"g.{place[0]}.{place[1]}")
        own.init()
        member = process.lanes.join(place, lambda _: None, _init)
        try:
            writers = _Writers(self, process, place, member)
            end_former(writers)
            standing, lane = writers.standing, Lane(cast("RenewableProducer", own))
            if member is not None or standing.lane is not None:
                standing = Standing(standing.cursor, None if member is None else member.name)
                if self._commit(lane, place, standing.cursor, standing).outcome is not Outcome.COMMITTED:
                    return
            if member is not None:
                require_noted(writers, member.name)
                lane = member.lane
            self._release(process, place, lane, standing, is_assigned)
        finally:
            if member is not None:
                process.lanes.leave(member)

    def _release(
        self, process: ModelledProcess, place: Place, lane: Lane, standing: Standing, is_assigned: Callable[[], bool]
    ) -> None:
        for _ in range(ROUNDS):
            if not is_assigned():
                # An orderly end gives the state back.
                self._commit(lane, place, standing.cursor, Standing(standing.cursor))
                return
            to_offset = standing.cursor + self._rng.randint(1, 2)
            result = self._commit(lane, place, standing.cursor, standing._replace(cursor=to_offset))
            if result.outcome is Outcome.COMMITTED:
                standing = standing._replace(cursor=to_offset)
            elif result.outcome is Outcome.REFUSED:
                if place not in self.brokers.blamed:
                    raise Violation(f"{place} hears of a refusal that concerns another partition")
                process.lanes.set_apart(place)
                self.brokers.in_trouble.discard(place)
                return
            elif result.outcome is not Outcome.ABORTED:
                return

    def _commit(self, lane: Lane, place: Place, from_offset: int, standing: Standing) -> Result:
        written = Written(place, from_offset, standing)

        def part() -> Finish:
            cast("ModelledProducer", lane.producer).write(written)
            return lambda: Result(Outcome.COMMITTED, why=str(written))

        result = lane.commit(part, lambda: 1)
        if result.outcome is Outcome.COMMITTED and result.why != str(written):
            raise Violation(f"{place} hears the result of another part: {result.why}")
        self.trace.append(f"{place}: {result.outcome.name}, {written}")
        return result

    @contextmanager
    def _replaced(self) -> Iterator[None]:
        """Let the shipped code lock and wait by the scheduler, and replace the names of a wrong router."""
        time = SimpleNamespace(monotonic=self._now_s, sleep=lambda _: self.scheduler.switch())
        with ExitStack() as stack:
            for module in (lane_module, lanes_module):
                stack.enter_context(patch.object(module, "Lock", self.scheduler.lock))
            stack.enter_context(patch.object(lane_module, "time", time))
            stack.enter_context(replaced(self._wrong))
            stack.enter_context(capture_logs())
            yield


def _init(producer: RenewableProducer, *, within_s: float = 0.0) -> None:
    del within_s
    cast("ModelledProducer", producer).init()

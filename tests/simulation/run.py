"""One run: the scheduler that picks what happens next, from one seed."""

import random

from structlog.testing import capture_logs

from index.errors import FormatError, RefusedError
from index.sealing import PlacementRule, SealRules
from tests.simulation.checker import Checker, Violation
from tests.simulation.router import Router, Surroundings, small_and_soon
from tests.simulation.workload import LONGEST_DELAY_MS, append_some, some_rules
from tests.simulation.world import (
    START_MS,
    AbortedError,
    Clock,
    CrashedError,
    DelayLog,
    Faults,
    FencedError,
    Store,
    UnknownOutcomeError,
)

STEPS = 200
SETTLE_ROUNDS = 400
_INTERRUPTIONS = (CrashedError, UnknownOutcomeError, AbortedError, FencedError)
_REFUSALS = (RefusedError, FormatError)
_PLACEMENTS: tuple[PlacementRule, ...] = ("inline", "pointer", "auto")
_ACTIONS = {
    "round": 24,
    "append": 4,
    "clock": 5,
    "restart": 1,
    "usurp": 1,
    "zombie": 1,
    "rules": 1,
    "compact": 1,
    "damage": 1,
}


class Run:
    """State of one run; ``trace`` tells what happened."""

    logged: set[str]

    def __init__(self, seed: int, router_type: type[Router] = Router) -> None:
        self._rng = random.Random(seed)
        self._router_type = router_type
        faults = Faults(self._rng)
        trims = self._rng.random() < 0.5
        # What was trimmed cannot be made good, so a run has either the one or the other.
        self._damages = not trims and self._rng.random() < 0.5
        limits, max_buckets = _some_limits(self._rng), self._rng.choice([1, 1, 2, 3])
        self._around = Surroundings(Clock(), DelayLog(), Store(faults), faults, limits, max_buckets, trims)
        self._rules_used = [some_rules(self._rng)]
        self._router: Router | None = None
        self._zombies: list[Router] = []
        self._latest_ms = self._around.clock.now_ms
        self.trace: list[str] = []

    @property
    def simulated_ms(self) -> int:
        """How far the clock has gone on."""
        return self._around.clock.now_ms - START_MS

    def play(self) -> None:
        """Violation when a guarantee was broken."""
        with small_and_soon(self._around.clock), capture_logs() as logged:
            try:
                self._play()
            finally:
                self.logged = {str(entry["event"]) for entry in logged}

    def _play(self) -> None:
        checker = Checker(self._around.log.records, self._rules_used, self._around.store.committed)
        for _ in range(STEPS):
            self._do(self._rng.choices(list(_ACTIONS), list(_ACTIONS.values()))[0])
            checker.follow()
        self._settle()
        checker.follow()
        checker.nothing_missing()

    def _do(self, action: str) -> None:
        match action:
            case "round":
                self._router = self._advance(self._router)
            case "append":
                append_some(self._rng, self._around.clock, self._around.log)
                self._note(f"appended up to {self._around.log.end}")
            case "clock":
                self._move_clock()
            case "restart":
                self._note("killed")
                self._router = None
            case "usurp" if self._router is not None:
                self._note("given to another, and the old one does not know")
                self._zombies.append(self._router)
                self._router = None
            case "zombie" if self._zombies:
                self._note("zombie:")
                zombie = self._advance(self._zombies.pop())
                self._zombies += [zombie] if zombie is not None else []
            case "rules":
                self._rules_used.append(self._rng.choice([self._rules_used[0], some_rules(self._rng)]))
                self._note(f"from the next start on: {self._rules_used[-1]}")
                self._router = self._router if self._rng.random() < 0.5 else None
            case "compact":
                self._around.store.compact()
                self._note("compacted")
            case "damage" if self._damages and self._around.store.damage():
                self._note("a segment was damaged")

    def _advance(self, router: Router | None) -> Router | None:
        """One round, or a take-over; None when the router did not survive it."""
        try:
            if router is None:
                router = self._router_type(self._around, self._rules_used[-1])
                router.take_over()
                self._note(f"took over: {router.ledger.committed}")
            router.index(self._rng.choice([1, 3, 30]))
            if self._rng.random() < 0.7:
                router.release(self._rng.choice([0, 1, 3, 30]), self._rng.choice([10, 30, 1_000]))
                self._note(f"round: {router.ledger.committed}, buckets {sorted(router.ledger.parts.buckets)}")
        except _INTERRUPTIONS as interruption:
            self._note(repr(interruption))
            return None
        except _REFUSALS as refusal:
            if router is not None and not router.is_owner():
                self._note(repr(refusal))
                return None
            # Nothing that happens in a run is beyond repair, so a router that gives up has done the harm itself.
            raise Violation(f"the partition stopped: {refusal}") from refusal
        self._around.clock.running_s += 0.01
        return router

    def _move_clock(self) -> None:
        clock, luck = self._around.clock, self._rng.random()
        if luck < 0.2:
            clock.now_ms -= self._rng.randint(1, 60)
        else:
            clock.now_ms += self._rng.randint(0, 40) if luck < 0.98 else LONGEST_DELAY_MS
        self._latest_ms = max(self._latest_ms, clock.now_ms)
        self._note(f"clock {clock.now_ms}")

    def _settle(self) -> None:
        """Let everything that is owed leave: no more faults, and a clock that goes on."""
        self._note("settling")
        self._around.faults.stop()
        self._router = None
        due_by_ms = self._latest_ms + LONGEST_DELAY_MS
        for _ in range(SETTLE_ROUNDS):
            self._router = self._advance(self._router)
            self._around.clock.now_ms += 50
            if self._router is not None and self._around.clock.now_ms > due_by_ms and self._is_done(self._router):
                return
        raise Violation(f"not done: {self._router and self._router.ledger.parts.buckets}")

    def _is_done(self, router: Router) -> bool:
        ledger = router.ledger
        gone = not ledger.pending and not ledger.owed and not ledger.parts.buckets and not router.budget.used_bytes
        return gone and ledger.committed.cursor == self._around.log.end

    def _note(self, event: str) -> None:
        self.trace.append(event)


def _some_limits(rng: random.Random) -> SealRules:
    """Small ones, so that a run has many buckets of several segments each."""
    return SealRules(
        max_entries=rng.choice([2, 4, 8]),
        max_span=40,
        max_age_ms=rng.choice([50, 200]),
        time_step_ms=rng.choice([20, 60, 500]),
        segment_entries=rng.choice([1, 1, 2, 3]),
        segment_bytes=rng.choice([60, 150, 1_000]),
        placement=rng.choice(_PLACEMENTS),
    )

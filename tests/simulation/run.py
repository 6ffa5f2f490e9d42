"""One run: the scheduler that picks what happens next, from one seed."""

import random

from tests.simulation.checker import Checker
from tests.simulation.router import Router, Surroundings
from tests.simulation.workload import LONGEST_DELAY_MS, append_some, some_rules
from tests.simulation.world import (
    AbortedError,
    Clock,
    CrashedError,
    DelayLog,
    Faults,
    FencedError,
    Store,
    UnknownOutcomeError,
)

STEPS = 120
SETTLE_ROUNDS = 400
_INTERRUPTIONS = (CrashedError, UnknownOutcomeError, AbortedError, FencedError)
_ACTIONS = {"round": 10, "append": 4, "clock": 5, "restart": 1, "usurp": 1, "zombie": 1, "rules": 1, "compact": 1}


class Run:
    """State of one run; ``trace`` tells what happened."""

    def __init__(self, seed: int, router_type: type[Router] = Router) -> None:
        self._rng = random.Random(seed)
        self._router_type = router_type
        faults = Faults(self._rng)
        self._around = Surroundings(Clock(), DelayLog(), Store(faults), faults)
        self._rules_used = [some_rules(self._rng)]
        self._router: Router | None = None
        self._zombies: list[Router] = []
        self._latest_ms = self._around.clock.now_ms
        self.trace: list[str] = []

    def play(self) -> None:
        """Violation when a guarantee was broken."""
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
                self._note(f"round: {router.ledger.committed}")
        except _INTERRUPTIONS as interruption:
            self._note(repr(interruption))
            return None
        return router

    def _move_clock(self) -> None:
        clock, luck = self._around.clock, self._rng.random()
        if luck < 0.2:
            clock.now_ms -= self._rng.randint(1, 60)
        else:
            clock.now_ms += self._rng.randint(0, 40) if luck < 0.95 else LONGEST_DELAY_MS
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
                break

    def _is_done(self, router: Router) -> bool:
        ledger = router.ledger
        return not ledger.pending and not ledger.owed and ledger.committed.cursor == self._around.log.end

    def _note(self, event: str) -> None:
        self.trace.append(event)

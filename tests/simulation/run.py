"""One run: the scheduler that picks what happens next, from one seed."""

import random
from collections.abc import Iterator
from itertools import islice

from structlog.testing import capture_logs

from index.errors import FormatError, RefusedError
from index.sealing import PlacementRule, SealRules
from sidecar.rates import TargetLimit
from snapshots.staged import STAGED_PREFIX
from tests.simulation.checker import Checker, Violation
from tests.simulation.jobs import Job
from tests.simulation.router import TOPIC_ID, Router, Surroundings
from tests.simulation.smaller import small_and_soon
from tests.simulation.workload import DEFAULT_TARGET, LONGEST_DELAY_MS, TARGETS, append_some, some_rules
from tests.simulation.world import (
    FIRST_OFFSET,
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
    "rules": 2,
    "compact": 1,
    "damage": 1,
    "gate": 2,
    "pause": 1,
    "job": 5,
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
        # Where reading is slow, a job can overtake it.
        self._reads = self._rng.choice([[1, 3, 30], [1, 3]])
        # In the others everything else happens more often.
        rare = [(["job"], 0.35), (["gate", "pause"], 0.35)]
        without = [name for names, share in rare if self._rng.random() < share for name in names]
        self._actions = {**_ACTIONS, **dict.fromkeys(without, 0)}
        self._jobs: list[Iterator[str]] = []
        self._cursors = [FIRST_OFFSET]
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
            self._do(self._rng.choices(list(self._actions), list(self._actions.values()))[0])
            checker.follow()
        self._settle()
        checker.follow()
        checker.nothing_missing()

    def _do(self, action: str) -> None:
        {
            "round": self._round,
            "append": self._append,
            "clock": self._move_clock,
            "restart": self._restart,
            "usurp": self._usurp,
            "zombie": self._wake_a_zombie,
            "rules": self._change_rules,
            "gate": self._move_gate,
            "pause": self._pause_or_resume,
            "compact": self._compact,
            "damage": self._damage,
            "job": self._go_on_with_a_job,
        }[action]()

    def _round(self) -> None:
        self._router = self._advance(self._router)

    def _append(self) -> None:
        append_some(self._rng, self._around.clock, self._around.log)
        self._note(f"appended up to {self._around.log.end}")

    def _restart(self) -> None:
        self._note("killed")
        self._router = None

    def _usurp(self) -> None:
        if self._router is not None:
            self._note("given to another, and the old one does not know")
            self._zombies.append(self._router)
            self._router = None

    def _compact(self) -> None:
        self._around.store.compact()
        self._note("compacted")

    def _damage(self) -> None:
        if self._damages and self._around.store.damage():
            self._note("a segment was damaged")

    def _wake_a_zombie(self) -> None:
        if self._zombies:
            self._note("zombie:")
            zombie = self._advance(self._zombies.pop())
            self._zombies += [zombie] if zombie is not None else []

    def _change_rules(self) -> None:
        """The router sees them while it serves, or is started anew, or sees them only when it is started next."""
        self._rules_used.append(self._rng.choice([self._rules_used[0], some_rules(self._rng)]))
        self._note(f"new rules: {self._rules_used[-1]}")
        luck = self._rng.random()
        if luck < 0.3:
            self._router = None
        elif luck < 0.7 and self._router is not None:
            self._router.rules = self._rules_used[-1]

    def _pause_or_resume(self) -> None:
        self._around.paused[:] = [] if self._around.paused else ["paused"]
        self._note(f"paused: {bool(self._around.paused)}")

    def _go_on_with_a_job(self) -> None:
        """Begin one, with a cursor that may be an old one, or let one take its next step, or be killed."""
        rng, store = self._rng, self._around.store
        if self._router is not None and not self._router.ledger.replaying:
            self._cursors.append(self._router.ledger.indexed_to)
        if not self._jobs or rng.random() < 0.3:
            cursor = rng.choice([self._cursors[-1], self._cursors[-1], rng.choice(self._cursors)])
            rules = self._router.rules if self._router and rng.random() < 0.9 else rng.choice(self._rules_used)
            topic_id = TOPIC_ID if rng.random() < 0.95 else "of another topic"
            for _ in range(rng.choice([0, 2, 6])):
                append_some(rng, self._around.clock, self._around.log)
            self._jobs.append(Job(rng, (self._around.log, store), cursor, rules, topic_id).steps())
        job = rng.choice(self._jobs)
        # Some get through before the router has read what they are about.
        steps = list(islice(job, rng.choice([1, 3])))
        self.trace += steps
        if any("has staged" in step for step in steps) and rng.random() < 0.15:
            self._change_rules()
        if not steps or rng.random() < 0.05:
            self._jobs.remove(job)
            self._note("a job has ended")

    def _advance(self, router: Router | None) -> Router | None:
        """One round, or a take-over; None when the router did not survive it."""
        try:
            if router is None:
                router = self._router_type(self._around, self._rules_used[-1])
                router.take_over()
                self._note(f"took over: {router.ledger.committed}")
            router.index(self._rng.choice(self._reads))
            if self._rng.random() < 0.7:
                router.release(self._rng.choice([0, 1, 3, 30]), self._rng.choice([10, 30, 1_000]))
                self._note(f"round: {router.ledger.committed}, buckets {sorted(router.ledger.parts.buckets)}")
        except _INTERRUPTIONS as interruption:
            self._note(repr(interruption))
            return None
        except TypeError as error:
            # Payloads are compared only where two entries have one offset, and those of different kinds cannot be.
            raise Violation(f"a record is pending twice: {error}") from error
        except AssertionError as error:
            if self._router_type.checks_itself:
                raise
            # Not by its index, which is not asked: a record was decided again, and not as it was before.
            raise Violation(f"it stumbled over itself: {error}") from error
        except _REFUSALS as refusal:
            if router is not None and not router.is_owner():
                self._note(repr(refusal))
                return None
            # Nothing that happens in a run is beyond repair, so a router that gives up has done the harm itself.
            raise Violation(f"the partition stopped: {refusal}") from refusal
        self._around.clock.running_s += 0.01
        return router

    def _move_gate(self) -> None:
        gated = self._around.gated
        gated.clear()
        for target in (DEFAULT_TARGET, *TARGETS):
            if self._rng.random() < 0.3:
                gated[target] = self._rng.choice([TargetLimit(20), TargetLimit(0, 40), TargetLimit(paused=True)])
        self._note(f"gated: {gated}")

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
        self._reads = [30]
        self._around.gated.clear()
        self._around.paused.clear()
        self._router = None
        for key in [key for key in self._around.store.backfill if not key.startswith(STAGED_PREFIX)]:
            self._around.store.withdraw(key)
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
        gone = gone and not router.gate.records and not self._around.store.backfill
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
        soon_ms=rng.choice([0, 0, 0, 20]),
    )

"""Plays one run: the scheduler picks the next event, from one seed."""

import random
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from structlog.testing import capture_logs

from index.buckets.bucket_rules import PlacementRule, SealRules
from index.errors import FormatError, RefusedError, StateLostError
from index.pending.progress import start_of
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.config.retention import FOREVER_MS, Retention
from sidecar.engine.release.rates import TargetLimit
from snapshots.state.claim import claim_key, encode_claim
from snapshots.state.inventory import NOTHING_STORED
from snapshots.state.staged import STAGED_PREFIX
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress
from tests.simulation import pending
from tests.simulation.checker import Checker, Violation
from tests.simulation.forgetting import some_brokers
from tests.simulation.host import DEAD_PLACE, FREE_PLACES, INDISPENSABLE, TOPIC_ID
from tests.simulation.jobs import Job
from tests.simulation.members import Group, Member
from tests.simulation.process import MEANWHILE_CHANCE, SimulatedProcess, some_process
from tests.simulation.refusing import some_refusing
from tests.simulation.replacing import Wrong, playing
from tests.simulation.serving import SteppedWorker
from tests.simulation.settings import Surroundings
from tests.simulation.smaller import SMALL
from tests.simulation.workload import (
    DEFAULT_TARGET,
    IDS,
    LONGEST_DELAY_MS,
    RETRIES,
    TARGETS,
    append_attempts,
    append_chain,
    append_moved_while_away,
    append_named,
    append_query,
    append_recurring,
    append_some,
    some_rules,
)
from tests.simulation.world import (
    DELAY_PLACE,
    FIRST_OFFSET,
    GROUP,
    OTHER_GROUPS,
    RECEIPTS_PLACE,
    REJECTED,
    START_MS,
    STATE_PLACE,
    Clock,
    CrashedError,
    DelayLog,
    Faults,
    Interruption,
    OwnClock,
    Store,
)

STEPS = 240
SETTLE_ROUNDS = 400
MOST_AHEAD_MS = 100
LONGEST_PAUSE_MS = 1 << 40
OTHERS_CHANCE = 0.4
_FAULTS = (
    *("killed", "given to", "a segment was", "expired", "the state has lost", "CrashedError", "a connection was lost"),
    *(each.__name__ for each in Interruption.__subclasses__()),
)
_PLACEMENTS: tuple[PlacementRule, ...] = ("inline", "pointer", "auto")
_ACTIONS = {
    "round": 24,
    "append": 4,
    "clock": 5,
    "restart": 1,
    "rebalance": 2,
    "news": 1,
    "rules": 2,
    "compact": 1,
    "damage": 1,
    "expire": 2,
    "gate": 2,
    "pause": 1,
    "job": 5,
    "lose": 0,
    "brokers": 0,
    "retention": 0,
    "topics": 0,
    "lanes": 0,
    "drain": 0,
    "anew": 0,
}
RECURS_SHARE = 0.4
"""The share of runs in which schedules recur."""

AWAY_SHARE = 0.3
"""The share of those runs in which no router was there while series by cron were sent."""

AWAY_MOVES_SHARE = 0.4
AWAY_MOVES_CHANCE = 0.2
"""The share of runs with series and ids, and without a delay of the topic, in which no router was there while series
were moved; and the chance of such a move beside some records."""

NAMES_SHARE = 0.6
"""The share of runs in which schedules, recurring ones too, are cancelled and replaced."""
CHAIN_SHARE = 0.5
"""The share of those runs in which moves follow directly on each other, and some cannot be written."""

QUERY_SHARE = 0.35
QUERY_CHANCE = 0.3
"""The share of runs in which schedules are cancelled by query, and the chance of a query beside some records."""

DELAY_SHARE = 0.25
"""The share of runs in which some rules give records without a time a delay."""

RETRY_SHARE = 0.5
"""The share of the runs without series and ids in which some rules count attempts."""

SPREAD_SHARE = 0.15
"""The share of runs in which some rules spread bursts."""

BROKERS_WEIGHT = 6
"""The weight of events at the brokers, in runs in which brokers lose markers."""

TOPICS_WEIGHT = 2
"""The weight of topics that are deleted or made, in runs in which brokers refuse records."""

UNREADABLE_SHARE = 0.15
UNREADABLE_CHANCE = 0.1
"""The share of runs in which producers write batches that no client can read, and the chance of one."""

LANES_WEIGHT = 1
"""The weight of a fence of a lane, in runs in which processes have lanes."""

GROUPS_SHARE = 0.1
"""The share of runs in which a second group of routers serves the topic, until the faults end."""

FENCED_BY_OTHERS = "Two groups must not serve one delay topic"

SHORTEN_SHARE = 0.3
SHORTEN_WEIGHT = 1
"""The share of runs in which the retention of the delay topic changes, and the weight of a change."""

DRAIN_SHARE = 0.1
DRAIN_WEIGHT = 3
"""The share of runs in which a policy drains the delay topic, and the weight of a beginning or end of that."""

ANEW_SHARE = 0.1
ANEW_WEIGHT = 1
"""The share of runs in which a process takes its topics for others, and the weight of such a moment."""

FRESH_SHARE = 0.2
"""The share of runs in which no time passes between a commit and the loss of a connection."""

LOSE_SHARE = 0.15
LOSE_WEIGHT = 2
"""The share of runs in which the state topic may lose its beginning, and the weight of a loss."""


class Run:
    """The state of one run; ``trace`` lists the events, each with the number of the router that caused it."""

    logged: set[str]

    def __init__(self, seed: int, wrong: type[Wrong] | None = None) -> None:
        self._rng = random.Random(seed)
        self._wrong = wrong
        faults = Faults(self._rng)
        faults.commits_are_fresh = random.Random(f"{seed}, commits are fresh").random() < FRESH_SHARE
        trims = self._rng.random() < 0.5
        # A trimmed or expired record cannot be repaired, so a run has one of the three.
        self._damages = not trims and self._rng.random() < 0.5
        self._expires = not trims and not self._damages and self._rng.random() < 0.7
        seal_rules, max_buckets = _some_seal_rules(self._rng), self._rng.choice([1, 1, 1, 2])
        self._clock = Clock()
        # A random generator for each feature, so that the rest of the run stays the same without it.
        self._recurring = random.Random(f"{seed}, recurs")
        self._recurs = self._recurring.random() < RECURS_SHARE
        self._away, self._away_moves = _some_away(seed)
        self._named = random.Random(f"{seed}, named")
        self._names = self._named.random() < NAMES_SHARE
        self._querying = _some_querying(seed)
        self._delaying = random.Random(f"{seed}, delays")
        self._delays_ms = [0, 20, 100] if self._delaying.random() < DELAY_SHARE else [0]
        # A bucket that would have more pages is written without its ids, as in the buckets of version 0.1.0.
        limits = replace(SMALL, max_pages=random.Random(f"{seed}, pages").choice([-1, 2, 100, 100]))
        self._spreading = random.Random(f"{seed}, spreads")
        self._spreads_ms = [0, 15, 60] if self._spreading.random() < SPREAD_SHARE else [0]
        self._retrying = random.Random(f"{seed}, retries")
        self._retries = not (self._recurs or self._names) and self._retrying.random() < RETRY_SHARE
        self._rules_used = [self._some_rules()]
        brokers = some_brokers(seed, often=[DELAY_PLACE], seldom=[STATE_PLACE])
        refusing = some_refusing(seed, (DEFAULT_TARGET, *TARGETS), REJECTED)
        store = Store(faults, brokers, refusing)
        self._around = Surroundings(
            OwnClock(self._clock),
            DelayLog(),
            store,
            faults,
            seal_rules,
            max_buckets,
            trims,
            self._rules_used[0],
            limits if wrong is None else replace(limits, **wrong.limits),
        )
        # A random generator of its own, too.
        self._chaining = random.Random(f"{seed}, chains")
        self._around.refuses_moves = self._names and self._chaining.random() < CHAIN_SHARE
        process = some_process(seed, store, faults)
        members = [
            Member(number, replace(self._around, clock=OwnClock(self._clock), process=process.anew()), not wrong)
            for number in range(self._rng.choice([1, 1, 2, 2, 3]))
        ]
        self._groups = self._some_groups(seed, members, process)
        self._group = self._groups[0]
        self._acting: list[Member] = []
        faults.meanwhile = self._meanwhile
        # If reads are slow, a job can overtake them.
        self._reads = self._rng.choice([[1, 3, 30], [1, 3]])
        # In the other runs everything else happens more often.
        rare = [(["job"], 0.35), (["gate", "pause"], 0.35)]
        without = [name for names, share in rare if self._rng.random() < share for name in names]
        self._actions = {**_ACTIONS, **dict.fromkeys(without, 0)}
        # A damaged segment over a batch that nobody can read cannot be repaired.
        unreadable = random.Random(f"{seed}, batches that cannot be read by any client")
        self._unreadable = unreadable if unreadable.random() < UNREADABLE_SHARE and not self._damages else None
        self._actions |= _actions_of(
            seed, forgets=brokers.forgets, refuses=refusing.luck is not None, lanes=process.luck is not None
        )
        # A claim that is lost while its group takes over is not noticed.
        self._actions["lose"] *= len(self._groups) == 1
        self._jobs: list[Iterator[str]] = []
        self._cursors = [FIRST_OFFSET]
        self._latest_ms = self._clock.now_ms
        self._checker = Checker(self._around.log.records, self._rules_used, store.committed, refusing)
        self._lines: MutableSequence[MutableMapping[str, Any]] = []
        self._heard = 0
        self.trace: list[str] = []

    def _some_groups(self, seed: int, members: Sequence[Member], process: SimulatedProcess) -> list[Group]:
        """Return the group of these members, perhaps with one that serves the topic by mistake; write the first state.

        With two groups, none may have a claim there.
        """
        luck = self._grouping = random.Random(f"{seed}, other groups")
        around, faults, name = self._around, self._around.faults, luck.choice(OTHER_GROUPS)
        groups, claimed = [Group(self._rng, faults, members)], GROUP
        if luck.random() < GROUPS_SHARE:
            faults.meanwhile_chance = max(faults.meanwhile_chance, luck.choice([0.0, MEANWHILE_CHANCE]))
            arounds = [
                replace(around, clock=OwnClock(self._clock), process=process.anew(name))
                for _ in range(luck.choice([1, 1, 2]))
            ]
            others = [Member(10 + number, each, not self._wrong) for number, each in enumerate(arounds)]
            groups.append(Group(luck, faults, others))
            claimed = luck.choice([GROUP, ""])
        around.store.begin(first_state(self._rules_used[0], claimed))
        around.store.log = around.log
        return groups

    @property
    def _members(self) -> list[Member]:
        return [member for group in self._groups for member in group.members]

    def _some_group(self) -> Group:
        return self._group if len(self._groups) == 1 else self._grouping.choice(self._groups)

    @property
    def faults(self) -> int:
        """The number of faults; movements of clocks and compactions of topics do not count."""
        return sum(event.rpartition("| ")[2].startswith(_FAULTS) for event in self.trace)

    @property
    def simulated_ms(self) -> int:
        """The time that the clock has advanced."""
        return self._clock.now_ms - START_MS

    @property
    def _serving(self) -> SteppedWorker | None:
        """The worker of the group's owner, or None if that member has not taken over yet."""
        return self._group.owner.serving

    def play(self) -> None:
        """Play the run. Raise Violation if a guarantee was broken."""
        with playing(self._around.faults, self._wrong), capture_logs() as logged:
            self._lines = logged
            try:
                self._play()
            finally:
                self.logged = {str(entry["event"]) for entry in logged}

    def _play(self) -> None:
        for group in self._groups:
            group.tell(group.owner)
        for _ in range(STEPS):
            self._do(self._rng.choices(list(self._actions), list(self._actions.values()))[0])
            self._checker.follow()
        self._settle()
        self._checker.follow()
        log = self._around.log
        if self._recurs and not self._around.store.was_damaged and not self._around.store.has_series_key:
            raise Violation("nobody could go on with what recurs, were the state lost")
        self._checker.nothing_missing({offset for offset in log.told_lost if offset < log.start})

    def _do(self, action: str) -> None:
        {
            "round": self._round,
            "append": self._append,
            "clock": self._move_clock,
            "restart": self._restart,
            "rebalance": self._rebalance,
            "news": self._some_group().tell_someone,
            "rules": self._change_rules,
            "gate": self._move_gate,
            "pause": self._pause_or_resume,
            "compact": self._compact,
            "damage": self._damage,
            "expire": self._expire,
            "job": self._go_on_with_a_job,
            "lose": self._lose_beginning,
            "brokers": self._let_brokers_be,
            "retention": self._change_retention,
            "topics": self._delete_or_make_topics,
            "lanes": self._fence_lane,
            "drain": self._drain_or_serve,
            "anew": self._begin_anew,
        }[action]()

    def _round(self) -> None:
        """Let one of the members act that believe to be the owner."""
        believers = [member for member in self._members if member.is_told and member not in self._acting]
        if believers:
            others_too = self._rng.random() < OTHERS_CHANCE or self._group.owner not in believers
            self._advance(self._rng.choice(believers) if others_too else self._group.owner)

    def _meanwhile(self) -> None:
        if self._acting:
            self._note("meanwhile:")
            self._round()

    def _append(self) -> None:
        append_some(self._rng, self._clock.now_ms, self._around.log)
        if self._recurs:
            ids = IDS if self._names else ()
            append_recurring(self._recurring, self._clock.now_ms, self._around.log, ids, self._away)
        if self._names:
            append_named(self._named, self._clock.now_ms, self._around.log, self._delays_ms)
            if (
                self._recurs
                and self._delays_ms == [0]
                and self._away_moves is not None
                and self._away_moves.random() < AWAY_MOVES_CHANCE
            ):
                append_moved_while_away(self._away_moves, self._around.log)
            if self._around.refuses_moves:
                append_chain(self._chaining, self._clock.now_ms, self._around.log)
        if self._retries:
            append_attempts(self._retrying, self._clock.now_ms, self._around.log)
        if self._querying is not None and self._querying.random() < QUERY_CHANCE:
            append_query(self._querying, self._clock.now_ms, self._around.log)
        if self._unreadable is not None and self._unreadable.random() < UNREADABLE_CHANCE:
            self._around.log.append_unreadable(self._unreadable.randint(1, 3))
        self._note(f"appended up to {self._around.log.end}")

    def _restart(self) -> None:
        member = self._rng.choice(self._members)
        self._note("killed", member)
        self._start_anew(member)

    def _start_anew(self, member: Member) -> None:
        member.crash()
        member.hear(assigned=False)
        member.use(self._rules_used[-1])
        next(group for group in self._groups if member in group.members).tell(member)

    def _fence_lane(self) -> None:
        """Let another process take over another partition of a lane, and fence the lane."""
        hosts = [member.serving.ports for member in self._members if member.serving is not None]
        lanes = [host.lane.name.transactional_id for host in hosts if host.lane is not None]
        if lanes:
            self._around.store.fence(self._rng.choice(lanes))
            self._note("a lane was fenced")

    def _rebalance(self) -> None:
        group = self._some_group()
        others = [member for member in group.members if member is not group.owner]
        if others:
            group.give_to(self._rng.choice(others))
            self._note("given to it by the group", group.owner)

    def _compact(self) -> None:
        self._around.store.compact()
        self._note("compacted")

    def _damage(self) -> None:
        if self._damages and self._around.store.damage():
            self._note("a segment was damaged")

    def _lose_beginning(self) -> None:
        """Remove records of the state topic. The next owner must notice, unless nothing was lost."""
        if self._around.store.lose_beginning():
            self._note("the state has lost its beginning")

    def _let_brokers_be(self) -> None:
        places = [*FREE_PLACES, DELAY_PLACE, RECEIPTS_PLACE, *([DEAD_PLACE] if self._retries else [])]
        # A place that every release needs must not be in doubt: nothing else could go wrong meanwhile.
        indispensable = [*INDISPENSABLE, STATE_PLACE]
        self._note(self._around.store.brokers.happen(places, indispensable))

    def _expire(self) -> None:
        """Let retention remove the head of the log, even records that are still needed."""
        log = self._around.log
        if self._expires and self._around.store.state:
            log.start = min(log.end, log.start + self._rng.randint(1, 12))
            self._note(f"expired up to {log.start}")

    def _change_rules(self) -> None:
        """Make new rules. Each router sees them while it serves, is restarted with them, or sees them at its next
        start.
        """
        self._make_new_rules()
        for member in self._members:
            luck = self._rng.random()
            if luck < 0.3:
                self._start_anew(member)
            elif luck < 0.7:
                member.use(self._rules_used[-1])

    def _make_new_rules(self) -> None:
        self._rules_used.append(self._rng.choice([self._rules_used[0], self._some_rules()]))
        self._note(f"new rules: {self._rules_used[-1]}")

    def _some_rules(self) -> Rules:
        delay_ms = self._delaying.choice(self._delays_ms)
        spreads_ms = self._spreads_ms
        return some_rules(
            self._rng,
            recurring=self._recurs,
            delay_ms=delay_ms,
            spread_ms=self._spreading.choice(spreads_ms),
            retry=self._retrying.choice([None, *RETRIES]) if self._retries else None,
            of_target_ms=self._spreading.choice([None, *spreads_ms]) if any(spreads_ms) else None,
        )

    def _pause_or_resume(self) -> None:
        """Pause the topic or end the pause. A pause also ends by itself, for each router at its own time of day."""
        lasts_ms = self._rng.choice([LONGEST_PAUSE_MS, self._rng.randint(1, LONGEST_DELAY_MS)])
        self._around.paused[:] = [] if self._around.paused else [self._clock.now_ms + lasts_ms]
        self._note(f"paused until: {self._around.paused}")

    def _drain_or_serve(self) -> None:
        """Drain the topic, or let it be served again."""
        self._around.drained[:] = [] if self._around.drained else [True]
        self._note(f"drained: {bool(self._around.drained)}")

    def _begin_anew(self) -> None:
        """Let a worker begin anew, as if one of its topics had been deleted and created again."""
        member = self._rng.choice(self._members)
        if member.worker is not None:
            member.worker.loop.take_over_again()
            self._note("is to begin anew", member)

    def _change_retention(self) -> None:
        """Set a retention under which pointers are safe, or one under which they are not, and tell the owner."""
        self._around.retention[:] = [self._rng.choice([Retention(FOREVER_MS), Retention(1)])]
        if self._serving is not None:
            self._serving.loop.retention = self._around.retention[0]
        self._note(f"retention: {self._around.retention[0].keeps_ms}")

    def _delete_or_make_topics(self) -> None:
        """Delete the topics of some targets, and make all others."""
        refusing = self._around.store.refusing
        refusing.lose_some((DEFAULT_TARGET, *TARGETS))
        self._note(f"gone: {refusing.gone}")

    def _go_on_with_a_job(self) -> None:
        """Begin a job, with a cursor that may be out of date; then let one job take its next step, or kill it."""
        rng, store, serving = self._rng, self._around.store, self._serving
        if serving is not None and not serving.owned.ledger.replaying:
            self._cursors.append(serving.owned.ledger.indexed_to)
        if not self._jobs or rng.random() < 0.3:
            cursor = rng.choice([self._cursors[-1], self._cursors[-1], rng.choice(self._cursors)])
            rules = serving.rules if serving and rng.random() < 0.9 else rng.choice(self._rules_used)
            topic_id = TOPIC_ID if rng.random() < 0.95 else "of another topic"
            for _ in range(rng.choice([0, 2, 6])):
                append_some(rng, self._clock.now_ms, self._around.log)
            self._jobs.append(Job(rng, (self._around.log, store), cursor, rules, topic_id, self._around.limits).steps())
        job = rng.choice(self._jobs)
        # Some jobs finish before the router has read the records in question.
        steps = list(islice(job, rng.choice([1, 3])))
        self.trace += steps
        if any("has staged" in step for step in steps) and rng.random() < 0.4:
            self._make_new_rules()
            self._group.owner.use(self._rules_used[-1])
        if not steps or rng.random() < 0.05:
            self._jobs.remove(job)
            self._note("a job has ended")

    def _advance(self, member: Member) -> None:
        """Let a member do one round or a take-over."""
        self._acting.append(member)
        try:
            self._go_round(member)
        except CrashedError as crash:
            self._note(repr(crash), member)
            member.crash()
        except TypeError as error:
            if "not supported between instances" not in str(error):
                raise
            # Payloads are compared only if two entries have the same offset, and payloads of different kinds are not
            # comparable.
            raise Violation(f"a record is pending twice: {error}") from error
        except (AssertionError, ValueError) as error:
            if not self._wrong or isinstance(error, Violation):
                raise
            # The index did not find it, since ``check`` is off: a record was decided again, with another result.
            raise Violation(f"it stumbled over itself: {error}") from error
        except FormatError as defect:
            self._judge(defect, member)
        finally:
            self._acting.remove(member)
        self._hear_what_is_lost()
        self._clock.running_s += 0.01

    def _go_round(self, member: Member) -> None:
        serving = member.serving
        if serving is None:
            serving = self._step(member, SteppedWorker.step)
        if serving is None:
            return
        reads, most_records = self._rng.choice(self._reads), self._rng.choice([0, 1, 3, 30])
        serving = self._step(member, lambda worker: worker.turn(reads, most_records))
        if serving is not None and serving.ports.is_apart:
            self._note("leaves the lane", member)
            serving = self._step(member, SteppedWorker.step)
        if serving is None:
            return
        ledger = serving.owned.ledger
        self._note(f"round: {ledger.committed}, buckets {sorted(ledger.parts.buckets)}", member)
        if serving.is_owner and not ledger.replaying:
            self._checker.follow()
            self._hear_what_is_lost()
            owed = self._checker.still_owed(ledger.indexed_to)
            pending.compare(serving, owed, self._around.log.told_lost, self._checker.unwanted)

    def _step(self, member: Member, step: Callable[[SteppedWorker], None]) -> SteppedWorker | None:
        """Let the worker of a member do a step, and return the worker if it serves then."""
        worker = member.worker
        assert worker is not None, "a member that was told has a worker"
        before = worker.loop.rounds
        step(worker)
        if worker.met is not None:
            self._judge(worker.met, member)
        elif worker.pause_s:
            self._note(f"{worker.loop.told.last.state}: {worker.loop.told.last.why}", member)
        if member.serving is not None and worker.loop.rounds is not before:
            if not self._around.store.has_whole_state and worker.is_owner:
                raise Violation("took over from a state that has lost its beginning")
            self._note(f"took over: {worker.owned.ledger.committed}", member)
        return member.serving

    def _judge(self, error: Exception, member: Member) -> None:
        """Note the error that ended an ownership. Raise Violation if the partition must not stop by it."""
        if len(self._groups) > 1 and isinstance(error, RefusedError) and FENCED_BY_OTHERS in str(error):
            self._note("it leaves the partition to the other group", member)
            return
        if isinstance(error, (RefusedError, FormatError)):
            if isinstance(error.__cause__, StateLostError) and not self._around.store.has_whole_state:
                # Only a restored copy helps a router after the loss; an operator sees the error, and has a copy.
                self._around.store.restore_state()
            elif member.worker is not None and member.worker.is_owner:
                # Every other event leaves the partition repairable, so a router that gives up has done the harm itself.
                raise Violation(f"the partition stopped: {error}") from error
        self._note(repr(error.__cause__ or error), member)

    def _hear_what_is_lost(self) -> None:
        """Note the losses that routers have reported: records that retention has removed, and connections."""
        heard, self._heard = self._lines[self._heard :], len(self._lines)
        for line in heard:
            # A batch that nobody can read is rejected as well, so it is not lost.
            if line["event"] == "records_lost" and ("offsets" in line or "needed_from" in line):
                lost = line["offsets"] if "offsets" in line else range(line["needed_from"], line["log_starts_at"])
                self._around.log.told_lost.update(lost)
            elif line["event"] == "partition_renewed":
                self._note("a connection was lost")

    def _move_gate(self) -> None:
        gated = self._around.gated
        gated.clear()
        for target in (DEFAULT_TARGET, *TARGETS):
            if self._rng.random() < 0.3:
                gated[target] = self._rng.choice([TargetLimit(20), TargetLimit(0, 40), TargetLimit(paused=True)])
        self._note(f"gated: {gated}")

    def _move_clock(self) -> None:
        """Move the time forward or back; and let the clock of one router drift, or set it wrong or right."""
        clock, luck = self._clock, self._rng.random()
        if luck < 0.2:
            clock.now_ms -= self._rng.randint(1, 60)
        else:
            clock.now_ms += self._rng.randint(0, 40) if luck < 0.98 else LONGEST_DELAY_MS
        own = self._rng.choice(self._members).around.clock
        luck = self._rng.random()
        if luck < 0.2:
            own.ahead_ms += self._rng.randint(-4, 4)
        elif luck < 0.3:
            own.ahead_ms = self._rng.choice([0, self._rng.randint(-MOST_AHEAD_MS, MOST_AHEAD_MS)])
        self._latest_ms = max(self._latest_ms, clock.now_ms)
        self._note(f"clock {clock.now_ms}, ahead {[each.around.clock.ahead_ms for each in self._members]}")

    def _settle(self) -> None:
        """Let every owed record leave: stop the faults, tell every member the owner, and set the clocks right.

        An operator stops the other group.
        """
        self._note("settling")
        self._around.faults.stop()
        self._around.store.brokers.settle()
        self._around.store.refusing.lose(())
        self._reads = [30]
        self._around.gated.clear()
        self._around.paused.clear()
        self._around.drained.clear()
        for group in self._groups[1:]:
            for member in group.members:
                member.hear(assigned=False)
        del self._groups[1:]
        for member in self._members:
            self._start_anew(member)
            member.around.clock.ahead_ms = 0
        for key in [key for key in self._around.store.backfill if not key.startswith(STAGED_PREFIX)]:
            self._around.store.withdraw(key)
        due_by_ms = self._latest_ms + LONGEST_DELAY_MS + MOST_AHEAD_MS
        for _ in range(SETTLE_ROUNDS):
            self._round()
            self._clock.now_ms += 50
            if self._serving is not None and self._clock.now_ms > due_by_ms and self._is_done(self._serving):
                return
        raise Violation(f"not done: {self._serving and self._serving.owned.ledger.parts.buckets}")

    def _is_done(self, serving: SteppedWorker) -> bool:
        ledger, budget = serving.owned.ledger, serving.ports.budget
        # The count of pending records may be estimated while queries are in force.
        gone = not ledger.parts.in_memory and not ledger.parts.buckets and not ledger.owed and not budget.used_bytes
        gone = gone and not serving.owned.gate.records and not self._around.store.backfill
        return gone and ledger.committed.cursor == self._around.log.end

    def _note(self, event: str, member: Member | None = None) -> None:
        self.trace.append(event if member is None else f"{member.number}| {event}")


def _some_away(seed: int) -> tuple[random.Random | None, random.Random | None]:
    """Return the random generators of series, and of moves of series, that were sent while no router was there."""
    away, moves = random.Random(f"{seed}, is away"), random.Random(f"{seed}, is away while series move")
    return (
        away if away.random() < AWAY_SHARE else None,
        moves if moves.random() < AWAY_MOVES_SHARE else None,
    )


def _some_querying(seed: int) -> random.Random | None:
    """Return the random generator of queries, in runs that have some."""
    querying = random.Random(f"{seed}, with queries")
    return querying if querying.random() < QUERY_SHARE else None


def _actions_of(seed: int, *, forgets: bool, refuses: bool, lanes: bool) -> dict[str, int]:
    """Return the actions that not every run has, and their weights."""
    # Random generators of their own, so that the rest of the run stays the same without them.
    loses = random.Random(f"{seed}, loses").random() < LOSE_SHARE
    shortens = random.Random(f"{seed}, shortens").random() < SHORTEN_SHARE
    anew = random.Random(f"{seed}, begins anew").random() < ANEW_SHARE
    drains = random.Random(f"{seed}, drains").random() < DRAIN_SHARE
    return {
        "lose": LOSE_WEIGHT * loses,
        "brokers": BROKERS_WEIGHT * forgets,
        "retention": SHORTEN_WEIGHT * shortens,
        "topics": TOPICS_WEIGHT * refuses,
        "lanes": LANES_WEIGHT * lanes,
        "drain": DRAIN_WEIGHT * drains,
        "anew": ANEW_WEIGHT * anew,
    }


def first_state(rules: Rules, group: str = GROUP) -> list[tuple[bytes, bytes | None]]:
    """Return the state that ``init`` writes for a delay topic with records, and an owner of the group has claimed.

    So a run without another group writes no claim. An empty name: a version without claims has written the state.
    """
    progress, history = start_of(FIRST_OFFSET), RuleHistory.beginning(FIRST_OFFSET, rules)
    claims = [(claim_key(group), encode_claim())] if group else []
    stored = encode_progress(progress, TOPIC_ID, NOTHING_STORED._replace(group=group))
    return [*claims, (RULES_KEY, encode_history(history)), (PROGRESS_KEY, stored)]


def _some_seal_rules(rng: random.Random) -> SealRules:
    """Return small limits, so that a run has many buckets of several segments each."""
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

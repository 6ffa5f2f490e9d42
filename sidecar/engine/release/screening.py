"""The last look at the records of a transaction before it begins: a list of stages.

Each stage takes records out of the transaction or adds to it. The stages of a transaction are listed when it is planned
(``Screening.stages_for``), and a stage without work is left out: policies, doubts and controls change while a partition
is owned. A record without a control, a series or a held-back target meets three stages. ::

    plan ─► moved ─► begin ─► whole ─► drop ─► allowed ─► sure ─► recurring ─► in_time ─► admitted ─► routed ─► commit

=========  ===============================================  ==================================================
stage      takes out                                        is listed if
=========  ===============================================  ==================================================
moved      held records that a control takes                the transaction has receipts
begin      records that a query has cancelled               a query is in force (``Querying``)
whole      lost records                                     always
drop       the same, known by their headers                 a query is in force (``Querying``)
allowed    records that a target cannot take: rejected      always
sure       records for a place in doubt: held               a place is in doubt
recurring  records that begin a series or forge one         the partition has a key that signs occurrences
in_time    records past their expiry: rejected              always
admitted   records for a target that is held back: held     a target or a place is held back
routed     none: it names the partition of each record      a place is in doubt
=========  ===============================================  ==================================================

The decision that is taken when a record is indexed must replay, so it never asks the cluster. These stages ask the
cluster and the clock. A record with several targets goes to all of them or to none.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import Final

from index.pending.pending import Entry
from index.protocol.record import Record
from index.protocol.recurring import may_recur
from index.protocol.schedule import AT_ONCE, KeepKey, Reason, Rejection, Schedule
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from index.rules.unreadable import as_accepted
from sidecar.engine.context import PartitionContext
from sidecar.engine.payload.packing import whole
from sidecar.engine.payload.records import Decide, Refused, Scheduled
from sidecar.engine.ports import REFUSED_FOR_S, Directory, Target
from sidecar.engine.release.expiry import NEVER_EXPIRES, Expiry
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.moving import Moving
from sidecar.engine.release.occurring import Series
from sidecar.engine.release.plan import Attempt, Plan, Screened
from sidecar.engine.release.querying import Querying

TOLD_AT_ONCE: Final = 100
"""Most offsets in a line of the log."""

BATCH_BYTES = 61
"""The least that a batch has beside the keys and values of its records."""

_Route = tuple[tuple[str, ...], int]

_route_of: Callable[[Schedule], _Route] = itemgetter(1, 2)
"""Targets and partition of a schedule, without a call of Python code for each record."""


ReadRecords = Callable[[Sequence[int]], dict[int, Record | None]]
"""Reads records of the delay partition at ascending offsets; None for one that is gone."""


Stage = Callable[[Attempt], None]
"""Changes the transaction that is being made: takes records out of it, or adds records that follow from others."""


@dataclass(slots=True)
class Screening:
    """The stages of one owned partition; used by its worker only.

    ``compresses`` says that written batches are compressed, so that the size of a record does not tell the size of its
    batch. ``read`` reads records of the delay partition again. ``decide`` decides a record again by its own rules.
    """

    context: PartitionContext
    gate: Gate
    history: RuleHistory
    directory: Directory
    read: ReadRecords
    decide: Decide
    compresses: bool
    series: Series
    moving: Moving
    querying: Querying
    expiry: Expiry = NEVER_EXPIRES

    def screen(self, plan: Plan) -> Attempt:
        """Return the transaction of a plan.

        Raise ClusterError if the cluster does not answer: then nothing is concluded.
        """
        planned = [*plan.resumed, *whole(plan.batch.late, self.decide), *whole(plan.batch.due, self.decide)]
        screened = Screened(planned, plan.batch.rejected, [])
        attempt = Attempt(plan, planned, screened, list(plan.requests), list(plan.batch.receipts))
        for stage in self.stages_for(plan):
            stage(attempt)
        if attempt.screened.lost:
            # Before W has passed them, so that an owner that dies in between has told of them. They may be told twice.
            self._alarm_about_lost(attempt.screened.lost)
        return attempt

    def stages_for(self, plan: Plan) -> list[Stage]:
        """Return the stages with work in the transaction of a plan, in their order."""
        in_doubt, is_queried = self.gate.aside.holds_back, bool(self.querying.queries)
        listed = (
            (self.moved, bool(plan.batch.receipts)),
            (self.querying.begin, is_queried),
            (self.whole, True),
            (self.querying.drop, is_queried),
            (self.allowed, True),
            (self.sure, in_doubt),
            (self.recurring, self.series.may_recur),
            (self.in_time, True),
            (self.admitted, self.gate.holds_back),
            (self.routed, in_doubt),
        )
        return [stage for stage, has_work in listed if has_work]

    def moved(self, attempt: Attempt) -> None:
        """Write moved schedules again, and let go of held records that a control takes."""
        receipts = attempt.receipts
        moves = self.moving.look(receipts, self.history.at, self.context.clock.now_ms())
        attempt.taken_out = self.gate.cancel(frozenset(place.offset for each in receipts for place in each.written))
        attempt.moves, attempt.receipts = moves, moves.told(receipts)
        screened = attempt.screened
        attempt.screened = Screened(screened.released, screened.rejected + moves.refused, screened.lost + moves.lost)

    def whole(self, attempt: Attempt) -> None:
        """Read the records that are not in memory, and reject records that a backfill indexed to be rejected."""
        attempt.screened = completed(attempt.screened, self.read, self.decide)

    def allowed(self, attempt: Attempt) -> None:
        """Reject records with a target that does not exist, is not allowed any more or cannot take the record."""
        attempt.screened = attempt.screened.without(self.refused_by_target(attempt.screened))

    def sure(self, attempt: Attempt) -> None:
        """Hold the records for a place in doubt, before their series are continued."""
        attempt.hold(self.gate.hold_blocked([*attempt.screened.released, *self._followed(attempt)]))

    def recurring(self, attempt: Attempt) -> None:
        """Begin series, and find the next occurrence of each series that has one in this transaction."""
        screened, now_ms = attempt.screened, self.context.clock.now_ms()
        found = self.series.look(screened.released, screened.rejected, attempt.planned, self.history.at, now_ms)
        attempt.recurring = found
        attempt.screened = screened.without(found.refused).beginning(found.begun.keys())

    def in_time(self, attempt: Attempt) -> None:
        """Reject the records that are past their expiry."""
        released = attempt.screened.released
        attempt.screened = attempt.screened.without(self.expiry.refused(released, self.context.clock.now_ms()))

    def admitted(self, attempt: Attempt) -> None:
        """Hold the records for a target that is held back; records that were resumed for this transaction leave."""
        resumed = frozenset(offset for _, offset, _ in attempt.plan.resumed)
        attempt.hold(self.gate.hold(attempt.screened.released, resumed))

    def routed(self, attempt: Attempt) -> None:
        """Name the partition of each record for a topic with a place in doubt."""
        attempt.screened = replace(attempt.screened, released=self.gate.aside.routed(attempt.screened.released))

    def refused_by_target(self, screened: Screened) -> dict[int, Rejection]:
        """Return the offsets of records that a target cannot take now, each with the reason."""
        rules = self.history.in_force
        return refused_by_target(screened.released, rules, self.directory, compresses=self.compresses)

    def _followed(self, attempt: Attempt) -> list[Entry[Scheduled]]:
        """Return the occurrences that are rejected while the next one cannot be written to the delay partition."""
        if not self.gate.aside.stops_series:
            return []
        refused = dict(attempt.screened.rejected)
        return [
            (due_ms, offset, payload._replace(record=refused[offset].record))
            for due_ms, offset, payload in attempt.planned
            if offset in refused and payload.schedule.targets and may_recur(refused[offset].record.headers)
        ]

    def _alarm_about_lost(self, offsets: Sequence[int]) -> None:
        context = self.context
        context.metrics.lost.labels(context.name).inc(len(offsets))
        context.log.error(
            "records_lost",
            count=len(offsets),
            first_offset=offsets[0],
            last_offset=offsets[-1],
            offsets=list(offsets[:TOLD_AT_ONCE]),
            why="due, but gone from the delay topic, which alone held them",
            remedy=f"raise the retention of {context.name} above its longest delay, or use placement inline",
        )


def completed(screened: Screened, read: ReadRecords, decide: Decide) -> Screened:
    """Return the screened records with every record read; errors of ``read`` pass, and then nothing is concluded."""
    entries, rejected = _rejected_at_last(screened.released, decide)
    lost: list[int] = []
    # A record without targets was gone when its segment was loaded, and is not read again.
    absent = [(offset, payload.schedule.targets) for _, offset, payload in entries if payload[2] is None]
    if absent:
        entries, lost = _completed(entries, read(sorted(offset for offset, targets in absent if targets)))
    return Screened(entries, screened.rejected + rejected, screened.lost + lost)


def _rejected_at_last(
    entries: list[Entry[Scheduled]], decide: Decide
) -> tuple[list[Entry[Scheduled]], list[tuple[int, Refused]]]:
    """Take out records that a backfill indexed to be rejected: due at once, with a record and without a target."""
    rejected: list[tuple[int, Refused]] = []
    for due_ms, offset, (schedule, _, record) in entries:
        if due_ms == AT_ONCE and record is not None and not schedule.targets:
            decision = decide(offset, record)
            assert isinstance(decision, Rejection), f"offset {offset} has no target and is not rejected"
            rejected.append((offset, Refused(decision, record)))
    if not rejected:
        return entries, rejected
    gone = {offset for offset, _ in rejected}
    return [entry for entry in entries if entry[1] not in gone], rejected


def refused_by_target(
    entries: list[Entry[Scheduled]], rules: Rules, directory: Directory, *, compresses: bool = True
) -> dict[int, Rejection]:
    """Return the offsets of records that a target cannot take now, each with the reason; O(1) lookups a route."""
    routes: set[_Route] = set(map(_route_of, [payload[0] for _, _, payload in entries]))
    names = set(chain.from_iterable(targets for targets, _ in routes))
    targets = directory.resolve(names)
    refused = {route: refusal for route in routes if (refusal := _refusal(route, rules, targets)) is not None}
    refusals = (
        {
            offset: refused[route]
            for _, offset, (schedule, _, _) in entries
            if (route := (schedule.targets, schedule.partition)) in refused
        }
        if refused
        else {}
    )
    if _unfit(entries, targets, compresses=compresses):
        # Settings of topics change: no record is rejected because of an old answer.
        refusals = _unfit(entries, directory.resolve(names, REFUSED_FOR_S), compresses=compresses) | refusals
    return refusals


def _unfit(entries: list[Entry[Scheduled]], targets: dict[str, Target], *, compresses: bool) -> dict[int, Rejection]:
    """Return the offsets of records that a target is certain to refuse: a trial would delay the rest of the batch."""
    unfit: dict[int, Rejection] = {}
    compacted = {name for name, target in targets.items() if target.demands.key}
    if compacted:
        for _, offset, (schedule, _, record) in entries:
            if record is not None and _key(schedule, record) is None:
                for name in compacted.intersection(schedule.targets):
                    why = f"Target topic {name} is compacted, and takes no record without a key"
                    unfit[offset] = Rejection(Reason.TARGET_DENIED, why)
    least = min((target.demands.max_batch_bytes for target in targets.values()), default=0)
    if not compresses and entries and max([payload[1] for _, _, payload in entries]) > least:
        for _, offset, (schedule, _, record) in entries:
            size_bytes = (
                0 if record is None else BATCH_BYTES + len(_key(schedule, record) or b"") + len(record[1] or b"")
            )
            for name in schedule.targets:
                if size_bytes > (most := targets[name].demands.max_batch_bytes):
                    why = f"Key and value have more bytes than target topic {name} takes: max.message.bytes={most}"
                    unfit[offset] = Rejection(Reason.RECORD_TOO_LARGE, why)
    return unfit


def _key(schedule: Schedule, record: Record) -> bytes | None:
    return record.key if isinstance(schedule.key, KeepKey) else schedule.key


def _refusal(route: _Route, rules: Rules, targets: dict[str, Target]) -> Rejection | None:
    names, partition = route
    for name in names:
        if not rules.allowed(name):
            return Rejection(Reason.TARGET_NOT_ALLOWED, f"Target topic {name} is no longer allowed for {rules.topic}")
        target = targets[name]
        if target.refusal is not None:
            return target.refusal
        if partition >= target.partitions:
            return Rejection(
                Reason.TARGET_UNKNOWN,
                f"Target topic {name} has {target.partitions} partitions; deliver-partition {partition} is not one",
            )
    return None


def _completed(
    entries: Iterable[Entry[Scheduled]], reread: dict[int, Record | None]
) -> tuple[list[Entry[Scheduled]], list[int]]:
    complete: list[Entry[Scheduled]] = []
    lost: list[int] = []
    for due_ms, offset, scheduled in entries:
        record = scheduled.record or reread.get(offset)
        if record is None:
            lost.append(offset)
        else:
            complete.append((due_ms, offset, scheduled._replace(record=as_accepted(record))))
    return complete, lost

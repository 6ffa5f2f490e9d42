"""An owned partition: all its state between two take-overs, made and thrown away as a whole."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from index.named.mask import Mask
from index.named.queries import Queries
from index.named.transit import Transit
from index.partition.adopting import Adoption
from index.partition.partition import PartitionIndex
from index.pending.progress import BEFORE_ALL
from index.rules.rule_history import RuleHistory
from sidecar import failpoints
from sidecar.config.retention import Retention, placement_under
from sidecar.engine.buckets.id_pages import IdPageSource
from sidecar.engine.buckets.ids import StoredIds
from sidecar.engine.buckets.lifecycle import Housekeeping
from sidecar.engine.buckets.loading import Loading
from sidecar.engine.buckets.queries import StoredQueries
from sidecar.engine.buckets.segments import SegmentSource
from sidecar.engine.buckets.single_records import SingleRecords
from sidecar.engine.intake.decided import Indexed
from sidecar.engine.intake.deciding import NEVER
from sidecar.engine.ownership.adopting import Adopting
from sidecar.engine.ownership.attempts import AttemptCounter
from sidecar.engine.ownership.lanes import Claims, require_noted
from sidecar.engine.ownership.origin import Origin, inventory_at, tell_of_origin, write_origin
from sidecar.engine.ownership.ports import Host, TopicSettings
from sidecar.engine.ownership.rule_changes import RuleChanges
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.engine.ownership.tail import PartitionTail, is_held_up
from sidecar.engine.ownership.takeover import read_origin
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.memory import BudgetShare
from sidecar.engine.payload.records import resident_bytes, scheduled_size
from sidecar.engine.release.aside import Aside, Doubts
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.moving import Moving
from sidecar.engine.release.occurring import Series
from sidecar.engine.release.plan import Plan, Released
from sidecar.engine.release.querying import Querying
from sidecar.engine.release.releaser import Releaser
from sidecar.engine.release.screening import Screening
from sidecar.engine.release.transaction import Request, Timestamps, Transactions
from sidecar.engine.release.watch import DoubtWatch
from sidecar.lateness import RecentLateness


def take_over(host: Host, claims: Claims) -> "OwnedPartition":
    """Read the state of the last owner, write the changes to it, and begin to read the delay topic from S.

    All other writers of the group are fenced before. Raise RefusedError or NotYetError, with the way out, if the
    partition must not start; errors of the ports pass.
    """
    context = host.context
    standing = host.standing()
    changes = RuleChanges(host.settings, context)
    doubtful = changes.settings.is_doubtful
    claims.begin()
    read = partial(read_origin, context, standing, changes.settings.rules, stored_rules_hold=doubtful)
    origin = read()
    # Only now, so that a partition that must not start gets no claim: its state may be lost, and empty.
    while claims.settle(standing):
        origin = read()
    origin = origin.claimed_by(context.group_id, claims.fenced)
    doubts = standing.doubts(origin.as_state)
    if origin.history.in_force.recurring:
        origin = origin.with_series_key(host.new_series_key)
    failpoints.passing("recovery.state_read")
    changes.begin(origin.history)
    # Before the state says that S is beyond the lost records: an owner that dies in between must have told of them.
    tell_of_origin(context, origin)
    transactions, lane = host.transactions(origin), host.lane
    name = None if lane is None else lane.name
    if not origin.is_stored or origin.lane != name:
        write_origin(transactions, origin, name)
    if lane is not None:
        failpoints.passing("recovery.noted")
        require_noted(standing, lane.name)
        transactions = lane.transactions(origin)
    has_looked = host.staged.has_looked if standing.may_be_staged() else None
    return OwnedPartition(host, origin, changes, transactions, doubts, has_looked)


class OwnedPartition:
    """Index, gate, releaser and upkeep of the buckets of one partition; used by its worker only.

    ``has_looked`` says whether all staged records are known; None if no record is staged.
    """

    def __init__(
        self,
        host: Host,
        origin: Origin,
        changes: RuleChanges,
        transactions: Transactions,
        doubts: Doubts,
        has_looked: Callable[[], bool] | None,
    ) -> None:
        self.context = host.context
        self._host = host
        self._changes = changes
        self.recent_lateness = RecentLateness()
        self.released = 0
        self.attempts = AttemptCounter(host.context.clock)
        self._is_draining = False
        with ExitStack() as closing:
            self._put_together(host, origin, transactions, has_looked, closing)
            self._apply(changes.settings)
            self._doubts.begin(doubts)
            # Only after the last step that can fail; the parts are thrown away here if a step fails.
            self._closing = closing.pop_all()

    def _put_together(
        self,
        host: Host,
        origin: Origin,
        transactions: Transactions,
        has_looked: Callable[[], bool] | None,
        closing: ExitStack,
    ) -> None:
        context, topic = host.context, host.context.topic
        self._resident = BudgetShare(host.budget)
        closing.callback(self._resident.close)
        host.rates.enter(topic.name)
        closing.callback(host.rates.leave, topic.name)
        mask, transit, queries = Mask(origin.mask), Transit(origin.transit), Queries(origin.queries)
        self.ledger: PartitionLedger = PartitionIndex(
            origin.progress, scheduled_size, origin.buckets, mask, transit, host.runs, queries
        )
        own = (topic.name, context.partition), (topic.receipts, context.partition)
        aside = Aside(*own, topic.rejected, lambda name: host.directory.resolve([name])[name].partitions)
        self.gate = Gate(host.rates, context.limits, origin.held, aside)
        self._doubts = DoubtWatch(context, self.gate.use_doubts, host.look_again)
        self._resident.take(self.gate.resident_bytes)
        self._source = source = SegmentSource(
            topic, context.partition, origin.history, host.codec, restored_to=origin.progress.restored_to
        )
        pending = SingleRecords(self.ledger, source, self.gate, host.read_again, host.reader)
        key, behind = origin.progress.series_key, f"{topic.name}/{context.partition}/"
        self._screening = Screening(
            context,
            self.gate,
            origin.history,
            host.directory,
            host.read_again,
            source.decide,
            host.compresses,
            Series(key, behind, host.zone_of),
            Moving(pending.of, source.decide, key, behind),
            Querying(self.ledger, self.gate),
        )
        inventory = inventory_at(origin)
        lane = None if host.lane is None else host.lane.name
        parts = self.ledger, self.gate, inventory, self._screening
        self.releaser = Releaser(context, transactions, *parts, lane=lane)
        pages = IdPageSource(topic.name, topic.snapshots, context.partition, context.limits)
        self._loading = Loading(context, self.ledger.parts, source, host.pool, host.budget, self._resident)
        closing.callback(self._loading.close)
        asked = StoredQueries(context, self.ledger, source, host.pool, self.gate, pending.of)
        self._ids = StoredIds(context, self.ledger, source, pages, host.pool, self._loading, self.gate, asked)
        self._tail = PartitionTail(context, self.ledger, origin.history, host.read_on, self._ids, has_looked)
        closing.callback(self._tail.close)
        self._housekeeping = Housekeeping(context, self.ledger, source, host.pool, self._ids, pages, host.codec)
        closing.callback(self._housekeeping.stop)
        self._adopting = Adopting(
            context,
            self.ledger,
            origin.history,
            origin.delay_topic_id,
            host.staged,
            self._tail.begin_anew,
            handled=origin.restored,
        )
        self._changes.on_entered = self._enter
        self.upkeep = host.upkeep(self.ledger, self.gate)

    @property
    def settings(self) -> TopicSettings:
        """The current settings by policies and configuration."""
        return self._changes.settings

    def follow_policies(self) -> None:
        """Apply changed policies; new rules hold after the next transaction has committed their epoch."""
        settings = self._changes.look()
        if settings is not None:
            self._apply(settings)

    def _apply(self, settings: TopicSettings) -> None:
        for source in {source for limit in settings.gated.values() for source in limit.sources}:
            self._host.rates.learn(source, self._host.directory.resolve([source])[source].partitions)
        self.gate.use(settings.gated)
        self._screening.expiry = settings.expiry
        self.releaser.timestamps = Timestamps(settings.topic.timestamp, settings.timestamps)
        self._housekeeping.use_placement(placement_under(settings.topic, self.upkeep.retention))

    def use_retention(self, retention: Retention) -> None:
        """Place sealed records by this retention of the delay topic from now on."""
        self.upkeep.retention = retention
        self._housekeeping.use_placement(placement_under(self.settings.topic, retention))

    def _enter(self, history: RuleHistory) -> None:
        """Pass the rules of a committed epoch to all parts of the partition."""
        self._source.enter(history)
        self._screening.history = history
        self._adopting.enter(history)
        self._tail.enter(history)

    @property
    def is_loading(self) -> bool:
        """Says whether segments are being fetched, so that records may become releasable any moment."""
        return self._loading.under_way

    @property
    def is_busy(self) -> bool:
        """Says whether housekeeping has requests for the next transactions, or sealed entries are being dropped."""
        return self._housekeeping.is_busy or self.ledger.parts.is_dropping

    @property
    def wants_commit(self) -> bool:
        """Says whether housekeeping waits for a transaction, even one with progress alone."""
        return self.upkeep.wants_commit or self._housekeeping.wants_commit(memory_full=self._seal_all)

    @property
    def intake_pauses(self) -> bool:
        """Says whether the intake has to pause, for one of these reasons.

        * A bucket is about to be adopted, or staged records are still being looked for.
        * As many records wait to be sealed as are being sealed.
        * A control waits until the ids in the buckets are known, or until the schedules that it cancels are counted.
        * A query waits for a transaction, or has to leave in one.
        * No more records may wait for their targets, or for the end of a pause.
        * The delay partition or its receipts are in doubt.
        * The partition is drained.

        Full memory is no reason: the intake itself stops reading then. The memory counts the records that it holds by
        then, and they have to come in.
        """
        if self._tail.may_end_look:
            self._adopting.turn()
            self._tail.end_look()
        adopts = self._tail.is_looking or self._adopting.pauses
        is_full = self._housekeeping.is_behind or self._is_draining or self._is_held_up
        return adopts or is_full or self._ids.is_reading or self._tail.waits or self.gate.aside.stops_intake

    @property
    def _seal_all(self) -> bool:
        return self.memory_full or self._adopting.pauses

    @property
    def memory_full(self) -> bool:
        """Says whether all records in memory have to be sealed or released."""
        return self._is_draining or self._host.budget.is_full

    @property
    def _is_held_up(self) -> bool:
        if not self.gate.room_records:
            return True
        return self.settings.paused and is_held_up(
            self.ledger, self._resident.used_bytes, self._host.payload_memory_bytes
        )

    def drain(self) -> None:
        """Take no record in from now on, and seal all records in memory."""
        self._is_draining = True

    @property
    def is_drained(self) -> bool:
        """Says whether every indexed record is in a bucket, or has left."""
        parts = self.ledger.parts
        return parts.frozen is None and not len(parts.mutable) and not self.ledger.owed

    def load(self, now_ms: int) -> None:
        """Take in segments that have arrived, ask for segments that are due soon, and drop sealed entries."""
        self._loading.turn(now_ms, self.ledger.committed.watermark)
        self._resident.give_back(self._loading.let_go())

    def requests(self, now_ms: int) -> list[Request]:
        """Collect the requests of housekeeping, adopting, trimming and rule changes for the next transaction."""
        self._adopting.turn()
        adopting = self._adopting.request(self._housekeeping.free_id())
        request = adopting or self._housekeeping.request(now_ms, memory_full=self._seal_all)
        requests = [request] if request else []
        if (request and isinstance(request.installs, Adoption)) or self._tail.is_looking:
            # The old rules decided the range that is adopted now, or after the look. And if brokers refuse a part of a
            # transaction with an adoption, the adoption counts as refused.
            return requests
        more = self.upkeep.request(), self._changes.request(self.ledger, self.gate.offsets)
        return [*requests, *(each for each in more if each)]

    def index(self, wait_s: float, max_bytes: int = NEVER) -> Indexed:
        """Index the records that have arrived, up to ``max_bytes``; wait at most ``wait_s`` for the first one."""
        indexed = self._tail.fill(wait_s, max_bytes)
        self._resident.adopt(indexed.resident_bytes)
        return indexed

    def release(self, plan: Plan) -> Released:
        """Commit a plan; the owners of its requests hear of their fate before this returns."""
        held_bytes = self.gate.resident_bytes + resident_bytes(plan.resumed)
        released = self.releaser.release(plan)
        if self.ledger.committed.catching_up and plan.batch.late:
            failpoints.passing("adopt.catching_up")
        held_bytes -= self.gate.resident_bytes
        self._resident.give_back(resident_bytes(plan.batch.late) + resident_bytes(plan.batch.due) + held_bytes)
        self._housekeeping.begin(memory_full=self._seal_all)
        return released

    def maintain(self) -> None:
        """Do one step of the work beside releases: trim, count, look at retention and at places in doubt."""
        self.upkeep.turn(lag=self.lag(), being_read=self._housekeeping.being_read)
        self._doubts.turn()

    def lag(self) -> int:
        """Return the number of offsets of the delay partition that are not indexed yet."""
        return self._tail.lag()

    def status(self, state: PartitionState, why: str) -> PartitionStatus:
        """Return the status of the partition for probes, metrics and people."""
        ledger, needs, survey = self.ledger, self.upkeep.needs(), self.upkeep.survey
        committed = ledger.committed
        return PartitionStatus(
            self.context.name,
            self.context.partition,
            state,
            why,
            pending=ledger.pending + ledger.owed + self.gate.records,
            held=self.gate.records,
            held_since_ms=self.gate.held_since_ms,
            held_by_target=self.gate.held_by_target(),
            next_due_ms=ledger.next_due_ms(),
            furthest_due_ms=ledger.furthest_due_ms(),
            lag=self.lag(),
            cursor=committed.cursor,
            sealed_to=committed.sealed_to,
            buckets=len(ledger.parts.buckets),
            snapshot_bytes=survey.snapshot_bytes,
            released=self.released,
            by_due=survey.by_due,
            spread=survey.spread,
            lateness=self.recent_lateness.counts(int(self.context.clock.running_s() * 1_000)),
            lateness_ever=self.recent_lateness.ever,
            by_target=survey.by_target,
            attempts=None if self.settings.rules.retry is None else self.attempts.counts(),
            watermark=None if committed.watermark == BEFORE_ALL else committed.watermark,
            masked=len(ledger.named.mask),
            needed_from=needs.from_offset,
            needed_since_ms=needs.since_ms,
            retention_ms=self.upkeep.retention.keeps_ms,
            hidden_s=self.upkeep.hidden.seconds(self.context.clock.running_s()),
            in_doubt=len(self.gate.aside.doubts),
        )

    def give_back(self) -> None:
        """Let the next owner take over without fencing the lane; the partition releases no more records."""
        if self.releaser.lane is not None:
            self.releaser.give_back()

    def close(self) -> None:
        """Throw all parts away, the last one first, even if one fails; the next owner settles an open transaction."""
        self._closing.close()

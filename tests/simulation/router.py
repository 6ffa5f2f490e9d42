"""The loop of a router over the modelled log and store: all that is real of it but Kafka's clients and the waiting."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from index.adopting import Adoption
from index.bucket import Bucket
from index.bucket_rules import SealRules
from index.partition import PartitionIndex
from index.pending import Entry
from index.progress import Progress, start_of
from index.retention import (
    Kept,
    delay_topic_needed_from,
    kept_for_backfills,
    rules_needed_from,
    snapshots_known_to,
    snapshots_needed_from,
)
from index.rule_history import RuleHistory
from index.rules import Rules
from index.schedule import AT_ONCE, Rejection, Schedule
from sidecar.backfill.adopting import Adopting
from sidecar.buckets.lifecycle import Housekeeping
from sidecar.buckets.loading import Loading
from sidecar.buckets.segments import SegmentSource
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.intake.intake import PartitionLedger
from sidecar.kafka.connections import ConnectionLostError
from sidecar.metrics import Metrics
from sidecar.partition.rounds import BEFORE_ALL_TIME_NS
from sidecar.partition.rule_changes import history_to_commit
from sidecar.partition.takeover import _within_log
from sidecar.payload.budget import PayloadBudget
from sidecar.payload.packing import whole_batch
from sidecar.payload.records import (
    Leaving,
    Payload,
    Refused,
    Scheduled,
    packed,
    resident_bytes,
    scheduled,
    scheduled_size,
)
from sidecar.release.chores import Chores
from sidecar.release.gate import Gate
from sidecar.release.rates import RateLimits, TargetLimit
from snapshots.held import HeldEntry
from snapshots.inventory import InventoryKeeper
from snapshots.manifest import encode_manifest, manifest_key
from snapshots.rows import RowPacker
from snapshots.staged import fold_staged
from snapshots.state import (
    PROGRESS_KEY,
    RULES_KEY,
    PartitionState,
    encode_history,
    encode_progress,
    fold_state,
)
from tests.simulation.fetching import Pool, Reader, record_of
from tests.simulation.jobs import Watch
from tests.simulation.world import (
    DELAY_TOPIC,
    REJECTED,
    AbortedError,
    DelayLog,
    Faults,
    Left,
    OutOfRangeError,
    OwnClock,
    SegmentsRefusedError,
    Store,
    Transaction,
)

StateRecords = list[tuple[bytes, bytes | None]]
TOPIC_ID = "topic-id"
RECORD_BYTES = 10
TOPIC = DelayTopicConfig(name=DELAY_TOPIC)
METRICS = Metrics()
PLENTY_BYTES = 1 << 40
TRIM_CHANCE = 0.3
MEMORY_FULL_CHANCE = 0.05


@dataclass(frozen=True)
class Surroundings:
    """What all routers of a run share but the clock; ``trims``: they remove what they do not need from the log.

    ``gated`` and ``paused`` are what policies say now: targets that are limited, and whether the delay topic is paused.
    """

    clock: OwnClock
    log: DelayLog
    store: Store
    faults: Faults
    seal_rules: SealRules
    max_buckets: int
    trims: bool
    gated: dict[str, TargetLimit] = field(default_factory=dict)
    paused: list[str] = field(default_factory=list)


class Router:
    """One owner of the partition; wrong ones override a method each."""

    ledger_type: type[PartitionLedger] = PartitionIndex
    source_type = SegmentSource
    checks_itself = True

    def __init__(self, around: Surroundings, rules: Rules) -> None:
        self.around = around
        self.rules = self.in_force = rules
        self.epoch = 0
        self.history = RuleHistory.beginning(0, rules)
        self.reader = Reader(around.log, around.store, self.is_owner)
        self.pool = Pool(self.reader, around.faults)
        self.budget = PayloadBudget(PLENTY_BYTES)
        self.packer = RowPacker()

    def is_owner(self) -> bool:
        """Whether nobody has taken the partition over since."""
        return self.epoch == self.around.store.epoch

    def take_over(self) -> None:
        """Fence the last owner, read where it stood, and write what is new about that."""
        around = self.around
        self.epoch = around.store.fence()
        around.faults.point("fence")
        stored = self.stored_state()
        progress = self.origin_of(stored)
        self.gate = Gate(RateLimits(around.clock.monotonic), self.held_by(stored))
        self.budget.take(self.gate.resident_bytes)
        buckets = stored.buckets if stored else ()
        self.inventory = InventoryKeeper(buckets, stored.held if stored else ())
        known = stored.history if stored else RuleHistory.beginning(progress.cursor, self.rules)
        needed_from = rules_needed_from(progress, buckets)
        self.history = known.with_epoch(progress.cursor, self.rules).since(needed_from)
        if stored is None or (stored.progress, stored.history) != (progress, self.history):
            state = self.state_with([(RULES_KEY, encode_history(self.history))], progress)
            self.commit(Transaction(around.clock.now_ms, [], state))
            self.inventory.committed()
            around.faults.point("first transaction")
        self.ledger: PartitionLedger = self.ledger_type(progress, scheduled_size, buckets)
        self.source = source = self.source_type(TOPIC, 0, self.history)
        self.decide = source.decide
        self.loading = Loading(self.ledger.parts, source, self.pool, self.budget, METRICS, DELAY_TOPIC)
        self.housekeeping = Housekeeping(
            self.ledger, around.seal_rules, around.max_buckets, source, self.pool, METRICS, DELAY_TOPIC
        )
        watch = Watch(around.store, around.faults.rng)
        self.adopting = Adopting(self.ledger, self.history, TOPIC_ID, watch, METRICS, (DELAY_TOPIC, 0))

    def stored_state(self) -> PartitionState | None:
        """What the last owner has left behind."""
        return fold_state(self.around.store.state)

    def origin_of(self, stored: PartitionState | None) -> Progress:
        """Where to begin; what retention has removed before it was indexed, or indexed again, is said to be lost."""
        log = self.around.log
        if stored is None:
            return start_of(log.start)
        self.tell_lost(range(stored.progress.sealed_to, log.start))
        return _within_log(stored.progress, log.start)

    def tell_lost(self, offsets: Iterable[int]) -> None:
        """Say aloud that retention has removed these before they have left."""
        self.around.log.told_lost.update(offsets)

    def index(self, most: int) -> None:
        """Read on in the log; now and then memory is full, and a record is not kept."""
        if self.adopting.pauses and not self.ledger.replaying:
            return
        if self.ledger.indexed_to < self.around.log.start:
            raise OutOfRangeError
        records, end = self.around.log.read(self.ledger.indexed_to, most)
        for produced in records:
            record = record_of(produced)
            decision = self.rules_at(produced.offset).decide(record.headers, record.timestamp_ms)
            if isinstance(decision, Rejection):
                self.ledger.reject(produced.offset, Refused(decision, record))
            else:
                kept = record if self.around.faults.rng.random() < 0.95 else None
                payload: Payload = scheduled(decision, RECORD_BYTES, kept)
                row = self.packer.pack(record.key, record.value, record.headers)
                if (
                    kept
                    and row is not None
                    and decision.due_ms > self.around.clock.now_ms + self.around.seal_rules.soon_ms
                ):
                    payload = packed(record.timestamp_ms, row, self.packer)
                added = self.ledger.add([(self.due_ms(decision), produced.offset, payload)])
                self.budget.take(resident_bytes(added))
        if end is not None:
            self.ledger.advance(end)
        self.check()
        self.around.faults.point("index")

    def release(self, max_entries: int, max_bytes: int) -> None:
        """Load, let the next batch leave, and keep house, unless the replay is still going on."""
        if self.ledger.replaying:
            return
        paused = bool(self.around.paused)
        now_ms = BEFORE_ALL_TIME_NS // 1_000_000 if paused else self.around.clock.now_ms
        self.load(now_ms)
        chores = self.chores(now_ms)
        self.gate.use(self.around.gated)
        resumed = self.gate.resumed(max_entries, self.clock_of_gate(now_ms))
        max_entries, max_bytes = min(max_entries, self.gate.room_records), min(max_bytes, self.gate.room_bytes)
        batch = self.ledger.plan(now_ms, max_entries, max_bytes, chores.installs)
        held_bytes = self.gate.resident_bytes + resident_bytes(resumed)
        passing = self.through_gate(whole_batch(batch, self.decide), resumed)
        held_bytes -= self.gate.resident_bytes
        self.around.faults.point("plan")
        refused = ""
        while True:
            try:
                record_offsets = self.write(passing, chores, self.around.clock.now_ms)
            except AbortedError:
                continue
            except SegmentsRefusedError:
                chores, refused = chores.without_refusable(), "too large"
                continue
            break
        self.around.faults.point(
            f"commit of {kind_of(chores)}", rare=chores.installs is not None or bool(chores.history)
        )
        if self.ledger.committed.catching_up:
            self.around.faults.point("commit while catching up", rare=True)
        self.ledger.confirm()
        self.gate.committed()
        self.inventory.committed()
        if refused:
            self.housekeeping.failed(refused)
        else:
            self.done(chores, record_offsets)
        if chores.history is not None:
            self.enter(chores.history)
        self.budget.give_back(resident_bytes(batch.late) + resident_bytes(batch.due) + held_bytes)
        self.housekeeping.begin(memory_full=self.seal_all())
        self.check()
        if self.around.faults.rng.random() < TRIM_CHANCE:
            self.trim()

    def load(self, now_ms: int) -> None:
        """Take in segments that have arrived, and let go of what is sealed."""
        self.pool.turn()
        self.budget.take(self.loading.turn(now_ms, self.ledger.committed.watermark))
        self.budget.give_back(resident_bytes(self.ledger.parts.drop_some(2)))
        self.check()
        self.around.faults.point("load")

    def chores(self, now_ms: int) -> Chores:
        """What housekeeping wants in this transaction, or adopting."""
        self.adopting.turn()
        adopting = self.adopting.chores(self.housekeeping.free_id())
        chores = adopting or self.housekeeping.chores(now_ms, memory_full=self.seal_all())
        self.check()
        if self.rules == self.history.in_force or isinstance(chores.installs, Adoption):
            return chores
        return replace(chores, history=self.changed_history())

    def changed_history(self) -> RuleHistory:
        """What to commit once rules have changed while the partition is served."""
        return history_to_commit(self.ledger, self.history, self.rules)

    def enter(self, committed: RuleHistory) -> None:
        """An epoch has begun."""
        self.history = self.history.with_epoch(*committed.last)
        self.in_force = self.history.in_force
        self.source.enter(self.history)
        self.adopting.enter(self.history)

    def held_by(self, stored: PartitionState | None) -> tuple[HeldEntry, ...]:
        """What was held back when the last owner committed last."""
        return stored.held if stored else ()

    def clock_of_gate(self, now_ms: int) -> int:
        """What the clock shows to those who look whether a held record is due."""
        return now_ms

    def through_gate(self, batch: Leaving, resumed: list[Entry[Scheduled]]) -> Leaving:
        """The batch with what was held until now, and without what its targets may not be given yet."""
        late, due = ([whole for entry in part if (whole := self._whole(entry))] for part in (batch.late, batch.due))
        held = {offset for _, offset, _ in self.gate.hold([*late, *due], frozenset())}
        late, due = ([entry for entry in part if entry[1] not in held] for part in (late, due))
        return replace(batch, late=[*resumed, *late], due=due)

    def _whole(self, entry: Entry[Scheduled]) -> Entry[Scheduled] | None:
        due_ms, offset, payload = entry
        record = payload.record or self.reader.read(DELAY_TOPIC, 0, [offset])[offset]
        if record is None:
            self.tell_lost([offset])
            return None
        return due_ms, offset, payload._replace(record=record)

    def memory_full(self) -> bool:
        """Whether everything in memory is to be sealed, however little it is."""
        return self.around.faults.rng.random() < MEMORY_FULL_CHANCE

    def seal_all(self) -> bool:
        """Whether everything in memory is to be sealed, for memory or to adopt."""
        return self.memory_full() or self.adopting.pauses

    def done(self, chores: Chores, record_offsets: list[int]) -> None:
        """The chores were committed."""
        if chores.withdrawn:
            self.adopting.done()
        else:
            self.housekeeping.done(chores, record_offsets)

    def write(self, batch: Leaving, chores: Chores, now_ms: int) -> list[int]:
        """One transaction: everything that leaves, chores, and the progress that says so; offsets of segments."""
        state = self.state_with([*state_of_chores(chores), *self.state_of_gate()], batch.progress)
        snapshots = (*chores.segments, *((key, None) for key in chores.reclaimed))
        record_offsets = self.commit(Transaction(now_ms, self.leaving(batch), state, snapshots, chores.withdrawn))
        return record_offsets[: len(chores.segments)]

    def commit(self, transaction: Transaction) -> list[int]:
        """Commit as the owner this router believes to be."""
        self.require_connections()
        return self.around.store.commit(self.epoch, transaction)

    def require_connections(self) -> None:
        """Begin no transaction where the end of the last one may still be on its way."""
        if self.around.store.has_lost_connection(self.epoch):
            raise ConnectionLostError("in the simulation", 0.0)

    def trim(self) -> None:
        """Remove from the snapshots topic, and perhaps from the delay topic, what nothing refers to."""
        committed, buckets = self.ledger.committed, self.needing()
        live_from = snapshots_needed_from(committed.watermark, buckets, self.housekeeping.being_merged)
        kept = self.kept()
        snapshots_to = snapshots_known_to(buckets) if live_from is None else live_from
        self.around.store.trim(min(snapshots_to, snapshots_to if kept.snapshots_from is None else kept.snapshots_from))
        self.around.faults.point("trim of snapshots")
        if self.around.trims:
            log, delay_to = self.around.log, delay_topic_needed_from(committed, buckets)
            delay_to = min(delay_to, delay_to if kept.delay_topic_from is None else kept.delay_topic_from)
            log.start = max(log.start, delay_to)
            self.around.faults.point("trim of the delay topic")

    def kept(self) -> Kept:
        """What jobs need, as it is when the trim is asked for."""
        staged, intents = fold_staged((key, value) for key, (_, value) in self.around.store.backfill.items())
        return kept_for_backfills([each.manifest for each in staged], [each.snapshots_from for each in intents])

    def needing(self) -> list[Bucket]:
        """The buckets whose needs are looked at before trimming."""
        return list(self.ledger.parts.buckets.values())

    def rules_at(self, offset: int) -> Rules:
        """The rules that decide a record: of the epoch it lies in."""
        return self.history.at(offset)

    def due_ms(self, schedule: Schedule) -> int:
        """When an accepted record is due."""
        return schedule.due_ms

    def leaving(self, batch: Leaving) -> list[Left]:
        """What becomes visible, in the order it is written; whether a target is allowed is asked again here."""
        released = [left for entry in batch.late + batch.due for left in self._released(entry)]
        return released + [Left(offset, REJECTED, refused.record) for offset, refused in batch.rejected]

    def state_with(self, state: StateRecords, progress: Progress) -> StateRecords:
        """State records of a transaction: these, and the progress that says what there is after them."""
        self.inventory.begin()
        for key, value in state:
            self.inventory.note(key, value)
        return [*state, *self.state_of(progress)]

    def state_of(self, progress: Progress) -> StateRecords:
        """The progress as it is written."""
        return [(PROGRESS_KEY, encode_progress(progress, TOPIC_ID, self.inventory.current))]

    def state_of_gate(self) -> StateRecords:
        """State records of what is held back from now on, and of what no longer is."""
        return self.gate.state()

    def check(self) -> None:
        """Let the index assert its invariants; wrong routers must be caught from outside."""
        if self.checks_itself:
            self.ledger.check()

    def _released(self, entry: Entry[Scheduled]) -> list[Left]:
        _, offset, (schedule, _, kept) = entry
        record = kept or self.reader.read(DELAY_TOPIC, 0, [offset])[offset]
        if record is None:
            self.tell_lost([offset])
            return []
        # By what the record says of itself, so that one in the place of another is noticed.
        named = int((record.value or b"").partition(b"/")[0])
        if entry[0] == AT_ONCE and not schedule.targets:
            decided = self.rules_at(offset).decide(record.headers, record.timestamp_ms)
            return [Left(named, REJECTED, record)] if isinstance(decided, Rejection) else []
        if all(self.in_force.allowed(target) for target in schedule.targets):
            return [Left(named, target, record) for target in schedule.targets]
        return [Left(named, REJECTED, record)]


def state_of_chores(chores: Chores) -> StateRecords:
    """State records of chores: a manifest, and tombstones."""
    removed: StateRecords = [(key, None) for key in chores.removed]
    if chores.history is not None:
        removed.append((RULES_KEY, encode_history(chores.history)))
    if chores.installs is None or not chores.installs.manifest.segments:
        return removed
    manifest = chores.installs.manifest
    return [(manifest_key(manifest.bucket_id), encode_manifest(manifest)), *removed]


def kind_of(chores: Chores) -> str:
    """What a transaction does beside releasing."""
    if chores.segments:
        return "segments"
    if isinstance(chores.installs, Adoption):
        return "an adoption"
    if chores.installs is not None:
        return "a merge" if chores.installs.merged_from else "a seal"
    if chores.history:
        return "rules"
    if chores.withdrawn:
        return "a withdrawal"
    return "a removal" if chores else "a batch"

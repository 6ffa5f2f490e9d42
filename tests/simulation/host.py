"""Connects the ports of an owned partition to a modelled cluster: the only parts of a router that are not real here.

All decisions and the order of steps come from the shipped code:
:class:`sidecar.engine.ownership.serving.ServingLoop` runs on these ports (:mod:`.serving`).
"""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from math import inf
from random import Random
from typing import Any, cast

from confluent_kafka import KafkaError

from index.buckets.bucket_rules import SealRules
from index.buckets.retention import Kept
from index.errors import ConnectionLostError, NotYetError
from index.named.receipts import receipt_record
from index.named.series_in_log import SeriesInLog
from index.protocol.headers import SERIES
from index.protocol.record import Record
from index.protocol.schedule import Reason, Rejection
from index.rules.rule_history import RuleHistory
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.buckets.hidden_end import Edges, HiddenEnd
from sidecar.engine.buckets.trimming import Trimming
from sidecar.engine.buckets.upkeep import Upkeep
from sidecar.engine.context import PartitionContext
from sidecar.engine.intake.decided import BadBatch, Decided
from sidecar.engine.intake.deciding import Deciding
from sidecar.engine.intake.intake import CONTROLS_FOR_S, IdPlaces, Intake
from sidecar.engine.ownership.adopting import BackfillRecord
from sidecar.engine.ownership.origin import Origin
from sidecar.engine.ownership.restored import kept_by_backfills
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.packed_run import packed_runs
from sidecar.engine.payload.records import Refused
from sidecar.engine.ports import KNOWN_FOR_S, Stored, Target
from sidecar.engine.release.aside import Doubts
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.rates import RateLimits
from sidecar.engine.release.shortening import is_shortened
from sidecar.engine.release.transaction import Outcome, Refusals, Result, Transaction, Transactions
from sidecar.kafka.reading.tails import Fetch
from sidecar.kafka.writing.lane import Lane
from sidecar.kafka.writing.lanes import Member
from sidecar.kernel.choice import Kernel
from sidecar.metrics import Metrics
from sidecar.process.host.budget import PayloadBudget
from sidecar.zones import zone_of
from snapshots.state.claim import CLAIM_PREFIX, claim_key, encode_claim
from snapshots.state.lane import LaneName
from snapshots.state.state import StoredState, fold_state, writers_in
from tests.simulation import world
from tests.simulation.fetching import PageReader, Pool, Reader, record_of
from tests.simulation.jobs import Watch
from tests.simulation.process import ENDED_BY_ANOTHER_CHANCE, SimulatedProducer
from tests.simulation.refusing import TOO_LARGE, Refusing
from tests.simulation.settings import SimulatedSettings, Surroundings
from tests.simulation.workload import DEAD_LETTER, DEFAULT_TARGET, TARGETS
from tests.simulation.world import (
    BACKFILL_PLACE,
    DELAY_PLACE,
    DELAY_TOPIC,
    RECEIPTS_PLACE,
    REJECTED,
    SNAPSHOTS_PLACE,
    STATE_PLACE,
    Answer,
    DelayLog,
    Faults,
    Left,
    OwnClock,
    Produced,
    own_id,
)

TOPIC_ID = "topic-id"
METRICS = Metrics()
KERNEL = Kernel.chosen(os.environ)
"""The kernel that a router would choose here; the simulation is played with it and without it."""

SMALL_RUNS = replace(packed_runs(KERNEL.codec.in_order), enough=3, chunk_bits=4)
"""Several runs despite the few records that a run of the simulation has."""

INDISPENSABLE = (SNAPSHOTS_PLACE, BACKFILL_PLACE, (REJECTED, 0))
"""The rejected topic has one partition here; with more, the router would use another partition."""

FREE_PLACES = [(target, 0) for target in (DEFAULT_TARGET, *TARGETS)]
DEAD_PLACE = DEAD_LETTER, 0
PLENTY_BYTES = 1 << 40
READS_AHEAD = 0.3
ASKS_AGAIN = 0.3
REFUSED_BY = 2_654_435_761 >> 3
"""Spreads the offsets whose move is refused."""


class SimulatedTopic(DelayTopicConfig):
    """A delay topic with buckets as small as the runs."""

    limits: SealRules

    @property
    def seal_rules(self) -> SealRules:
        """The rules that the run has drawn."""
        return self.limits


class SimulatedClock:
    """The clock of one router; a sleep takes no time."""

    def __init__(self, own: OwnClock) -> None:
        self._own = own

    def now_ms(self) -> int:
        return self._own.now_ms

    def now_ns(self) -> int:
        """Return the time in ns, with a precision of ms."""
        return self._own.now_ms * 1_000_000

    def running_s(self) -> float:
        """Return a time that advances a little with every turn."""
        return self._own.running_s

    def sleep(self, seconds: float) -> None:
        """Let others act meanwhile, if the scheduler wants it."""


class HastyClock(SimulatedClock):
    """Lets the evaluation of a control take long sometimes, so that the next ones wait for another transaction."""

    def __init__(self, own: OwnClock, faults: Faults) -> None:
        super().__init__(own)
        self._faults = faults
        # A random generator of its own, so that the rest of the run is unchanged.
        self._luck = Random(own.running_s)
        self._passed_s = 0.0

    def running_s(self) -> float:
        """Return a time that advances, in some calls, by the longest time that controls may take."""
        self._passed_s += CONTROLS_FOR_S * (self._luck.random() < self._faults.hurry_chance)
        return super().running_s() + self._passed_s


class SimulatedBudget(PayloadBudget):
    """Memory that is used up, or nearly so, at random while a partition is served."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(PLENTY_BYTES)
        self._faults = faults
        self.is_served: Callable[[], bool] = lambda: True

    @property
    def room_bytes(self) -> int:
        if not self.is_served():
            return PLENTY_BYTES
        return self._faults.rng.choices([PLENTY_BYTES, 0, 700], self._faults.memory_weights)[0]

    @property
    def is_full(self) -> bool:
        """Says whether no room is left; with a little room, records still come in that do not fit."""
        return self.room_bytes <= 0


class SimulatedDirectory:
    """A directory that asks again which targets exist only once a broker has contradicted it, or at random."""

    def __init__(self, refusing: Refusing) -> None:
        self._refusing = refusing
        # A random generator of its own, so that the rest of the run stays the same without it.
        self._luck = Random(len(refusing.were_gone))
        self._gone = frozenset(refusing.gone)

    def resolve(self, names: Any, known_for_s: float = KNOWN_FOR_S) -> dict[str, Target]:
        """Return targets of one partition each."""
        if self._luck.random() < ASKS_AGAIN:
            self.forget()
        return {name: Target(1, self._refusal(name), known_for_s) for name in names}

    def forget(self) -> None:
        """Ask the brokers."""
        self._gone = frozenset(self._refusing.gone)

    def _refusal(self, name: str) -> Rejection | None:
        return Rejection(Reason.TARGET_UNKNOWN, f"Target topic {name} does not exist") if name in self._gone else None


class Host:
    """The ports of one ownership by one router."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.own = SimulatedProducer(around.store, own_id(around.process.group))
        self._member: Member | None = None
        self.lane: SimulatedLane | None = None
        self.is_apart = False
        self.topic_ids: Mapping[str, str] = {}
        self.serve_client: Callable[[], None] = lambda: None
        self.reads = 30
        self.directory = SimulatedDirectory(around.store.refusing)
        self.codec = KERNEL.codec
        self.runs = SMALL_RUNS
        self.compresses = True
        self.zone_of = zone_of
        self.payload_memory_bytes = PLENTY_BYTES
        topic = SimulatedTopic(name=DELAY_TOPIC, trim=around.trims, limits=around.seal_rules).model_copy(
            update={"max_buckets": around.max_buckets, "placement": around.seal_rules.placement}
        )
        group = around.process.group
        self.context = PartitionContext(topic, 0, group, METRICS, SimulatedClock(around.clock), limits=around.limits)
        self.rates = RateLimits(self.context.clock.running_s, nullcontext())
        self.budget = SimulatedBudget(around.faults)
        self.reader = Reader(around.log, around.store, self.is_owner)
        # A reader that only looks at a record or two does not repair a segment.
        looker = Reader(around.log, around.store, lambda: False)
        pages = PageReader(around.log, around.store, self.is_owner)
        self.pool = Pool(self.reader, pages, looker, around.faults)
        self.settings = SimulatedSettings(around, topic)
        self.staged = SimulatedStaged(around)

    def is_owner(self) -> bool:
        """Say whether the partition still belongs to this router."""
        return self.own.is_present

    def fence(self, _: Callable[[], bool] = lambda: False) -> None:
        """Fence the other owners by the partition's own id, and join a lane if the process has lanes."""
        self.own.init()
        self._around.faults.point("fence")
        self._member = self._around.process.join()
        if self._member is not None:
            self.lane = SimulatedLane(self._around, self, self._member)
            self._around.faults.point("lane")

    def close(self) -> None:
        """Leave the lane at the end of the ownership."""
        if self._member is not None:
            self._around.process.lanes.leave(self._member)

    def set_apart(self) -> None:
        """Leave the lane soon, because the partition holds up the others."""
        self._around.process.lanes.set_apart(DELAY_PLACE)
        self.is_apart = self.lane is not None

    def look_again(self, doubts: Doubts) -> "Future[Doubts]":
        answer: Future[Doubts] = Future()
        answer.set_result(self._around.store.brokers.doubts_again(doubts))
        return answer

    def new_series_key(self) -> bytes:
        """Return a key that differs for each owner."""
        return b"key %d" % self.own.epoch

    def standing(self) -> "SimulatedStanding":
        return SimulatedStanding(self._around, self._member, self.own)

    def transactions(self, _: Origin) -> Transactions:
        """Return transactions of the partition's own id."""
        if self.lane is not None:
            # Another router may take over between the look at the state and the note of the lane.
            self._around.faults.point("state read", rare=True)
        return SimulatedTransactions(self._around, self, self.own)

    def read_on(self, ledger: PartitionLedger, history: RuleHistory, until_offset: int, places: IdPlaces) -> Intake:
        """Return an intake of the modelled log, in the thread of the worker."""
        deciding = Deciding(
            history,
            self.budget,
            now_ms=self.context.clock.now_ms,
            soon_ms=self._around.seal_rules.soon_ms,
            until_offset=until_offset,
            native=KERNEL.decider,
        )
        ahead = SimulatedAhead(self._around, self, deciding, ledger.indexed_to)
        return Intake(ahead, ledger, self.budget, places, HastyClock(self._around.clock, self._around.faults))

    def read_again(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Return the records that retention has left."""
        return self.reader.read(DELAY_TOPIC, 0, offsets)

    def upkeep(self, ledger: PartitionLedger, gate: Gate) -> Upkeep:
        """Return an upkeep that trims the modelled topics."""
        around = self._around
        key = ledger.committed.series_key
        trimming = Trimming(self.context, self._remove, lambda: _kept(around), key)
        hidden = HiddenEnd(Future[Edges], "", self.context.place)
        return Upkeep(self.context, ledger, trimming, self.pool, around.retention[0], gate, hidden)

    def _remove(self, topic: str, offset: int) -> "Future[None]":
        """Remove the records below an offset, at once."""
        around = self._around
        if topic == DELAY_TOPIC:
            around.log.start = max(around.log.start, offset)
            around.faults.point("trim of the delay topic")
        else:
            around.store.trim(offset)
            around.faults.point("trim of snapshots")
        done: Future[None] = Future()
        done.set_result(None)
        return done


class SimulatedLane:
    """The lane that the partition has joined."""

    def __init__(self, around: Surroundings, host: Host, member: Member) -> None:
        self._around = around
        self._host = host
        self._member = member
        self.name = member.name

    def transactions(self, _: Origin) -> Transactions:
        """Return transactions of the lane."""
        producer = cast("SimulatedProducer", self._member.lane.producer)
        return SimulatedTransactions(self._around, self._host, producer, self._member.lane)


class SimulatedStanding:
    """The state that a take-over reads."""

    def __init__(
        self, around: Surroundings, member: Member | None = None, own: SimulatedProducer | None = None
    ) -> None:
        self._around = around
        self._member = member
        self._own = own
        self._groups: frozenset[str] = frozenset()
        self._records: Sequence[tuple[bytes, bytes | None]] = ()
        self.has_fenced = False
        """Says whether the lane that was ended last had not ended before, as far as the registry knows."""

    def lane(self) -> LaneName | None:
        """Return the lane that the state names. Raise NotYetError if the end of the state is hidden."""
        self._require_settled()
        self._records = [*self._around.store.state]
        lane, self._groups = writers_in(self._records)
        return lane

    def groups(self) -> frozenset[str]:
        """Return the groups with a claim in the state that was read last."""
        return self._groups

    def claim(self, group: str) -> None:
        """Write the claim by the producer of the own id, as a transaction like all others."""
        around = self._around
        assert self._own is not None
        self._own.claim(world.Transaction(around.clock.now_ms, [], [(claim_key(group), encode_claim())]))
        around.faults.point("claim", rare=True)

    def end_group(self, group: str) -> None:
        """Fence the own id of another group."""
        self._around.store.fence(own_id(group))
        self._around.faults.point("other group", rare=True)

    def end(self, lane: LaneName) -> None:
        """Fence a lane by the registry of the process; another partition of it may have done so just before."""
        process, faults = self._around.process, self._around.faults
        if faults.lane_chance and process.is_lucky(ENDED_BY_ANOTHER_CHANCE):
            faults.meanwhile()
            process.end(lane, self._member)
        self.has_fenced = process.end(lane, self._member)
        faults.point("former lane", rare=self.has_fenced)

    def delay_topic_id(self) -> str:
        """Return a constant: the topic is never created again."""
        return TOPIC_ID

    def log_range(self) -> tuple[int, int]:
        """Return the range of the delay topic."""
        return self._around.log.start, self._around.log.end

    def uncommitted_end(self) -> int:
        """Return the log end: producers have no transactions."""
        return self._around.log.end

    def snapshots_range(self) -> tuple[int, int]:
        return 0, self._around.store.snapshots_end

    def state_starts_at(self) -> int:
        """Return 0: no record was removed from the state."""
        return 0

    def stored(self) -> StoredState | None:
        """Return the state that ``lane`` has read."""
        return fold_state(self._records)

    def _require_settled(self) -> None:
        if self._around.store.brokers.log(STATE_PLACE).ends.is_open:
            raise NotYetError("the state is not settled")

    def state_keys(self) -> list[bytes]:
        """Return the keys that have a value, without claims."""
        latest = dict(self._around.store.state).items()
        return [key for key, value in latest if value is not None and not key.startswith(CLAIM_PREFIX)]

    def staged(self) -> list[Stored]:
        """Return the records that jobs have staged."""
        return _staged(self._around)

    def series_key(self) -> bytes:
        """Fail: no run rebuilds a state."""
        raise AssertionError("no state is lost as a whole")

    def series(self, key: bytes) -> SeriesInLog:
        """Fail: no run rebuilds a state."""
        raise AssertionError(f"no state is lost as a whole, and somebody has {key!r}")

    def group_offset(self) -> int:
        """Return -1: no group has committed an offset."""
        return -1

    def may_be_staged(self) -> bool:
        return bool(self._around.store.backfill)

    def doubts(self, _: StoredState) -> Doubts:
        """Return the doubts by the shipped rule. Raise NotYetError if the router cannot do without a place in doubt."""
        brokers = self._around.store.brokers
        if missed := brokers.doubts(INDISPENSABLE):
            raise NotYetError(f"in doubt: {[*missed]}")
        return brokers.doubts([*FREE_PLACES, DEAD_PLACE, DELAY_PLACE, RECEIPTS_PLACE])


class SimulatedStaged:
    """An owner's view of the backfill topic, which may be out of date."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._watch = Watch(around.store, around.faults.rng)

    def has_looked(self) -> bool:
        """Say at random whether the owner has looked, so that it takes some rounds."""
        return self._around.faults.rng.random() < 0.5

    def waiting(self) -> Mapping[bytes, BackfillRecord]:
        return self._watch()

    def hold_off(self) -> None:
        """Do nothing: nobody waits."""

    def not_before_s(self) -> float:
        """Return 0: nobody has to wait."""
        return 0.0


class SimulatedAhead:
    """Fetches of the modelled log, some of them decided before the intake takes them."""

    def __init__(self, around: Surroundings, host: Host, deciding: Deciding, from_offset: int) -> None:
        self._around = around
        self._host = host
        self._deciding = deciding
        self._next = from_offset
        self._ahead: deque[Decided] = deque()

    @property
    def taken_bytes(self) -> int:
        """The bytes of all decided records, including the fetches not taken yet."""
        return self._deciding.taken_bytes

    @property
    def log_end(self) -> int:
        return self._around.log.end

    def next(self, _: float) -> Decided | None:
        """Return one fetch, or None at the end. Raise OutOfRangeError if retention has overtaken it."""
        self._around.faults.point("index")
        if not self._ahead or self._around.faults.rng.random() < READS_AHEAD:
            self._read()
        return self._ahead.popleft() if self._ahead else None

    def close(self) -> None:
        """Do nothing: the fetches ahead are forgotten with this object."""

    def _read(self) -> None:
        log = self._around.log
        if self._deciding.has_ended or self._next == log.end:
            return
        if self._next < log.start:
            raise world.OutOfRangeError
        records, end = log.read(self._next, self._host.reads)
        if records and records[0].unreadable_to is not None:
            bad = BadBatch(records[0].offset, records[0].unreadable_to, "no client can")
            self._next = bad.to_offset
            self._ahead.append(self._deciding.decide(Fetch([], [], bad)))
            return
        messages: list[Any] = [_Message(each) for each in records]
        if end is not None:
            messages.append(_End(end))
        self._next = log.end if end is not None else records[-1].offset + 1
        self._ahead.append(self._deciding.decide(Fetch(messages, [message.headers for message in messages])))


class SimulatedTransactions:
    """Commits transactions to the modelled store; ``lane`` is the lane whose producer writes them, if one does."""

    def __init__(self, around: Surroundings, host: Host, producer: SimulatedProducer, lane: Lane | None = None) -> None:
        self._around = around
        self._host = host
        self._producer = producer
        self._lane = lane
        self._refused: set[int] = set()

    def commit(self, transaction: Transaction) -> Result:
        """Commit with a random outcome; an unknown one, and a fence, end the lane."""
        if self._lane is None:
            return self._commit(transaction)
        if self._lane.has_ended or self._around.process.is_lucky(self._around.faults.lane_chance):
            # Another partition of the lane has met an unknown outcome.
            self._lane.end()
            return Result(Outcome.UNKNOWN, error=world.UnknownOutcomeError())
        result = self._commit(transaction)
        if result.outcome in (Outcome.UNKNOWN, Outcome.FENCED):
            self._lane.end()
        return result

    def _commit(self, transaction: Transaction) -> Result:
        around = self._around
        around.faults.point("plan")
        self._refused = {each.offset for each in transaction.appended if self._is_refused(each.offset)}
        begun_ms = around.clock.now_ms
        requests = transaction.requests
        snapshots = [
            (key, value)
            for request in requests
            for key, value in [*request.segments, *((key, None) for key in request.reclaimed)]
        ]
        withdrawn = tuple(key for request in requests for key in request.withdrawn)
        written = world.Transaction(
            begun_ms,
            _left(transaction, around.log),
            transaction.state_records(TOPIC_ID),
            tuple(snapshots),
            withdrawn,
            tuple((each.offset, each.record) for each in transaction.appended),
            {offset: each[:2] for offset, each in transaction.occurrences.items()},
            tuple(Answer(receipt.offset, receipt_record(receipt)) for receipt in transaction.receipts),
            around.log.start,
            lambda placed: transaction.state_records(TOPIC_ID, transaction.notes(placed)),
        )
        try:
            self._require_connections()
            self._require_room()
            offsets = self.apply(written)
        except world.AbortedError as error:
            return Result(Outcome.ABORTED, error=error)
        except (world.SegmentsRefusedError, world.RecordRefusedError) as error:
            return Result(Outcome.REFUSED, error=error, why="too large")
        except world.FencedError as error:
            return Result(Outcome.FENCED, error=error)
        except (world.UnknownOutcomeError, ConnectionLostError) as error:
            return Result(Outcome.UNKNOWN, error=error)
        # At the point another router may commit, and replace the places that the store holds.
        notes = transaction.notes(around.store.placed)
        around.faults.point(f"commit of {_kind_of(transaction)}", rare=_is_rare(transaction))
        return Result(Outcome.COMMITTED, _shared_out(transaction, offsets), notes=notes)

    def find_refused(self, transaction: Transaction, within_s: float) -> Refusals:
        """Find the records that are too large for their topics, and refuse some of the moved ones."""
        self._host.set_apart()
        refusing = self._around.store.refusing
        found = refusing.find(transaction, REJECTED, RECEIPTS_PLACE[0], within_s)
        large = {each.offset for each in transaction.appended if refusing.is_too_large(DELAY_TOPIC, each.record)}
        found = replace(found, unfollowed=dict.fromkeys(self._refused | large, TOO_LARGE))
        assert any((found.refused, found.undecided, found.unfollowed, found.unanswered)), f"{transaction} is taken"
        return found

    def _require_room(self) -> None:
        if self._refused:
            raise world.RecordRefusedError

    def _is_refused(self, offset: int) -> bool:
        """Say whether the delay topic refuses the record that follows from an offset; it refuses some moves."""
        produced = next(each for each in self._around.log.records if each.offset == offset)
        is_move = produced.named is not None and produced.named.action == "move"
        return self._around.refuses_moves and is_move and offset * REFUSED_BY % 8 == 0

    def _require_connections(self) -> None:
        if self.has_lost_connection():
            is_fresh = self._around.faults.commits_are_fresh and self._host.is_owner()
            raise ConnectionLostError("in the simulation", inf if is_fresh else -inf)

    def has_lost_connection(self) -> bool:
        """Say whether the end of the last transaction may still be on its way, so that no other one may begin."""
        return self._around.store.has_lost_connection(self._held)

    @property
    def _held(self) -> world.Held:
        return world.Held(self._producer.transactional_id, self._producer.epoch)

    def apply(self, written: world.Transaction) -> list[int]:
        """Commit by the producer. Return the offsets of the records in the snapshots topic."""
        return self._around.store.commit(self._held, written)


class _Message:
    """A record as a client hands it over."""

    def __init__(self, produced: Produced) -> None:
        self._record = record_of(produced)
        self._offset = produced.offset
        self.headers = self._record.headers

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return None

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp_ms


class _End:
    """The event that the end of the log was reached."""

    headers = ()

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF)


def _left(transaction: Transaction, log: DelayLog) -> list[Left]:
    """Return the records that become visible, in the order of the writes.

    The content of each record identifies it, so that a wrong record in its place is noticed.
    """
    released = [
        Left(_named(record, log), target, record, attempt=schedule.attempt)
        for _, _, (schedule, _, record) in transaction.released
        for target in schedule.targets
    ]
    return released + [
        Left(_named_by(refused, log, offset), REJECTED, refused.record, refused.rejection)
        for offset, refused in transaction.rejected
    ]


def _named_by(refused: Refused, log: DelayLog, offset: int) -> int:
    """Return the offset that a rejected record names; an unreadable batch and a shortened record may name none."""
    is_whole = refused.record.value is not None and not is_shortened(refused.rejection.message)
    return _named(refused.record, log) if is_whole else offset


def _named(record: Record | None, log: DelayLog) -> int:
    assert record is not None
    series = [header for header in record.headers if header[0] == SERIES]
    if series:
        # The value of an occurrence is the value of the first one.
        return next(each.offset for each in reversed(log.records) if series[0] in each.headers)
    # The value of a moved schedule is the value of its source.
    moved = (each for each in reversed(log.records) if each.moved_by is not None)
    same = (each.offset for each in moved if each.value == record.value and list(each.headers) == list(record.headers))
    found = next(same, None)
    return int((record.value or b"").partition(b"/")[0]) if found is None else found


def _shared_out(transaction: Transaction, offsets: Sequence[int]) -> list[list[int]]:
    """Return the offsets of the segments of each request."""
    shared: list[list[int]] = []
    at = 0
    for request in transaction.requests:
        shared.append(list(offsets[at : at + len(request.segments)]))
        at += len(request.segments) + len(request.reclaimed)
    return shared


def _kind_of(transaction: Transaction) -> str:
    """Name the work of a transaction beside the release of records."""
    kinds = [
        kind
        for request in transaction.requests
        for kind, does in {
            "segments": request.segments,
            "an adoption": request.installs is not None and request.withdrawn,
            "a merge": request.installs is not None and request.removed,
            "a seal": request.installs,
            "rules": request.history,
            "a withdrawal": request.withdrawn,
            "a removal": request.removed or request.reclaimed,
        }.items()
        if does
    ]
    return kinds[0] if kinds else "a batch"


def _is_rare(transaction: Transaction) -> bool:
    return any(request.installs is not None or request.history is not None for request in transaction.requests)


def _staged(around: Surroundings) -> list[Stored]:
    return [Stored(offset, key, value) for key, (offset, value) in around.store.backfill.items()]


def _kept(around: Surroundings) -> "Future[Kept]":
    """Return the records that jobs need at the moment of the request."""
    kept: Future[Kept] = Future()
    kept.set_result(kept_by_backfills(_staged(around), around.clock.now_ms))
    return kept

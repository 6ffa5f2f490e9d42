"""Brokers that lose markers, and healers that are killed between any two effects: the shipped healing, played.

One seed, one run: a delay partition releases records to a few partitions, and appends next occurrences and what was
moved to itself. Its transactions lose markers on some of them, it is killed, others have transactions open in between,
the coordinator's log may not be readable. In the end every record has to be seen once, nothing may be open, and what
is noted as in transit has to be there.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest.mock import patch

from index.errors import NotYetError
from index.names import hash_of
from index.occurrences import record_of
from index.orphans import Outcome
from index.progress import Position, Progress
from index.record import Record
from index.recurring import Occurrence
from index.rule_history import RuleHistory
from index.rules import Rules
from index.schedule import BY_KEY, KEEP_KEY, Schedule
from index.transit import InTransit, lots_of
from sidecar.clock import SystemClock
from sidecar.context import PartitionContext
from sidecar.healing import evidence, healing, hidden, in_front
from sidecar.healing.evidence import Evidence
from sidecar.healing.healing import Healing
from sidecar.healing.hidden import Ends, Read, ours
from sidecar.healing.short_transactions import SECOND_TOUCH_KEY, TOUCH_KEY, Writes
from sidecar.kafka.admin import Place
from sidecar.metrics import Metrics
from snapshots.inventory import NOTHING_STORED, Inventory
from snapshots.owed import decode_owed
from snapshots.state import (
    PROGRESS_KEY,
    RULES_KEY,
    StoredState,
    encode_history,
    encode_progress,
    fold_state,
)
from snapshots.transit import encode_transit

DELAY: Place = ("d", 0)
STATE: Place = ("d.delay-state", 0)
TARGETS: tuple[Place, ...] = (("t", 0), ("t", 1), ("u", 0))
REJECTED: Place = ("d.rejected", 0)
MAIN, SECOND, STRANGER = "main", "second", "stranger"
RECORDS = 30
SERIES_KEY = b"k" * 16
MOST_TAKE_OVERS = 400
LONGEST_LOG = 1_500


class CrashedError(Exception):
    """The router was killed, or the broker lost markers and the router has lost its connection."""


class ViolationError(Exception):
    """A record is lost or doubled, or something is open for ever."""


class Written(NamedTuple):
    """An offset of a log: a record, or a marker where there is none."""

    producer: str
    epoch: int
    record: Record | None = None
    commits: bool = False


@dataclass
class Kafka:
    """Partitions, what is open on them, and the coordinator's log of one producer."""

    rng: random.Random
    logs: dict[Place, list[Written]] = field(default_factory=dict)
    ongoing: dict[str, set[Place]] = field(default_factory=dict)
    decided: list[tuple[Outcome, frozenset[Place]]] = field(default_factory=list)
    leader_epoch: int = 0
    crash_chance: float = 0.0
    loss_chance: float = 0.0
    log_is_readable: bool = True
    connection_was_lost: bool = False
    """The broker has died, and whoever healed has not noticed."""

    def log(self, place: Place) -> list[Written]:
        return self.logs.setdefault(place, [])

    def open_from(self, place: Place) -> int | None:
        first: dict[str, int] = {}
        for offset, (producer, _, record, _) in enumerate(self.log(place)):
            if record is None:
                first.pop(producer, None)
            else:
                first.setdefault(producer, offset)
        return min(first.values(), default=None)

    def ends(self, place: Place) -> Ends:
        written = len(self.log(place))
        found = self.open_from(place)
        return Ends(written if found is None else found, written, self.leader_epoch)

    def seen(self, place: Place, from_offset: int = 0) -> Iterator[Read]:
        """What readers of committed records see."""
        pending: dict[str, list[Read]] = {}
        committed: list[Read] = []
        for offset, (producer, epoch, record, commits) in enumerate(self.log(place)):
            if record is not None:
                pending.setdefault(producer, []).append(Read(offset, record, epoch))
            elif commits:
                committed += pending.pop(producer, [])
            else:
                pending.pop(producer, None)
        settled = self.ends(place).settled
        yield from sorted(
            (each for each in committed if from_offset <= each.offset < settled), key=lambda each: each.offset
        )

    def hidden(self, place: Place, from_offset: int, to_offset: int) -> list[Read]:
        log = self.log(place)[:to_offset]
        return [Read(at, each.record, each.epoch) for at, each in enumerate(log) if each.record and at >= from_offset]

    def point(self) -> None:
        if self.rng.random() < self.crash_chance:
            raise CrashedError

    def write(self, producer: str, records: Iterable[tuple[Place, Record]]) -> list[int]:
        offsets: list[int] = []
        for place, record in records:
            self.point()
            self.ongoing.setdefault(producer, set()).add(place)
            offsets.append(len(self.log(place)))
            self.log(place).append(Written(producer, self.leader_epoch, record))
            if len(self.log(place)) > LONGEST_LOG:
                raise ViolationError(f"it goes round and round in {place}")
        return offsets

    def end(self, producer: str, *, commit: bool) -> None:
        """Decide, and write markers; on brokers that die meanwhile some are lost, and everybody loses connections."""
        self.point()
        places = self.ongoing.pop(producer, set())
        if producer == MAIN:
            self.decided.append((Outcome.COMMITTED if commit else Outcome.ABORTED, frozenset(places)))
        dies = self.rng.random() < self.loss_chance
        for place in sorted(places):
            if not dies or self.rng.random() < 0.5:
                self.log(place).append(Written(producer, self.leader_epoch, commits=commit))
        if dies:
            self.leader_epoch += 1
            if commit or self.rng.random() < 0.5:
                raise CrashedError
            self.connection_was_lost = True

    def fence(self, producer: str) -> None:
        if producer in self.ongoing:
            self.end(producer, commit=False)

    def last_outcome(self, place: Place) -> Outcome | None:
        if not self.log_is_readable:
            return None
        return next((outcome for outcome, places in reversed(self.decided) if place in places), None)


class Transactions:
    """Stands in for ShortTransactions."""

    def __init__(self, kafka: Kafka, producer: str) -> None:
        self._kafka = kafka
        self._producer = producer

    def end_as_aborted(self, places: Iterable[Place]) -> None:
        with self.standing_in(places):
            pass

    @contextmanager
    def standing_in(self, places: Iterable[Place]) -> Iterator[None]:
        key = SECOND_TOUCH_KEY if self._producer == SECOND else TOUCH_KEY
        touch = Record(key, None, [("delay-source", b"d/0/-1")], 0)
        self._kafka.write(self._producer, [(place, touch) for place in places])
        yield
        self._kafka.end(self._producer, commit=False)

    def write(self, records: Writes, then: Callable[[Sequence[int]], Writes] | None = None) -> None:
        offsets = self._kafka.write(self._producer, records)
        if then is not None:
            self._kafka.write(self._producer, then(offsets))
        self._kafka.end(self._producer, commit=True)


class _Fenced(Transactions):
    """The second producer, which is fenced when it is first used."""

    def __init__(self, kafka: Kafka) -> None:
        super().__init__(kafka, SECOND)
        self._is_fenced = False

    def _fence(self) -> None:
        if not self._is_fenced:
            self._kafka.fence(SECOND)
            self._is_fenced = True

    @contextmanager
    def standing_in(self, places: Iterable[Place]) -> Iterator[None]:
        self._fence()
        with super().standing_in(places):
            yield

    def write(self, records: Writes, then: Callable[[Sequence[int]], Writes] | None = None) -> None:
        self._fence()
        super().write(records, then)


class ModelEvidence(Evidence):
    """With the targets of the model."""

    def targets(self, origin: Any) -> list[Place]:
        return [*TARGETS, REJECTED, DELAY]


class Run:
    """One seed with one way of healing."""

    def __init__(self, seed: int, kind: type[Healing] = Healing) -> None:
        self.rng = rng = random.Random(seed)
        self.kafka = Kafka(rng)
        self._kind = kind
        self._topic = SimpleNamespace(
            name="d",
            state=STATE[0],
            snapshots="d.s",
            backfill="d.b",
            rejected=REJECTED[0],
            receipts="d.receipts",
            timestamp="release",
        )
        settings = SimpleNamespace(transaction_timeout_ms=1_000, group_id="g")
        self._config: Any = SimpleNamespace(router=settings)
        self._lots = 0
        topic: Any = self._topic
        self._context = PartitionContext(topic, 0, "g", Metrics(), SystemClock())
        # Each by (due, offset); some to two targets and some with a next occurrence, some are rejected as they are
        # indexed, and some move another one.
        self._due = [0 if rng.random() < 0.2 else rng.randrange(1, 40) * 100 for _ in range(RECORDS)]
        self._places: list[list[Place]] = [
            rng.choice([[REJECTED], [DELAY]])
            if rng.random() < 0.2
            else [*rng.sample(TARGETS, rng.choice([1, 1, 2])), *([DELAY] if rng.random() < 0.3 else [])]
            for _ in range(RECORDS)
        ]

    def play(self) -> None:
        """To the end; ViolationError where a guarantee is broken."""
        kafka, rng = self.kafka, self.rng
        self._begin()
        kafka.crash_chance, kafka.loss_chance = rng.choice([0.01, 0.05]), rng.choice([0.05, 0.3])
        with self.patched():
            for number in range(MOST_TAKE_OVERS):
                if number == MOST_TAKE_OVERS // 4:
                    # From here on everything works.
                    kafka.crash_chance = kafka.loss_chance = 0.0
                    kafka.log_is_readable = True
                    kafka.end(STRANGER, commit=True)
                try:
                    self.live()
                except (CrashedError, NotYetError):
                    self._stranger()
                    continue
                break
            else:
                raise ViolationError("it never came to an end")
        kafka.crash_chance = kafka.loss_chance = 0.0
        self._judge()

    def _begin(self) -> None:
        rules = Rules(topic="d", default_target="t")
        Transactions(self.kafka, STRANGER).write([(DELAY, Record(b"x", b"x", (), 0))] * RECORDS)
        start = Progress(0, Position(-1, -1), 0, series_key=SERIES_KEY)
        records = [
            (PROGRESS_KEY, encode_progress(start, "id", NOTHING_STORED)),
            (RULES_KEY, encode_history(RuleHistory.beginning(0, rules))),
        ]
        Transactions(self.kafka, MAIN).write([(STATE, Record(key, value, (), 0)) for key, value in records])

    def _stranger(self) -> None:
        """Somebody else begins a transaction on a target, or ends one."""
        kafka = self.kafka
        if self.rng.random() < 0.5:
            return
        if STRANGER in kafka.ongoing:
            with_luck, kafka.loss_chance, kafka.crash_chance = (kafka.loss_chance, kafka.crash_chance), 0.0, 0.0
            kafka.end(STRANGER, commit=True)
            kafka.loss_chance, kafka.crash_chance = with_luck
        elif kafka.loss_chance:
            place = self.rng.choice([*TARGETS, DELAY])
            # To the delay partition it may pass on what was released to it.
            released = self.rng.choice([at for at in range(RECORDS) if self._places[at] != [DELAY]])
            headers = [("delay-source", b"d/0/%d" % released)] if place == DELAY else []
            kafka.ongoing[STRANGER] = {place}
            kafka.log(place).append(Written(STRANGER, kafka.leader_epoch, Record(b"x", b"x", headers, 0)))

    def live(self) -> None:
        """Take over, heal, and release until everything has left, or the end of this life."""
        kafka = self.kafka
        if kafka.loss_chance:
            kafka.log_is_readable = self.rng.random() < 0.5
        kafka.fence(MAIN)
        kafka.connection_was_lost = False
        healer = self._healer()
        healer.heal_own()
        while True:
            stored = self._stored(healer)
            origin: Any = SimpleNamespace(progress=stored.progress, buckets=(), held=(), history=stored.history)
            if not healer.heal_targets(origin):
                break
        self._serve(stored)

    def _stored(self, healer: Healing) -> StoredState:
        while True:
            if kafka_is_open := self.kafka.ends(STATE).is_open:
                raise NotYetError(f"open: {kafka_is_open}")
            records = [(record.key, record.value) for _, record, _ in self.kafka.seen(STATE)]
            stored, owed = fold_state(records), decode_owed(records)
            assert stored is not None
            assert stored.inventory is not None
            if not owed:
                return stored
            healer.pay(owed, stored)

    def _serve(self, stored: StoredState) -> None:
        progress, self._lots = stored.progress, len(stored.transit)
        if self.kafka.connection_was_lost:
            raise CrashedError
        main = Transactions(self.kafka, MAIN)
        while progress.cursor < RECORDS or any(
            not progress.is_done(due, offset) for offset, due in self._due_times(RECORDS)
        ):
            cursor = min(RECORDS, progress.cursor + self.rng.randrange(6))
            pending = sorted(
                (due, offset) for offset, due in self._due_times(cursor) if not progress.is_done(due, offset)
            )
            late = [each for each in pending if each <= progress.watermark]
            due = [each for each in pending if each > progress.watermark][: self.rng.randrange(4)]
            at_once = [offset for offset in range(progress.cursor, cursor) if self._leaves_when_indexed(offset)]
            watermark = Position(*due[-1]) if due else progress.watermark
            progress = progress._replace(cursor=cursor, watermark=watermark, number=progress.number + 1)
            leaving = [offset for _, offset in (*late, *due)] + at_once
            records = [(place, self._record(offset, place)) for offset in leaving for place in self._places[offset]]
            main.write(records, partial(self._in_state, progress, records))

    def _in_state(self, progress: Progress, written: list[tuple[Place, Record]], offsets: Sequence[int]) -> Writes:
        """What one transaction writes to the state: where what it has appended lies, and progress."""
        appended = [
            InTransit(Position(1, at), hash_of(record.value or b""))
            for (place, record), at in zip(written, offsets, strict=True)
            if place == DELAY
        ]
        lots = lots_of(progress.number, appended)
        self._lots += len(lots)
        state = [Record(*encode_transit(lot, notes), (), 0) for lot, notes in lots.items()]
        inventory = Inventory(transit_keys=self._lots)
        state.append(Record(PROGRESS_KEY, encode_progress(progress, "id", inventory), (), 0))
        return [(STATE, record) for record in state]

    def _leaves_when_indexed(self, offset: int) -> bool:
        return self._places[offset] in ([REJECTED], [DELAY])

    def _due_times(self, to_offset: int) -> list[tuple[int, int]]:
        return [(at, self._due[at]) for at in range(to_offset) if not self._leaves_when_indexed(at)]

    def _record(self, offset: int, place: Place) -> Record:
        source = ("delay-source", b"d/0/%d" % offset)
        if place == DELAY:
            moved = Record(None, b"%d" % offset, [source], 0)
            if self._leaves_when_indexed(offset):
                return moved
            recurs = moved._replace(headers=[("deliver-every", b"1s")])
            return record_of(recurs, Occurrence(offset, 2, 5_000), f"d/0/{offset}", SERIES_KEY, 0)
        if self._places[offset] == [REJECTED]:
            return Record(None, b"%d" % offset, [("delay-error", b"INVALID_SCHEDULE"), source], 0)
        # At once: the header has the timestamp.
        due = self._due[offset] or 7
        return Record(None, b"%d" % offset, [("delay-due", b"%d" % due), source, ("delay-source-timestamp", b"7")], 0)

    def _healer(self) -> Healing:
        kafka, context, nobody = self.kafka, self._context, cast("Any", None)
        made: Any = self._kind(context, self._config, nobody, nobody, nobody)
        made._main = Transactions(kafka, MAIN)
        made._evidence = ModelEvidence(self._config, nobody, context.topic, 0, nobody)
        made._evidence._decision = self._decided
        made._evidence._read = lambda _: None
        made._second = _Fenced(kafka)
        healer: Healing = made
        return healer

    def _decided(self, _: Any, offset: int) -> Schedule:
        targets = () if self._places[offset] == [DELAY] else ("t",)
        return Schedule(self._due[offset], targets, BY_KEY, KEEP_KEY, None, both_times=False)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """The shipped code's questions to a cluster go to the model."""
        kafka = self.kafka

        def ends_of(_: Any, places: Collection[Place]) -> dict[Place, Ends]:
            return {place: kafka.ends(place) for place in places}

        def still_open(_: Any, places: Collection[Place], __: float) -> dict[Place, Ends]:
            return {place: ends for place, ends in ends_of(None, places).items() if ends.is_open}

        def read_hidden(_: Any, place: Place, from_offset: int, to_offset: int) -> list[Read]:
            return kafka.hidden(place, from_offset, to_offset)

        def read_settled(_config: Any, name: str, partition: int, _admin: Any) -> list[Any]:
            found = kafka.seen((name, partition))
            return [SimpleNamespace(key=record.key, value=record.value) for _, record, _ in found]

        def read_seen(_: Any, place: Place, from_offset: int, to_offset: int, source: str) -> list[Any]:
            return ours((each for each in kafka.seen(place, from_offset) if each.offset < to_offset), source)

        now = iter(range(1 << 30))
        clock = SimpleNamespace(monotonic=lambda: float(next(now)), sleep=lambda _: None)
        for_healing: dict[str, Any] = {
            "read_settled": read_settled,
            "ends_of": ends_of,
            "still_open": still_open,
            "read_hidden": read_hidden,
        }
        for_evidence: dict[str, Any] = {"ends_of": ends_of, "read_hidden": read_hidden, "read_seen": read_seen}
        with ExitStack() as stack:
            stack.enter_context(patch.multiple(healing, **for_healing))
            stack.enter_context(patch.multiple(hidden, ends_of=ends_of, time=clock))
            stack.enter_context(patch.multiple(in_front, ends_of=ends_of, time=clock))
            log: dict[str, Any] = {
                "outcome_of_last": lambda *_: (kafka.last_outcome(STATE), "as the model tells"),
                "first_offsets": _from_the_start,
            }
            stack.enter_context(patch.multiple(evidence, **for_evidence, **log))
            yield

    def _judge(self) -> None:
        self.kafka.end(STRANGER, commit=True)
        for place in (*TARGETS, REJECTED, DELAY, STATE):
            if self.kafka.ends(place).is_open:
                raise ViolationError(f"{place} is open for ever")
        seen = Counter(
            (place, record.value) for place in (*TARGETS, REJECTED, DELAY) for _, record, _ in self.kafka.seen(place)
        )
        for offset in range(RECORDS):
            for place in self._places[offset]:
                if (count := seen.pop((place, b"%d" % offset), 0)) != 1:
                    raise ViolationError(f"record {offset} is seen {count} times in {place}")
        astray = {value for _, value in seen} - {b"x"}
        if astray:
            raise ViolationError(f"{astray} are where they do not belong")
        stored = fold_state((record.key, record.value) for _, record, _ in self.kafka.seen(STATE))
        assert stored is not None
        noted = {note.place.offset: note.id_hash for notes in stored.transit.values() for note in notes}
        if noted != {
            at: hash_of(record.value or b"") for at, record, _ in self.kafka.seen(DELAY) if record.value != b"x"
        }:
            raise ViolationError("what is noted as in transit is not where the notes say")


def _from_the_start(_: Any, places: Iterable[Place], __: int | None) -> dict[Place, int]:
    return dict.fromkeys(places, 0)

"""Models the surroundings of routers: clocks that may be set, a delay topic, a transactional store, and faults."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from index.errors import ClusterError, ClusterTrouble
from index.protocol.headers import Headers
from index.protocol.record import Record
from index.protocol.schedule import Attempted, Rejection
from sidecar.engine.ports import Place
from snapshots.envelope import Kind
from snapshots.state.claim import CLAIM_PREFIX
from snapshots.state.series_key import COPY_KEY, decode_copy
from snapshots.state.state import PROGRESS_KEY, series_key_of
from tests.simulation.forgetting import Brokers
from tests.simulation.refusing import TOO_LARGE, Refusing

START_MS = 1_800_000_000_000
FIRST_OFFSET = 500
RARE_FACTOR = 12
LANE_CHANCE = 0.05
"""The chance that another partition has ended the lane of the partition before a transaction."""

DELAY_TOPIC = "d"
REJECTED = "d.rejected"
STATE_PLACE, SNAPSHOTS_PLACE, BACKFILL_PLACE = ("d.delay-state", 0), ("d.delay-snapshots", 0), ("d.delay-backfill", 0)
DELAY_PLACE, RECEIPTS_PLACE = (DELAY_TOPIC, 0), ("d.receipts", 0)
GROUP = "g"
OTHER_GROUPS = ("a", "z")
"""The group of the routers, and names of another group that serves the topic by mistake."""


def own_id(group: str = GROUP) -> str:
    """Return the transactional id of the partition itself."""
    return f"{group}.d.0"


AT_RELEASE = ("is no longer allowed", "does not exist", TOO_LARGE.message)
"""Parts of the messages about a record that was accepted and is refused at its release."""


class CrashedError(BaseException):
    """The router was killed at this point; its code cannot catch that."""


class Interruption(ClusterError):
    """An error after which a router takes the partition over again."""

    def __init__(self) -> None:
        super().__init__(ClusterTrouble.OTHER, "in the simulation")


class FencedError(Interruption):
    """Another router has taken the partition over."""


class AbortedError(Interruption):
    """The transaction was aborted cleanly: none of it will ever be visible."""


class SegmentsRefusedError(Exception):
    """The transaction was aborted cleanly, because the broker refuses its segments."""


class RecordRefusedError(Interruption):
    """The transaction was aborted cleanly, because the broker refuses a record in it."""


class UnknownOutcomeError(Interruption):
    """The answer to a commit was lost: the commit may have happened, may still happen, or may have failed."""


class OutOfRangeError(Interruption):
    """The log begins behind the next record that the router wants to read."""


@dataclass
class Clock:
    """The time of the brokers, which may also go backward."""

    now_ms: int = START_MS
    running_s: float = 0.0


class OwnClock:
    """The clock of one router: ``ahead_ms`` (negative if behind) ahead of the brokers, and drifting."""

    def __init__(self, true: Clock) -> None:
        self._true = true
        self.ahead_ms = 0

    @property
    def now_ms(self) -> int:
        """The displayed time."""
        return self._true.now_ms + self.ahead_ms

    @property
    def running_s(self) -> float:
        """Seconds that only go forward, for pauses."""
        return self._true.running_s


class Series(NamedTuple):
    """The recurring schedule that its producer meant, and the number of the occurrence in a record.

    ``begins``: the record is no occurrence, since the first one is still to be written.
    """

    first: int
    number: int
    period_ms: int
    times: int
    until_ms: int
    takes_all: bool
    begins: bool = False


class Named(NamedTuple):
    """The intention behind a record with an id: ``action`` is "" for a schedule, or the effect on other schedules."""

    deliver_id: bytes
    action: str = ""
    if_due_ms: int | None = None


class Where(NamedTuple):
    """The intention behind a control that cancels by query: all of it has to be true of a schedule."""

    target: str | None = None
    due_from_ms: int | None = None
    due_to_ms: int | None = None
    id_prefix: bytes | None = None
    header: tuple[str, bytes] | None = None


@dataclass(frozen=True)
class Produced:
    """A record of the delay topic, with the intention of its producer in separate terms.

    ``due_us`` is 0 for a record without a time. ``legible`` tells whether its headers can be read at all. ``says`` is
    the value of a record that a router has written because of another one. ``named`` is the effect on other schedules
    of its id. ``moved_by`` is the offset of the control that has moved it; ``moved_last`` is the offset of the last
    control that has moved it or an occurrence of its series before it. ``asked_ms`` is the time at which a producer
    wrote the record because of which a router has written this one, or -1 if no producer has asked for this very
    record. ``unreadable_to``: the record stands for a batch that no client can read, from its offset up to that one.
    ``attempts_made`` are the attempts so far, or -1 if their number cannot be read. ``attempts_most`` is the number of
    attempts for which the record asks, or 0. ``came_from`` is the target that it says it has come from. ``where`` is
    the query of a control that cancels by one.
    """

    offset: int
    headers: Headers
    timestamp_ms: int
    due_us: int
    target: str
    legible: bool
    key: bytes | None = None
    padding: bytes = b""
    series: Series | None = None
    says: bytes | None = None
    named: Named | None = None
    moved_by: int | None = None
    moved_last: int | None = None
    asked_ms: int | None = None
    unreadable_to: int | None = None
    attempts_made: int = 0
    attempts_most: int = 0
    came_from: str = ""
    where: Where | None = None

    @property
    def missed_from_ms(self) -> int:
        """The instant from which on an occurrence can have been missed."""
        return self.timestamp_ms if self.asked_ms is None else self.asked_ms

    @property
    def value(self) -> bytes:
        """The value: it begins with the offset (for a series, of its first record), so that a misplaced record is
        noticed.
        """
        return b"%d/%s" % (self.offset, self.padding) if self.says is None else self.says


@dataclass
class DelayLog:
    """The records in offset order; the offsets of control records and aborted transactions are gaps.

    ``records`` keeps every record for the checker; a record below ``start`` cannot be read any more. ``told_lost`` are
    the offsets that routers have reported as possibly lost for that reason.
    """

    records: list[Produced] = field(default_factory=list)
    start: int = FIRST_OFFSET
    end: int = FIRST_OFFSET
    told_lost: set[int] = field(default_factory=set)

    def append_next(self, offset: int, record: Record) -> int:
        """Append the record that a router writes because of the one at ``offset``, and return its offset.

        The intention is taken from its headers, which the checker examines.
        """
        by_offset = {each.offset: each for each in self.records}
        before, said = by_offset[offset], dict(record.headers)
        is_moved = before.named is not None and before.named.action == "move"
        is_asked_for = is_moved or (before.series is not None and before.series.begins)
        series, due_ms, target = None, 0, before.target
        if header := said.get("deliver-series"):
            first, number, due_ms = map(int, header.split(b" ")[:3])
            begun = by_offset[first]
            series, target = begun.series and begun.series._replace(number=number, begins=False), begun.target
        elif is_moved:
            due_ms, target = int(said["deliver-at"] or b""), (said.get("deliver-to") or b"").decode()
        self.records.append(
            replace(
                before,
                offset=self.end,
                headers=record.headers,
                timestamp_ms=record.timestamp_ms,
                due_us=due_ms * 1_000,
                target=target,
                series=series,
                says=record.value,
                key=record.key,
                named=before.named and Named(before.named.deliver_id),
                moved_by=offset if is_moved else None,
                moved_last=offset if is_moved else before.moved_last,
                asked_ms=before.timestamp_ms if is_asked_for else -1,
            )
        )
        # One offset more, for the marker of the transaction.
        self.end += 2
        return self.end - 2

    def append_unreadable(self, records: int, name: bytes = b"") -> None:
        """Append a batch that no client can read."""
        to_offset = self.end + records
        batch = Produced(self.end, [], 0, 0, "", legible=False, padding=name, unreadable_to=to_offset)
        self.records.append(batch)
        self.end = to_offset

    def read(self, from_offset: int, most: int) -> tuple[list[Produced], int | None]:
        """Return records from an offset on, and the end of the log if it was reached; an unreadable batch is alone."""
        ahead = [record for record in self.records if record.offset >= max(from_offset, self.start)]
        bad = next((at for at, record in enumerate(ahead) if record.unreadable_to is not None), None)
        if bad is not None:
            return ahead[: min(most, bad or 1)], None
        return ahead[:most], self.end if len(ahead) <= most else None


class Left(NamedTuple):
    """A record that has left the partition as it was written, with the offset that it names."""

    offset: int
    topic: str
    record: Record | None = None
    rejection: Rejection | None = None
    attempt: Attempted | None = None

    @property
    def is_refused_at_release(self) -> bool:
        """Says whether the record was accepted, and is rejected because of its target."""
        return self.rejection is not None and any(each in self.rejection.message for each in AT_RELEASE)


class Answer(NamedTuple):
    """The receipt of the control at an offset, as it was written."""

    offset: int
    record: Record


@dataclass(frozen=True)
class Transaction:
    """Records, state and segments that become visible together; ``begun_ms`` is the time of the router's clock.

    ``log_start`` is the beginning of the delay topic then. ``placed`` maps the offset of a record to the offset of the
    one appended because of it; ``state_of`` returns the state once ``placed`` is known.
    """

    begun_ms: int
    left: list[Left]
    state: list[tuple[bytes, bytes | None]]
    snapshots: tuple[tuple[bytes, bytes | None], ...] = ()
    withdrawn: tuple[bytes, ...] = ()
    appended: tuple[tuple[int, Record], ...] = ()
    occurrences: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    answers: tuple[Answer, ...] = ()
    log_start: int = 0
    state_of: Callable[[Mapping[int, int]], list[tuple[bytes, bytes | None]]] | None = None
    placed: Mapping[int, int] = field(default_factory=dict)


class Faults:
    """Faults drawn from the seed; switched off when a run is brought to its end.

    Four are no faults, and stay: ``hurry_chance`` that the evaluation of a control takes long, ``sizes_bytes``, the
    limits of a transaction, the weights of plenty of memory, of none and of a little, and whether a router that loses a
    connection has always committed a moment ago, so that its session with the group lasts.
    """

    commits_are_fresh = False

    hurry_chance = 0.25
    memory_weights: Sequence[int] = (92, 4, 4)
    sizes_bytes: Sequence[int] = (600, 2_000, 1 << 20)

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.crash_chance = rng.choice([0.0, 0.01, 0.05])
        self.abort_chance = rng.choice([0.0, 0.1])
        self.unknown_chance = rng.choice([0.0, 0.1])
        self.repeat_chance = rng.choice([0.0, 0.1])
        self.refuse_chance = rng.choice([0.0, 0.1])
        self.unread_chance = rng.choice([0.0, 0.2])
        self.slow_chance = rng.choice([0.0, 0.5, 0.9])
        self.stale_chance = rng.choice([0.0, 0.3])
        self.meanwhile_chance = rng.choice([0.0, 0.0, 0.05])
        self.lane_chance = LANE_CHANCE
        self.meanwhile: Callable[[], None] = lambda: None

    def stop(self) -> None:
        """Let everything succeed from now on."""
        self.crash_chance = self.abort_chance = self.unknown_chance = self.repeat_chance = 0.0
        self.refuse_chance = self.unread_chance = self.slow_chance = 0.0
        self.stale_chance = self.meanwhile_chance = self.lane_chance = 0.0

    def point(self, after: str, *, rare: bool = False) -> None:
        """Perhaps die after the named effect, or let another router act; a rare effect makes both likelier."""
        factor = RARE_FACTOR if rare else 1
        if self.rng.random() < self.meanwhile_chance * factor:
            self.meanwhile()
        if self.rng.random() < self.crash_chance * factor:
            raise CrashedError(after)


def _places(transaction: Transaction) -> Iterator[Place]:
    """Yield the places that a transaction writes to."""
    yield STATE_PLACE
    for left in transaction.left:
        yield left.topic, 0
    if transaction.appended:
        yield DELAY_PLACE
    if transaction.answers:
        yield RECEIPTS_PLACE
    if transaction.snapshots:
        yield SNAPSHOTS_PLACE
    if transaction.withdrawn:
        yield BACKFILL_PLACE


def _written(transaction: Transaction) -> Iterator[tuple[str, Record | None]]:
    """Yield the records that a broker may refuse, each with its topic."""
    for left in transaction.left:
        yield left.topic, left.record
    for _, record in transaction.appended:
        yield DELAY_TOPIC, record
    for answer in transaction.answers:
        yield RECEIPTS_PLACE[0], answer.record


class Held(NamedTuple):
    """A transactional id and an epoch, by which a producer writes until it is fenced."""

    transactional_id: str
    epoch: int

    @property
    def group(self) -> str:
        """The group of the router: the beginning of the id, as of each lane."""
        return self.transactional_id.partition(".")[0]


class _Astray(NamedTuple):
    """A repeated request to end a transaction of this producer, whose first copy is still on its way."""

    producer: Held
    commits: bool


class Store:
    """Target, rejected, state, snapshots and backfill topics of one partition, for producers of several transactional
    ids and for jobs.
    """

    def __init__(self, faults: Faults, brokers: Brokers | None = None, refusing: Refusing | None = None) -> None:
        self._faults = faults
        self.refusing = refusing or Refusing()
        self.brokers = brokers or Brokers(faults.rng, forget=False)
        self._in_doubt: dict[str, Transaction] = {}
        self._astray: _Astray | None = None
        self._epochs: dict[str, int] = {}
        self.state: list[tuple[bytes, bytes | None]] = []
        # The state without the loss of any record.
        self._whole: dict[bytes, bytes] = {}
        self.committed: list[Transaction] = []
        self.snapshots: dict[int, tuple[bytes, bytes | None]] = {}
        self.snapshots_end = 0
        self.was_damaged = False
        self.backfill: dict[bytes, tuple[int, bytes]] = {}
        self._backfill_end = 0
        self.log = DelayLog()
        self.placed: dict[int, int] = {}
        """The offset that the last transaction has appended because of each offset."""

    def begin(self, state: list[tuple[bytes, bytes | None]]) -> None:
        """Write the state as ``init`` does."""
        self.state += state
        _follow(self._whole, state)

    def stage(self, key: bytes, value: bytes) -> None:
        """Write a record of the backfill topic, as a job does."""
        self.backfill[key] = self._backfill_end, value
        self._backfill_end += 1

    def withdraw(self, key: bytes) -> None:
        """Remove a record of the backfill topic."""
        self.backfill.pop(key, None)

    def append_segment(self, key: bytes, value: bytes) -> int:
        """Write a segment as a job does, without a fence, and return its offset."""
        self.snapshots[self.snapshots_end] = key, value
        self.snapshots_end += 1
        return self.snapshots_end - 1

    def present(self, transactional_id: str) -> Held:
        """Return the producer of an id that is not fenced."""
        return Held(transactional_id, self._epochs.get(transactional_id, 0))

    def fence(self, transactional_id: str) -> int:
        """Shut the other producers of an id out, and settle a commit whose answer was lost, one way or the other."""
        epoch = self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
        settled = self._in_doubt.pop(transactional_id, None)
        if settled is not None and self._faults.rng.random() < 0.5:
            self._apply(settled)
        return epoch

    def commit(self, producer: Held, transaction: Transaction) -> list[int]:
        """Make a transaction visible as a whole, or raise the reason; return the offsets of its segments.

        A transaction may be torn if the client had to repeat the request that ended the previous one: see
        ``has_lost_connection``.
        """
        if producer != self.present(producer.transactional_id):
            raise FencedError
        if self.has_lost_connection(producer) and self._faults.rng.random() < 0.5:
            return self._torn(transaction)
        if not self.brokers.written(_places(transaction), producer.group):
            raise UnknownOutcomeError
        if any(self.refusing.refuses(topic, record) for topic, record in _written(transaction)):
            self._abort(producer, transaction)
            raise RecordRefusedError
        # A copy of the key of series is too small to be refused.
        has_segments = any(value is not None and key != COPY_KEY for key, value in transaction.snapshots)
        if has_segments and self._faults.rng.random() < self._faults.refuse_chance:
            self._abort(producer, transaction)
            raise SegmentsRefusedError
        # A producer must give up a transaction in doubt; the next producer finds it committed or aborted.
        luck = self._faults.rng.random()
        if luck < self._faults.abort_chance:
            self._abort(producer, transaction)
            raise AbortedError
        if luck < self._faults.abort_chance + self._faults.unknown_chance:
            self._in_doubt[producer.transactional_id] = transaction
            raise UnknownOutcomeError
        self._perhaps_repeated(producer, commits=True)
        self._end(producer, transaction, commits=True)
        return self._apply(transaction)

    def has_lost_connection(self, producer: Held) -> bool:
        """Say whether this producer has lost a connection, and repeated a request that it sent over it."""
        return self._astray is not None and self._astray.producer == producer

    def _abort(self, producer: Held, transaction: Transaction) -> None:
        if transaction.appended:
            # The appended records stay as a gap, and so does the marker.
            self.log.end += len(transaction.appended) + 1
        self._perhaps_repeated(producer, commits=False)
        self._end(producer, transaction, commits=False)

    def _end(self, producer: Held, transaction: Transaction, *, commits: bool) -> None:
        """Write the markers; if one is lost, the producer has lost its connection to that broker, too."""
        if self.brokers.ended(_places(transaction), producer.group):
            self._astray = _Astray(producer, commits)

    def _perhaps_repeated(self, producer: Held, *, commits: bool) -> None:
        if self._faults.rng.random() < self._faults.repeat_chance:
            self._astray = _Astray(producer, commits)

    def _torn(self, transaction: Transaction) -> list[int]:
        """Let the first copy arrive when half of this transaction is written, so that it ends that half alone."""
        assert self._astray is not None
        commits, self._astray = self._astray.commits, None
        cut = self._faults.rng.randint(0, len(transaction.left))
        records = replace(transaction, left=transaction.left[:cut], state=[], snapshots=(), withdrawn=(), appended=())
        records = replace(records, state_of=None)
        others = replace(transaction, left=transaction.left[cut:])
        if not commits:
            # The producer never hears that the first half of its commit was aborted.
            return self._apply(others)
        # The broker knows no transaction to which the other half could belong.
        self._apply(self._faults.rng.choice([records, others]))
        raise UnknownOutcomeError

    def compact(self) -> None:
        """Keep the last value of every key at its offset, and remove tombstones."""
        self.state = list(_valued(self.state).items())
        last = {key: offset for offset, (key, _) in self.snapshots.items()}
        self.snapshots = {offset: self.snapshots[offset] for offset in last.values() if self.snapshots[offset][1]}

    def lose_beginning(self) -> bool:
        """Remove the beginning of the state, except the last record, and say whether something was lost."""
        kept = [place for place, (key, _) in enumerate(self.state) if not key.startswith(CLAIM_PREFIX)]
        if kept:
            del self.state[: self._faults.rng.choice(kept)]
        return not self.has_whole_state

    @property
    def has_whole_state(self) -> bool:
        """Says whether the state still has every record that was ever written and not removed by an owner.

        Claims do not count, since the progress names the group of the last owner.
        """
        whole, left = self._whole, _valued(self.state)
        return all(whole.get(key) == left.get(key) for key in {*whole, *left} if not key.startswith(CLAIM_PREFIX))

    def restore_state(self) -> None:
        """Put back the lost records, as an operator with a copy of the topic does."""
        self.state = list(self._whole.items())

    @property
    def has_series_key(self) -> bool:
        """Says whether the last copy in the snapshots topic has the key of the state."""
        copies = [value for _, (key, value) in sorted(self.snapshots.items()) if key == COPY_KEY]
        return bool(copies[-1:]) and decode_copy(copies[-1] or b"") == series_key_of(self._whole[PROGRESS_KEY])

    def damage(self) -> bool:
        """Flip a bit of a segment, or lose it, and say whether there was one."""
        offsets = [offset for offset, (_, value) in self.snapshots.items() if value is not None]
        if not offsets:
            return False
        # Pages of ids are few and seldom read, so they are picked half of the time.
        pages = [offset for offset in offsets if (self.snapshots[offset][1] or b"")[4:5] == bytes([Kind.IDS])]
        offset = self._faults.rng.choice(pages if pages and self._faults.rng.random() < 0.5 else offsets)
        key, value = self.snapshots.pop(offset)
        if value is not None and self._faults.rng.random() < 0.5:
            place = self._faults.rng.randrange(len(value))
            self.snapshots[offset] = key, value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]
        self.was_damaged = True
        return True

    def trim(self, from_offset: int) -> None:
        """Remove the segments below an offset."""
        self.snapshots = {offset: kept for offset, kept in self.snapshots.items() if offset >= from_offset}

    def _apply(self, transaction: Transaction) -> list[int]:
        if transaction.appended:
            self.placed = {offset: self.log.append_next(offset, record) for offset, record in transaction.appended}
            transaction = replace(transaction, placed=self.placed)
        if transaction.state_of is not None:
            transaction = replace(transaction, state=transaction.state_of(self.placed))
        self.committed.append(transaction)
        self.state += transaction.state
        _follow(self._whole, transaction.state)
        for key in transaction.withdrawn:
            self.withdraw(key)
        offsets = list(range(self.snapshots_end, self.snapshots_end + len(transaction.snapshots)))
        self.snapshots.update(zip(offsets, transaction.snapshots, strict=True))
        self.snapshots_end += len(transaction.snapshots)
        return offsets


def _valued(records: Iterable[tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    """Return the last value of each key that has one, in the order of the writes."""
    latest: dict[bytes, bytes] = {}
    _follow(latest, records)
    return latest


def _follow(latest: dict[bytes, bytes], records: Iterable[tuple[bytes, bytes | None]]) -> None:
    for key, value in records:
        latest.pop(key, None)
        if value is not None:
            latest[key] = value

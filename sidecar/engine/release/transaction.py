"""Values of a transaction: its content, its outcome, and the requests in it.

::

    plan ──► screen ──► Transaction ──► commit ──► Outcome ──► confirm ──► tell the owners of requests

A transaction contains records that leave, and *requests*. Every request has an owner. Unless the ownership of the
partition ends before, the owner hears exactly one of three things: the request was committed, the brokers refuse it, or
it was left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, NoReturn, Protocol

from index.named.receipts import Receipt
from index.named.transit import InTransit, lots_of
from index.partition.adopting import Adoption
from index.partition.batch import Installs
from index.pending.pending import Entry
from index.pending.progress import Position, Progress
from index.protocol.recurring import Occurrence
from index.protocol.schedule import Rejection
from index.rules.rule_history import RuleHistory
from sidecar.engine.payload.records import Appended, Refused, Scheduled
from snapshots.segments.manifest import encode_manifest, manifest_key
from snapshots.state.inventory import NOTHING_STORED, Inventory
from snapshots.state.lane import LaneName
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress
from snapshots.state.transit import encode_transit

MAX_BATCH_BYTES: Final = 48 * 1_048_576
"""The most payload in one transaction, even with fast brokers: the records in it are in memory twice."""

SETTLE_S: Final = 0.004
"""The pause after a commit. The commit returns before the coordinator has written its markers, and a transaction that
begins meanwhile is told to come back in 20 ms (notes on Kafka, 2.8). The pause makes that rare: p99 is 10 ms instead of
25 ms."""

KeyValue = tuple[bytes, bytes | None]
"""A record of a compacted topic, or a tombstone."""


class RequestOwner(Protocol):
    """The owner of requests; it hears the fate of each request before the next transaction is planned."""

    def committed(self, request: "Request", offsets: Sequence[int], /) -> None:
        """Note that the request was committed; ``offsets`` are the offsets of its segments."""

    def refused(self, request: "Request", why: str, /) -> None:
        """Note that the brokers refuse the request.

        The transaction was committed without it, or was given up if the request cannot be left out.
        """

    def left_out(self, request: "Request", /) -> None:
        """Note that the request was left out: it had no room, or another part was refused. It may be made again."""


@dataclass(frozen=True, slots=True)
class Request:
    """Part of the next transaction that an owner asks for, beside the records that leave.

    It has segments to write or a manifest to install, and keys to remove. A manifest is never in the transaction of a
    segment that it names, since the offset of a segment is only known after the commit. ``removed`` are keys of the
    state topic, ``reclaimed`` keys of the snapshots topic, and ``withdrawn`` keys of the backfill topic. ``history``
    has all rule epochs from this transaction on, if the request starts one.
    """

    owner: RequestOwner
    segments: tuple[tuple[bytes, bytes], ...] = ()
    installs: Installs | None = None
    removed: tuple[bytes, ...] = ()
    reclaimed: tuple[bytes, ...] = ()
    withdrawn: tuple[bytes, ...] = ()
    history: RuleHistory | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes of the segments; all other parts are small."""
        return sum(len(value) for _, value in self.segments)

    @property
    def can_be_left_out(self) -> bool:
        """Says whether the transaction is right without the request: the progress does not name it."""
        return self.installs is None and self.history is None

    @property
    def may_be_refused(self) -> bool:
        """Says whether brokers may refuse the request: large records, or records for a topic that may be denied."""
        return bool(self.segments or self.withdrawn)


class Timestamps(NamedTuple):
    """The mode of the timestamps of released records, and the modes of targets with their own."""

    mode: str = "release"
    own_modes: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Transaction:
    """All records that become visible together.

    ``appended`` records go to the delay partition, and its owner reads them like records of a producer. ``occurrences``
    has the occurrences of recurring schedules among the records that leave, by offset. ``receipts`` are the answers to
    controls.

    ``state`` are the records for the state topic beside progress. ``inventory`` describes the content of the state
    after the transaction, beside progress and rules. ``lane`` may write the state from then on; None: the producer of
    the partition's own transactional id.
    """

    released: Sequence[Entry[Scheduled]]
    rejected: Sequence[tuple[int, Refused]]
    progress: Progress
    inventory: Inventory = NOTHING_STORED
    state: Sequence[KeyValue] = ()
    requests: Sequence[Request] = ()
    timestamps: Timestamps = field(default_factory=Timestamps)
    appended: Sequence[Appended] = ()
    occurrences: Mapping[int, Occurrence] = field(default_factory=dict)
    receipts: Sequence[Receipt] = ()
    lane: LaneName | None = None

    def notes(self, placed: Mapping[int, int]) -> list[InTransit]:
        """Return the places of the appended records; ``placed`` has them by the offsets they follow."""
        return [InTransit(Position(each.due_ms, placed[each.offset]), each.id_hash) for each in self.appended]

    def state_records(self, delay_topic_id: str, notes: Sequence[InTransit] = ()) -> list[KeyValue]:
        """Return the records for the state topic; progress is last, since it describes the others."""
        progress = encode_progress(self.progress, delay_topic_id, self.inventory, self.lane)
        lots = lots_of(self.progress.number, notes).items()
        return [*self.state, *(encode_transit(*lot) for lot in lots), (PROGRESS_KEY, progress)]


def state_of(requests: Sequence[Request]) -> list[KeyValue]:
    """Return the records that these requests write to the state topic."""
    records: list[KeyValue] = []
    for request in requests:
        if request.history is not None:
            records.append((RULES_KEY, encode_history(request.history)))
        # No record of an adopted range may be pending.
        if request.installs is not None and (manifest := request.installs.manifest).segments:
            records.append((manifest_key(manifest.bucket_id), encode_manifest(manifest)))
        records += [(key, None) for key in request.removed]
    return records


class Outcome(Enum):
    """The outcome of a transaction."""

    COMMITTED = "it is visible as a whole"
    REFUSED = "a broker refuses something in it, and it was aborted"
    ABORTED = "it was aborted cleanly, and no broker refused anything in it"
    UNKNOWN = "it may be visible, or become so, or never be"
    FENCED = "somebody else owns the partition"


@dataclass(frozen=True, slots=True)
class Result:
    """An outcome, and the error of a transaction that is not committed.

    ``offsets`` has the offsets of the segments of each request. ``notes`` are the places of the appended records.
    """

    outcome: Outcome
    offsets: Sequence[Sequence[int]] = ()
    error: Exception | None = None
    why: str = ""
    notes: Sequence[InTransit] = ()

    def give_up(self) -> NoReturn:
        """Raise the error of a transaction that is not committed."""
        assert self.error is not None, f"{self.outcome} without an error"
        raise self.error


@dataclass(frozen=True, slots=True)
class Refusals:
    """The records of a transaction that a broker refuses.

    * ``refused``: offsets of refused records, each with the reason.
    * ``doubted``: topics that have refused a batch with an undecided record.
    * ``undecided``: offsets of records for such topics that the search had no time for.
    * ``unfollowed``: offsets of records whose appended record the delay topic refuses, each with the reason.
    * ``unanswered``: offsets of controls whose receipt the receipts topic refuses.
    """

    refused: Mapping[int, Rejection]
    doubted: frozenset[str] = frozenset()
    undecided: frozenset[int] = frozenset()
    unfollowed: Mapping[int, Rejection] = field(default_factory=dict)
    unanswered: frozenset[int] = frozenset()


class Transactions(Protocol):
    """The port to Kafka through which a partition writes."""

    def commit(self, transaction: Transaction) -> Result:
        """Write and commit a transaction; after any outcome no transaction is open that could still take records."""

    def find_refused(self, transaction: Transaction, within_s: float) -> Refusals:
        """Find out which records of a transaction a broker refuses, without making any of them visible.

        Every error ends the ownership of the partition.
        """


def adoption_in(requests: Sequence[Request]) -> Request | None:
    """Return the request that adopts a bucket; None if none does."""
    return next((each for each in requests if isinstance(each.installs, Adoption)), None)

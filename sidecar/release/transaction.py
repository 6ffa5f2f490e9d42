"""One transaction of a delay partition as a value, and what may become of it.

::

    plan ──► screen ──► Transaction ──► commit ──► Outcome ──► confirm ──► tell whoever asked for something in it

Everything in a transaction that is not a record that leaves is a *request*, and every request has an owner, who hears
exactly one of three things: that it was committed, that the brokers refuse it, or that it was left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NoReturn, Protocol

from index.adopting import Adoption
from index.batch import Installs
from index.pending import Entry
from index.progress import Position, Progress
from index.receipts import Receipt
from index.recurring import Occurrence
from index.rule_history import RuleHistory
from index.schedule import Rejection
from index.transit import InTransit, lots_of
from sidecar.payload.records import Appended, Refused, Scheduled
from snapshots.inventory import NOTHING_STORED, Inventory
from snapshots.manifest import encode_manifest, manifest_key
from snapshots.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress
from snapshots.transit import encode_transit

KeyValue = tuple[bytes, bytes | None]
"""A record of a compacted topic, or a tombstone."""


class Owner(Protocol):
    """Who has asked for something in a transaction; it is told what became of that before the next one is planned."""

    def committed(self, request: "Request", offsets: Sequence[int], /) -> None:
        """It was committed; ``offsets`` are those of its segments."""

    def refused(self, request: "Request", why: str, /) -> None:
        """The brokers refuse it, and the transaction was committed without it, or was given up where it cannot be."""

    def left_out(self, request: "Request", /) -> None:
        """There was no room for it, or something else in the transaction was refused: ask for it again."""


@dataclass(frozen=True, slots=True)
class Request:
    """What an owner wants to be in the next transaction beside the records that leave.

    Segments to write, or a manifest to install, and keys to remove. A manifest is never in the transaction of a segment
    it names, since the offset of a segment is only known once it is committed. ``removed`` are keys of the state topic,
    ``reclaimed`` of the snapshots topic, ``withdrawn`` of the backfill topic. ``history`` has all rule epochs from
    this transaction on, where it starts one.
    """

    owner: Owner
    segments: tuple[tuple[bytes, bytes], ...] = ()
    installs: Installs | None = None
    removed: tuple[bytes, ...] = ()
    reclaimed: tuple[bytes, ...] = ()
    withdrawn: tuple[bytes, ...] = ()
    history: RuleHistory | None = None

    @property
    def size_bytes(self) -> int:
        """What the segments cost in a transaction; anything else is small."""
        return sum(len(value) for _, value in self.segments)

    @property
    def can_be_left_out(self) -> bool:
        """Whether the rest of the transaction is right without it: the progress says nothing of it."""
        return self.installs is None and self.history is None

    @property
    def may_be_refused(self) -> bool:
        """Whether brokers refuse such things: large records, and what goes to a topic that may not be written to."""
        return bool(self.segments or self.withdrawn)


class Timestamps(NamedTuple):
    """What timestamps released records get: a mode, and those of targets that have their own."""

    mode: str = "release"
    own_modes: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Transaction:
    """All that becomes visible together.

    ``appended`` comes back to whoever owns the partition then, as if a producer had written it. ``occurrences`` are
    the records that leave, by offset, of recurring schedules. ``receipts`` are the answers to controls.

    ``state`` is what it writes to the state topic beside progress, ``inventory`` what the state holds after that beside
    progress and rules.
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

    @property
    def noted(self) -> list[Appended]:
        """What is appended that has an id."""
        return [each for each in self.appended if each.id_hash]

    def notes(self, placed: Mapping[int, int]) -> list[InTransit]:
        """Where that lies, once it is written: ``placed`` has the offset of each, by that of what it follows."""
        return [InTransit(Position(each.due_ms, placed[each.offset]), each.id_hash) for each in self.noted]

    def state_records(self, delay_topic_id: str, notes: Sequence[InTransit] = ()) -> list[KeyValue]:
        """What it writes to the state topic; progress last, since that says what else there is."""
        progress = encode_progress(self.progress, delay_topic_id, self.inventory)
        lots = lots_of(self.progress.number, notes).items()
        return [*self.state, *(encode_transit(*lot) for lot in lots), (PROGRESS_KEY, progress)]


def state_of(requests: Sequence[Request]) -> list[KeyValue]:
    """What these requests write to the state topic."""
    records: list[KeyValue] = []
    for request in requests:
        if request.history is not None:
            records.append((RULES_KEY, encode_history(request.history)))
        # Of an adopted range nothing may be pending.
        if request.installs is not None and (manifest := request.installs.manifest).segments:
            records.append((manifest_key(manifest.bucket_id), encode_manifest(manifest)))
        records += [(key, None) for key in request.removed]
    return records


class Outcome(Enum):
    """What became of a transaction."""

    COMMITTED = "it is visible as a whole"
    REFUSED = "a broker refuses something in it, and it was aborted"
    ABORTED = "it was aborted cleanly, and nothing is said against what was in it"
    UNKNOWN = "it may be visible, or become so, or never be"
    FENCED = "somebody else owns the partition"


@dataclass(frozen=True, slots=True)
class Result:
    """An outcome; ``offsets`` are those of the segments of each request, and ``error`` says why it is not committed.

    ``notes`` tell where what was appended lies that has an id.
    """

    outcome: Outcome
    offsets: Sequence[Sequence[int]] = ()
    error: Exception | None = None
    why: str = ""
    notes: Sequence[InTransit] = ()

    def give_up(self) -> NoReturn:
        """Raise why it is not committed."""
        assert self.error is not None, f"{self.outcome} without an error"
        raise self.error


@dataclass(frozen=True, slots=True)
class Refusals:
    """What was found out about the records of a transaction that a broker refuses.

    * ``refused``: offsets of records that it refuses, and the reason.
    * ``doubted``: topics that have refused batches of which not every record is decided.
    * ``undecided``: offsets of records to such topics that there was not time enough for.
    * ``unfollowed``: offsets of records whose next occurrence the delay topic refuses, and the reason.
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
        """Write and commit it; whatever the outcome, no transaction is open afterwards that could still be added to."""

    def find_refused(self, transaction: Transaction, within_s: float) -> Refusals:
        """Find out which records of a transaction a broker refuses, without making any of them visible.

        What it raises ends the ownership of the partition.
        """


def adoption_in(requests: Sequence[Request]) -> Request | None:
    """The request that adopts a bucket, if there is one."""
    return next((each for each in requests if isinstance(each.installs, Adoption)), None)

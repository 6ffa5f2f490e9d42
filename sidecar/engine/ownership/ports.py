"""The ports of an owned partition and of its loop: their only way to Kafka, to the process and to the time.

The process implements them with clients (:mod:`sidecar.process.host.kafka_host`), the simulation with a modelled
cluster. The code that decides and orders uses these ports only: it has no client, no thread and no clock of its own,
and it never sleeps.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Protocol

from index.pending.run import Runs
from index.protocol.record import Record
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.buckets.upkeep import Upkeep
from sidecar.engine.context import PartitionContext
from sidecar.engine.intake.intake import IdPlaces, Intake
from sidecar.engine.ownership.adopting import StagedView
from sidecar.engine.ownership.lanes import SharedLane
from sidecar.engine.ownership.origin import Origin
from sidecar.engine.ownership.takeover import Standing
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import Payload
from sidecar.engine.ports import Budget, Directory, Pool, Records
from sidecar.engine.release.aside import Doubts
from sidecar.engine.release.expiry import Expiry
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.rates import RateLimits, TargetLimit
from sidecar.engine.release.transaction import Transactions
from snapshots.segments.codec import SegmentCodec


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of one delay topic; ``topic`` is its configuration with policies applied.

    ``timestamps`` are the modes of targets with a mode of their own. ``gated`` has the targets that are paused or have
    a rate. ``why_paused`` tells people of the pauses, with policy, reason and end. While ``is_doubtful``, the rules in
    the state outrank ``rules``: they are the last rules that are known to have held.
    """

    topic: DelayTopicConfig
    rules: Rules
    tick_ms: int
    expiry: Expiry
    timestamps: Mapping[str, str]
    paused: bool
    drained: bool
    gated: Mapping[str, TargetLimit] = field(default_factory=dict)
    is_doubtful: bool = False
    why_paused: str = ""


class SettingsSource(Protocol):
    """The port through which an owned partition reads the settings of its delay topic."""

    def version(self, now_ms: int) -> object:
        """Return a token of the settings: a new object whenever they may have changed."""

    def read(self) -> TopicSettings:
        """Return the settings of the last version asked for; raise ValueError if they cannot be reconciled."""


class StagedRecords(StagedView, Protocol):
    """The records that jobs have staged for one partition."""

    def has_looked(self) -> bool:
        """Say whether all staged records are known by now, or cannot be known."""


class Host(Protocol):
    """The surroundings of an owned partition, made for one ownership; the maker closes them."""

    @property
    def context(self) -> PartitionContext:
        """The name of the partition, and the parts that its code needs everywhere."""

    @property
    def budget(self) -> Budget:
        """The memory for payload, shared with other partitions."""

    @property
    def payload_memory_bytes(self) -> int:
        """The size of the memory for payload."""

    @property
    def rates(self) -> RateLimits:
        """The rate limits of targets, shared with other partitions."""

    @property
    def codec(self) -> SegmentCodec:
        """The codec of segments."""

    @property
    def runs(self) -> Runs[Payload]:
        """The runs that keep records until they are sealed."""

    @property
    def pool(self) -> Pool:
        """The pool that reads and encodes segments."""

    @property
    def directory(self) -> Directory:
        """The directory of target topics."""

    @property
    def settings(self) -> SettingsSource:
        """The settings of the delay topic by policies and configuration."""

    @property
    def staged(self) -> StagedRecords:
        """The records that jobs have staged."""

    @property
    def compresses(self) -> bool:
        """Says whether batches are compressed, so that the size of a record does not tell the size of its batch."""

    def zone_of(self, name: str) -> tzinfo:
        """Return the rules of a time zone by its IANA name; raise ValueError if no such zone exists."""

    def look_again(self, doubts: Doubts) -> "Future[Doubts]":
        """Have the cluster asked which of these places are still in doubt."""

    def new_series_key(self) -> bytes:
        """Return bytes that cannot be guessed."""

    def standing(self) -> Standing:
        """Return the port for questions about the partition; only after all other writers are fenced."""

    def transactions(self, origin: Origin) -> Transactions:
        """Return the port that writes transactions by the partition's own transactional id."""

    @property
    def lane(self) -> SharedLane | None:
        """The lane that the partition has joined; None if it keeps the producer of its own id."""

    def read_on(self, ledger: PartitionLedger, history: RuleHistory, until_offset: int, places: IdPlaces) -> Intake:
        """Begin to read the delay partition at the end of the index; index no record from ``until_offset`` on.

        Raise ClusterError if the cluster does not answer.
        """

    @property
    def reader(self) -> Records:
        """The reader of single records of the delay topic or of a segment; used by the worker only."""

    def read_again(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Return the records of the delay partition at ascending offsets; None for a record that is gone."""

    def upkeep(self, ledger: PartitionLedger, gate: Gate) -> Upkeep:
        """Return the upkeep of the partition: trimming, counting and retention."""


class ServedHost(Host, Protocol):
    """The surroundings of an owned partition, for the loop that serves it."""

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the partition's own topics, by name; known after the take-over."""

    @property
    def is_apart(self) -> bool:
        """Says whether the partition should leave its lane, because it holds up the others."""

    def fence(self, stopping: Callable[[], bool]) -> None:
        """Shut all other writers of the partition out; end soon with an error once ``stopping`` says so."""

    def serve_client(self) -> None:
        """Let the producer hand over its reports; raise ConnectionLostError if it must be thrown away."""

    def close(self) -> None:
        """End the use of the surroundings, also after a failed fence."""


class HostingProcess(Protocol):
    """The process of a serving loop, and through it the group, the policies and the cluster."""

    def is_stopping(self) -> bool:
        """Say whether the loop should end, because the group takes the partition away or the process ends."""

    def is_drained(self) -> bool:
        """Say whether policies stop the delay topic from being served."""

    def still_ours(self) -> bool:
        """Ask the group whether this process has the partition; raise ClusterError if the group does not answer."""

    def host(self) -> ServedHost:
        """Make the surroundings of one ownership; the loop closes them."""

    def errors(self) -> AbstractContextManager[None]:
        """Raise the errors of a client as ClusterErrors within this context."""

    def doubt_topics(self) -> None:
        """Have the topics of the partition looked at soon: brokers have refused a request."""

    def why_slow(self, now_s: float) -> str:
        """Name the quota that slows the writes of the partition; return an empty text where there is none."""

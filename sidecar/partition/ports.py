"""The ports of an owned partition: all through which it reaches Kafka, its process and the time.

The process implements them with clients (:mod:`sidecar.partition.kafka_host`), the simulation with a modelled cluster.
What decides and orders knows of nothing else: it has no client, no thread, no clock of its own and never sleeps.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from datetime import tzinfo
from typing import Protocol

from index.record import Record
from index.rule_history import RuleHistory
from index.run import Runs
from sidecar.backfill.adopting import StagedView
from sidecar.buckets.upkeep import Upkeep
from sidecar.context import PartitionContext
from sidecar.doubts.aside import Doubts
from sidecar.intake.intake import Intake, Places
from sidecar.partition.origin import Origin
from sidecar.partition.takeover import Standing
from sidecar.payload.ledger import PartitionLedger
from sidecar.payload.records import Payload
from sidecar.policies.settings import SettingsSource
from sidecar.ports import Budget, Directory, Pool, Records
from sidecar.release.gate import Gate
from sidecar.release.rates import RateLimits
from sidecar.release.transaction import Transactions
from snapshots.codec import SegmentCodec


class Staged(StagedView, Protocol):
    """What jobs have staged for one partition, and whether all of it is known."""

    def may_hold(self) -> bool:
        """Whether there may be something, so that it is worth waiting until all of it is known."""

    def has_looked(self) -> bool:
        """Whether all of it is known by now, or cannot be."""


class Host(Protocol):
    """Where a partition is owned; made for one ownership, and closed by whoever has made it."""

    @property
    def context(self) -> PartitionContext:
        """Which partition it is."""

    @property
    def budget(self) -> Budget:
        """Memory for payload, shared with other partitions."""

    @property
    def payload_memory_bytes(self) -> int:
        """How much of it there is altogether."""

    @property
    def rates(self) -> RateLimits:
        """Rates of targets, shared with other partitions."""

    @property
    def codec(self) -> SegmentCodec:
        """What encodes and decodes segments."""

    @property
    def runs(self) -> Runs[Payload]:
        """How records are kept that wait to be sealed."""

    @property
    def pool(self) -> Pool:
        """Where segments are read and encoded."""

    @property
    def directory(self) -> Directory:
        """What is known of targets."""

    @property
    def settings(self) -> SettingsSource:
        """What policies and configuration say of the delay topic."""

    @property
    def staged(self) -> Staged:
        """What jobs have staged."""

    @property
    def compresses(self) -> bool:
        """Whether what is written is compressed, so that the size of a record does not tell that of its batch."""

    def zone_of(self, name: str) -> tzinfo:
        """Return the rules of a time zone by its IANA name; ValueError when there is no such zone."""

    def look_again(self, doubts: Doubts) -> "Future[Doubts]":
        """Have the cluster asked which of these places are still in doubt."""

    def new_series_key(self) -> bytes:
        """Bytes that nobody can guess."""

    def standing(self) -> Standing:
        """To ask how the partition stands; only once nobody else can write for it."""

    def transactions(self, origin: Origin) -> Transactions:
        """To write with."""

    def read_on(self, ledger: PartitionLedger, history: RuleHistory, until_offset: int, places: Places) -> Intake:
        """Begin to read the delay partition where the ledger is; nothing is indexed at or beyond ``until_offset``."""

    @property
    def reader(self) -> Records:
        """To read single records with, of the delay topic or of a segment; used by the worker only."""

    def read_again(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Records of the delay partition at ascending offsets; None for one that is gone."""

    def upkeep(self, ledger: PartitionLedger, gate: Gate) -> Upkeep:
        """What goes on beside releasing."""

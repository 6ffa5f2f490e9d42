"""The origin of an owner of a delay partition: its state at the start, and the first transaction and log lines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyroaring import FrozenBitMap64

from index.buckets.bucket import Manifest
from index.named.mask import Mask
from index.named.queries import Query
from index.named.transit import InTransit, Lot
from index.partition.batch import Installation
from index.pending.progress import Progress
from index.rules.rule_history import RuleHistory
from sidecar.engine.context import PartitionContext
from sidecar.engine.release.transaction import Outcome, Request, Transaction, Transactions, state_of
from snapshots.state.claim import claim_key
from snapshots.state.held import HeldEntry
from snapshots.state.inventory import InventoryKeeper
from snapshots.state.lane import LaneName
from snapshots.state.mask import mask_records
from snapshots.state.state import StoredState
from snapshots.state.transit import encode_transit


@dataclass(frozen=True, slots=True)
class Origin:
    """The state at the start of an ownership: progress, rule epochs, and the id of the delay topic.

    * ``lost``: the number of offsets at or beyond S that retention has removed. Only the first one was certainly
      pending.
    * ``is_stored``: the state topic contains this state already.
    * ``restored``: keys and offsets of the staged records that the state was made from, if a job has made it anew.
    * ``changed``: the names of the differences between the rules and the rules of the last owner.
    * ``stale``: keys of the state that the first transaction removes.
    * ``lane``: the lane that may write the state, unless it has ended.
    * ``group``: the group of the owner, which has a claim in the state. ``fenced`` are other groups, which the owner
      has fenced; the first transaction removes their claims.
    * ``state_starts_at``: the first offset of the state partition, if the state has no inventory, else 0. Compaction
      leaves it at 0. Beyond 0, records were removed that may have been part of the state.
    """

    progress: Progress
    history: RuleHistory
    delay_topic_id: str
    lost: int
    is_stored: bool
    buckets: tuple[Manifest, ...] = ()
    held: tuple[HeldEntry, ...] = ()
    mask: FrozenBitMap64 = field(default_factory=FrozenBitMap64)
    transit: Mapping[Lot, Sequence[InTransit]] = field(default_factory=dict)
    restored: tuple[tuple[bytes, int], ...] = ()
    changed: tuple[str, ...] = ()
    stale: tuple[bytes, ...] = ()
    state_starts_at: int = 0
    lane: LaneName | None = None
    queries: tuple[Query, ...] = ()
    group: str = ""
    fenced: tuple[str, ...] = ()

    def claimed_by(self, group: str, fenced: Iterable[str]) -> "Origin":
        """Return the origin of an owner of this group, which has fenced other groups."""
        fenced = tuple(sorted(fenced))
        return replace(self, group=group, fenced=fenced, is_stored=self.is_stored and not fenced)

    def with_series_key(self, new: Callable[[], bytes]) -> "Origin":
        """Return the origin with a key that signs the next occurrences of recurring schedules; new if it has none."""
        if self.progress.series_key:
            return self
        return replace(self, progress=self.progress._replace(series_key=new()), is_stored=False)

    @property
    def made_anew(self) -> list[tuple[bytes, bytes | None]]:
        """The mask and the notes of transit of a restored state, as records of the state topic; else empty."""
        mask = Mask()
        mask.add(self.mask)
        return [*mask_records(mask), *(encode_transit(*lot) for lot in self.transit.items())] if self.restored else []

    @property
    def as_state(self) -> StoredState:
        """The origin in the form of the state topic."""
        return StoredState(
            self.progress,
            self.delay_topic_id,
            self.history,
            self.buckets,
            self.held,
            mask=self.mask,
            transit={lot: tuple(notes) for lot, notes in self.transit.items()},
            queries=self.queries,
        )


def inventory_at(origin: Origin) -> InventoryKeeper:
    """Return the inventory of the state at the start of an ownership."""
    return InventoryKeeper(origin.buckets, origin.held, origin.mask, origin.transit, origin.queries, origin.group)


class _Nobody:
    """The owner of the requests of a take-over."""

    def committed(self, _request: Request, _offsets: Sequence[int]) -> None:
        """Do nothing."""

    def refused(self, _request: Request, _why: str) -> None:
        """Do nothing."""

    def left_out(self, _request: Request) -> None:
        """Do nothing."""


def write_origin(transactions: Transactions, origin: Origin, lane: LaneName | None) -> None:
    """Commit the origin to the state topic, and the lane that writes from then on.

    Raise the error of the port if it is not committed.
    """
    nobody = _Nobody()
    requests = [Request(nobody, history=origin.history)]
    if origin.restored:
        requests += [Request(nobody, installs=Installation(manifest)) for manifest in origin.buckets]
        withdrawn = tuple(key for key, _ in origin.restored)
        requests.append(Request(nobody, removed=origin.stale, withdrawn=withdrawn))
    requests += [Request(nobody, removed=(claim_key(group),)) for group in origin.fenced]
    # The transaction leaves the buckets, held records and other keys of the origin as they are.
    inventory = inventory_at(origin).current
    state = [*state_of(requests), *origin.made_anew]
    transaction = Transaction((), (), origin.progress, inventory, state, requests, lane=lane)
    result = transactions.commit(transaction)
    if result.outcome is not Outcome.COMMITTED:
        result.give_up()


def tell_of_origin(context: PartitionContext, origin: Origin) -> None:
    """Log and count records that were removed too early; log a truncated state, fenced groups and changed rules."""
    topic, log = context.topic, context.log
    if origin.fenced:
        log.warning(
            "other_group_fenced",
            groups=list(origin.fenced),
            note="once for each partition after a change of router.group_id; otherwise two groups of routers serve"
            f" {topic.name}: stop one of them",
        )
    if origin.lost:
        context.metrics.lost.labels(topic.name).inc(origin.lost)
        log.error(
            "records_lost",
            at_most=origin.lost,
            needed_from=origin.progress.sealed_to - origin.lost,
            log_starts_at=origin.progress.sealed_to,
            remedy=f"raise the retention of {topic.name} above its longest delay",
        )
    if origin.state_starts_at:
        why = (
            "0.1.0 wrote it last, and kept no list of buckets and held records: some may have been removed with the"
            " beginning; to find lost records: python -m spark_backfill audit"
        )
        log.error("state_truncated", state=topic.state, starts_at=origin.state_starts_at, why=why)
    if origin.changed:
        log.warning(
            "rules_differ",
            by=list(origin.changed),
            from_offset=origin.history.last.from_offset,
            note="once after a change of configuration, policies or version; where it is told again and again,"
            f" routers of group {context.group_id} are configured differently",
        )

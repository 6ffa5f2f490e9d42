"""Where an owner of a delay partition begins, and what is written and told of that before anything else."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyroaring import FrozenBitMap64

from index.batch import Installation
from index.bucket import Manifest
from index.mask import Mask
from index.progress import Progress
from index.rule_history import RuleHistory
from index.transit import InTransit, Lot
from sidecar.context import PartitionContext
from sidecar.release.transaction import Outcome, Request, Transaction, Transactions, state_of
from snapshots.held import HeldEntry
from snapshots.inventory import InventoryKeeper
from snapshots.mask import mask_records
from snapshots.state import StoredState
from snapshots.transit import encode_transit


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an owner begins: progress, which rules decide from where, and the delay topic all that is about.

    ``lost`` counts the offsets at or beyond S that retention has already removed: not each of them was pending, but the
    first one was. ``is_stored`` tells whether the state topic says all this already. ``restored`` are keys and offsets
    of what a job has staged, where the state was made of that. ``changed`` names by what the rules differ from those
    that the last owner went by. ``stale`` are keys of the state that are to be removed with the first transaction.
    ``state_starts_at`` is the first offset of the state partition where the state does not say what belongs to it:
    compaction leaves it at 0, and beyond 0 something was removed that may have been part of it.
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

    def with_series_key(self, new: Callable[[], bytes]) -> "Origin":
        """The same with a key that signs the next occurrences of recurring schedules: a new one where there is none."""
        if self.progress.series_key:
            return self
        return replace(self, progress=self.progress._replace(series_key=new()), is_stored=False)

    @property
    def made_anew(self) -> list[tuple[bytes, bytes | None]]:
        """Give the mask and the notes of transit of a restored state, as records of the state topic."""
        mask = Mask()
        mask.add(self.mask)
        return [*mask_records(mask), *(encode_transit(*lot) for lot in self.transit.items())] if self.restored else []

    @property
    def as_state(self) -> StoredState:
        """The same as the state topic will say it."""
        return StoredState(
            self.progress,
            self.delay_topic_id,
            self.history,
            self.buckets,
            self.held,
            mask=self.mask,
            transit={lot: tuple(notes) for lot, notes in self.transit.items()},
        )


class _Nobody:
    """Owns what a take-over itself wants to be written."""

    def committed(self, _request: Request, _offsets: Sequence[int]) -> None:
        """Nothing is to be done."""

    def refused(self, _request: Request, _why: str) -> None:
        """Nothing is to be done."""

    def left_out(self, _request: Request) -> None:
        """Nothing is to be done."""


def write_origin(transactions: Transactions, origin: Origin) -> None:
    """Commit what the state topic does not say yet; an error of the port unless that went through."""
    nobody = _Nobody()
    requests = [Request(nobody, history=origin.history)]
    if origin.restored:
        requests += [Request(nobody, installs=Installation(manifest)) for manifest in origin.buckets]
        withdrawn = tuple(key for key, _ in origin.restored)
        requests.append(Request(nobody, removed=origin.stale, withdrawn=withdrawn))
    # It changes nothing of what buckets, held records and other keys there are by the origin.
    inventory = InventoryKeeper(origin.buckets, origin.held, origin.mask, origin.transit).current
    state = [*state_of(requests), *origin.made_anew]
    transaction = Transaction((), (), origin.progress, inventory, state, requests)
    result = transactions.commit(transaction)
    if result.outcome is not Outcome.COMMITTED:
        result.give_up()


def tell_of_origin(context: PartitionContext, origin: Origin) -> None:
    """Log and count what a person must know of it: records that were removed too early, state that was."""
    topic, log = context.topic, context.log
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
            "0.1.0 wrote it last, which did not say what belongs to it: buckets and held records may be gone"
            " with what was removed; python -m spark_backfill audit tells"
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

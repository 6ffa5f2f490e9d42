"""Adopts the buckets that jobs have staged, between the releases of one partition (:mod:`index.partition.adopting`).

::

                 staged, and C lies in its range        nothing unsealed, nothing owed          committed
    (nothing) ─────────────────────────────────► PAUSED ───────────────────────────────► ADOPT ───────────► (nothing)
        ▲             intake pauses, the mutable bucket is sealed │
        └──────────────────── not within 30 s: intake goes on ────┘

A bucket that can no longer be adopted is discarded; a bucket that must not be adopted is refused. Both are withdrawn
from the backfill topic, so that each is reported once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from index.errors import FormatError
from index.partition.adopting import Adoption, adopted
from index.rules.rule_history import RuleHistory
from sidecar import failpoints
from sidecar.engine.context import PartitionContext
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.release.transaction import Request
from snapshots.state.staged import StagedBucket

WITHDRAWN_AT_ONCE = 100

Handled = tuple[bytes, int]
"""Key and offset of a record of the backfill topic."""


@dataclass(frozen=True, slots=True)
class BackfillRecord:
    """A record of the backfill topic: the bucket it stages, or the reason why the record cannot be trusted."""

    offset: int
    staged: StagedBucket | FormatError


class StagedView(Protocol):
    """The buckets that jobs have staged for one partition."""

    def waiting(self) -> Mapping[bytes, BackfillRecord]:
        """Return the staged records by key; another object whenever they have changed."""

    def hold_off(self) -> None:
        """Have the next owner wait before it adopts again, since the brokers refuse the writes of an adoption."""

    def not_before_s(self) -> float:
        """Return the running time from which on a bucket may be adopted."""


class Adopting:
    """Belongs to one owned partition, and owns its requests; used by the worker only.

    The rules in force must have decided an adopted bucket. Records that are ``handled`` may still be among the
    ``staged`` ones for a moment. ``on_adopted`` is called when the index is behind the range of a bucket.
    """

    def __init__(
        self,
        context: PartitionContext,
        ledger: PartitionLedger,
        history: RuleHistory,
        delay_topic_id: str,
        staged: StagedView,
        on_adopted: Callable[[], None],
        handled: Iterable[Handled] = (),
    ) -> None:
        self._ledger = ledger
        self._history = history
        self._delay_topic_id = delay_topic_id
        self._staged = staged
        self._on_adopted = on_adopted
        self._backfills = context.metrics.backfills
        self._topic = context.name
        self._handled = set(handled)
        self._seen: Mapping[bytes, BackfillRecord] = {}
        self._open: dict[bytes, StagedBucket] = {}
        self._useless: dict[bytes, str] = {}
        self._paused_s: float | None = None
        self._not_before_s = staged.not_before_s()
        self._clock = context.clock
        self._limits = context.limits
        self._log = context.log

    @property
    def pauses(self) -> bool:
        """True while intake waits and everything is sealed, because a bucket is about to be adopted."""
        return self._paused_s is not None

    def turn(self) -> None:
        """Look at the staged buckets, and begin to wait for the seal or give up; cheap while nothing has changed."""
        waiting = self._staged.waiting()
        if waiting is not self._seen:
            self._seen = waiting
            self._sort_out(waiting)
        if not self._open:
            self._paused_s = None
            return
        self._pass_over()
        now_s = self._clock.running_s()
        if not self._fitting() or self._ledger.replaying:
            self._paused_s = None
        elif self._paused_s is None and now_s >= self._not_before_s:
            self._paused_s = now_s
        elif self._paused_s is not None and now_s > self._paused_s + self._limits.adopt_within_s:
            self._wait_a_while("what is in memory could not be sealed in time")

    def request(self, bucket_id: int) -> Request | None:
        """Return the request for the next transaction: one bucket to adopt, or records to withdraw."""
        adoption = self._adoption(bucket_id) if self._ledger.may_adopt and self.pauses else None
        if adoption is None and self._useless and self._clock.running_s() >= self._not_before_s:
            return Request(self, withdrawn=tuple(self._useless)[:WITHDRAWN_AT_ONCE])
        return adoption

    def committed(self, request: Request, _offsets: Sequence[int]) -> None:
        """Note that a bucket was adopted, or that useless records were withdrawn."""
        for key in request.withdrawn:
            self._handled.add((key, self._seen[key].offset))
            self._useless.pop(key, None)
            staged = self._open.pop(key, None)
            if staged is not None and isinstance(request.installs, Adoption):
                failpoints.passing("adopt.after")
                self._adopted(staged, request.installs)
        if isinstance(request.installs, Adoption):
            self._pass_over()
            self._on_adopted()

    def refused(self, request: Request, why: str) -> None:
        """Wait a while; a refused adoption also ends this ownership, so the next owner is told to wait."""
        if request.installs is not None:
            self._staged.hold_off()
        self._wait_a_while(why)

    def left_out(self, _request: Request) -> None:
        """Do nothing: the next call of ``request`` asks for it again."""

    def enter(self, history: RuleHistory) -> None:
        """Use other rules from now on: buckets that earlier rules have decided must not be adopted any more."""
        self._history = history
        self._sort_out(self._seen)

    def _wait_a_while(self, why: str) -> None:
        self._paused_s = None
        self._not_before_s = self._clock.running_s() + self._limits.adopt_again_s
        self._log.warning("backfill_waits", why=why, again_in_s=self._limits.adopt_again_s)

    def _sort_out(self, waiting: Mapping[bytes, BackfillRecord]) -> None:
        self._handled &= {(key, each.offset) for key, each in waiting.items()}
        self._open.clear()
        self._useless.clear()
        for key, each in waiting.items():
            if (key, each.offset) in self._handled:
                continue
            why, remedy = self._refusal(each.staged)
            if why:
                self._useless[key] = "refused"
                self._backfills.labels(self._topic, "refused").inc()
                self._log.error("backfill_refused", key=key.decode(errors="backslashreplace"), why=why, remedy=remedy)
            elif isinstance(each.staged, StagedBucket):
                self._open[key] = each.staged
        self._pass_over()

    def _pass_over(self) -> None:
        """Discard the buckets that C has passed, since they can never be adopted."""
        for key, staged in list(self._open.items()):
            if staged.manifest.to_offset <= self._ledger.indexed_to:
                del self._open[key]
                self._useless[key] = "discarded"
                self._backfills.labels(self._topic, "discarded").inc()
                self._log.info("backfill_discarded", **_named(staged), cursor=self._ledger.indexed_to)

    def _refusal(self, staged: StagedBucket | FormatError) -> tuple[str, str]:
        """Return the reason why a bucket must not be adopted, and the remedy; two empty texts when it may be."""
        if isinstance(staged, FormatError):
            return str(staged), "run the job again"
        if staged.delay_topic_id != self._delay_topic_id:
            return (
                f"made from a topic with id {staged.delay_topic_id}, and {self._topic} has {self._delay_topic_id}",
                "it was created again since; run the job again",
            )
        if staged.restores:
            return "made to restore a lost state, and the partition has one", "use the command that builds an index"
        rules = self._history.in_force
        if staged.rules != rules:
            return (
                f"its records were decided by other rules: {staged.rules}; here {rules} are in force",
                "run the job again with the configuration of the router, and without policies that change these rules",
            )
        return "", ""

    def _fitting(self) -> list[tuple[bytes, StagedBucket]]:
        if self._ledger.indexed_to < self._history.last.from_offset:
            # After a take-over the first records are read again, and the rules of before decide them.
            return []
        return fitting(list(self._open.items()), self._ledger.indexed_to)

    def _adoption(self, bucket_id: int) -> Request | None:
        self._pass_over()
        chosen = self._fitting()
        if not chosen:
            return None
        key, staged = chosen[0]
        failpoints.passing("adopt.before")
        made = adopted(staged.manifest, bucket_id, self._ledger.indexed_to)
        return Request(self, installs=Adoption(made), withdrawn=(key,))

    def _adopted(self, staged: StagedBucket, adoption: Adoption) -> None:
        manifest = adoption.manifest
        self._backfills.labels(self._topic, "adopted").inc()
        behind = manifest.bucket_id in dict(self._ledger.committed.catching_up)
        self._log.info(
            "backfill_adopted",
            **_named(staged),
            bucket=manifest.bucket_id,
            masked_below=manifest.from_offset,
            entries=manifest.entries,
            catching_up=behind,
        )


def _named(staged: StagedBucket) -> dict[str, object]:
    return {"job": staged.job, "from_offset": staged.manifest.from_offset, "to_offset": staged.manifest.to_offset}


def fitting(waiting: Sequence[tuple[bytes, StagedBucket]], cursor: int) -> list[tuple[bytes, StagedBucket]]:
    """Return the buckets that an owner at ``cursor`` could adopt, the one that goes furthest first."""
    found = [each for each in waiting if each[1].manifest.from_offset <= cursor < each[1].manifest.to_offset]
    return sorted(found, key=lambda each: -each[1].manifest.to_offset)

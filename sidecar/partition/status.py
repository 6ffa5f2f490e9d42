"""What each partition is doing, for probes, metrics and people.

A worker publishes a snapshot of itself now and then; readers take the last one, so a scrape never waits for a release.

::

                 assigned                     broker answers            state read, owner fenced
    (start) ───────────────► FENCING ──────────────────► RESTORING ──────────────────► REPLAYING
                                ▲                            │                             │ [S, C) indexed
                 after a pause  │                            │ must not start              ▼
                             WAITING ◄──── any error ────────┼───────────────────────── ACTIVE
                                ▲                            ▼                             │
                                └──── after a while ───── REFUSED            revoked ──► STOPPED

A policy turns ACTIVE into PAUSED and back, or into DRAINED, from which the partition is taken over again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum

from index.bucket import TargetCounts
from index.progress import Position
from index.survey import BOUNDS_MS
from sidecar.clock import Clock

BOUND_NAMES = (*(str(bound_ms // 1_000) for bound_ms in BOUNDS_MS), "+Inf")
"""Values of the label ``within``, in seconds."""

SILENT_AFTER_S = 5.0
"""An active worker reports several times a second, less often while it writes a large batch; a commit that the brokers
do not answer holds it for as long as its transaction may take."""


class PartitionState(StrEnum):
    """Where a partition stands between assignment and release."""

    FENCING = "fencing"
    RESTORING = "restoring"
    REPLAYING = "replaying"
    ACTIVE = "active"
    PAUSED = "paused"
    DRAINED = "drained"
    WAITING = "waiting"
    REFUSED = "refused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition at one moment.

    ``by_due`` counts what is pending in the ranges of :data:`index.survey.BOUNDS_MS`, ``spread`` in those of
    SPREAD_BOUNDS_MS, ``by_target`` the same by target; all are a few seconds old at most.
    ``lateness`` are counts as by :func:`sidecar.lateness.released_within`, of late.
    ``watermark`` is None before the first release.
    ``held_since_ms`` is when the first of what is held was due, ``held_by_target`` counts it by what it waits for.
    ``needed_from`` is the first offset the delay topic must keep, written at ``needed_since_ms``; ``retention_ms`` is
    how long the topic keeps a record, -1 for ever, None where that may not be asked. ``hidden_s`` is for how long
    an open transaction has hidden what lies behind it in the delay topic, 0 where none does. ``in_doubt`` is the number
    of places that must not be written to (:mod:`sidecar.doubts`). ``masked`` are cancelled
    records that a restart, or a bucket, could still bring back.
    """

    topic: str
    partition: int
    state: PartitionState
    why: str = ""
    pending: int = 0
    next_due_ms: int | None = None
    furthest_due_ms: int | None = None
    lag: int = 0
    cursor: int = 0
    sealed_to: int = 0
    buckets: int = 0
    held: int = 0
    held_since_ms: int | None = None
    held_by_target: Mapping[str, int] = field(default_factory=dict)
    snapshot_bytes: int = 0
    by_due: tuple[int, ...] = ()
    spread: tuple[int, ...] = ()
    lateness: tuple[int, ...] = ()
    by_target: TargetCounts = ()
    watermark: Position | None = None
    needed_from: int | None = None
    needed_since_ms: int | None = None
    retention_ms: int | None = None
    hidden_s: float = 0.0
    in_doubt: int = 0
    masked: int = 0

    def beside(self, trouble: str) -> "PartitionStatus":
        """The same, with what is wrong with its topics."""
        return replace(self, why="; ".join(filter(None, (self.why, trouble)))) if trouble else self

    @property
    def ready(self) -> bool:
        """Whether the partition does what it is to do: it is recovered and released from, or stopped by a policy."""
        return self.state in (PartitionState.ACTIVE, PartitionState.PAUSED, PartitionState.DRAINED)

    @property
    def is_served(self) -> bool:
        """Whether a worker has it, so that its numbers are those of now."""
        return self.state in (PartitionState.ACTIVE, PartitionState.PAUSED)

    def as_json(self) -> dict[str, object]:
        """For the body of `/readyz`."""
        return {
            "state": self.state.value,
            "why": self.why,
            "pending": self.pending,
            "next_due_ms": self.next_due_ms,
            "furthest_due_ms": self.furthest_due_ms,
            "lag": self.lag,
            "cursor": self.cursor,
            "sealed_to": self.sealed_to,
            "buckets": self.buckets,
            "held": self.held,
            "held_since_ms": self.held_since_ms,
            "needed_from": self.needed_from,
            "needed_since_ms": self.needed_since_ms,
            "retention_ms": self.retention_ms,
        }


class ToldStatus:
    """What the worker of a partition told last, and when; read from any thread."""

    def __init__(self, clock: Clock, status: PartitionStatus) -> None:
        self._clock = clock
        self._told = status, clock.running_s()
        self._is_asking = False

    @property
    def last(self) -> PartitionStatus:
        """What it told last."""
        return self._told[0]

    def tell(self, status: PartitionStatus) -> None:
        """The worker tells where it stands."""
        self._told = status, self._clock.running_s()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The worker asks the brokers, and waits for their answers."""
        self._is_asking = True
        try:
            yield
        finally:
            self._is_asking = False

    def now(self) -> PartitionStatus:
        """Return the last status, or WAITING when the worker has been silent for long, and what holds it."""
        status, told_s = self._told
        silent_s = self._clock.running_s() - told_s
        if not status.ready or silent_s < SILENT_AFTER_S:
            return status
        if self._is_asking:
            why = f"the brokers have not answered for {silent_s:.0f} s"
        else:
            why = f"the router has been at work for {silent_s:.0f} s: it waits for no broker, and goes on by itself"
        return replace(status, state=PartitionState.WAITING, why=why)

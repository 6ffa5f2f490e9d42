"""What each partition is doing, for probes, metrics and people.

A worker publishes a snapshot of itself now and then; readers take the last one, so a scrape never waits for a release.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

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
    """State of a partition from its assignment on.

    The worker (:mod:`sidecar.partition.worker`) tells each::

                     assigned                broker answers             state read, owner fenced
        (start) ───────────────► FENCING ──────────────► RESTORING ──────────────────► REPLAYING
                                    ▲                        │                             │ [S, C) indexed
                     after a pause  │                        │ must not start              ▼
                                 WAITING ◄─── any error ─────┼───────────────────────── ACTIVE ◄─► PAUSED
                                    ▲                        ▼                             │
                                    └─── after a while ─── REFUSED           drained ──► DRAINED ──► FENCING

    Any state may be followed by STOPPED: the partition was given back. ``FOLLOWED_BY`` has each transition.
    """

    FENCING = "fencing"
    RESTORING = "restoring"
    REPLAYING = "replaying"
    ACTIVE = "active"
    PAUSED = "paused"
    DRAINED = "drained"
    WAITING = "waiting"
    REFUSED = "refused"
    STOPPED = "stopped"


_FAILED: Final = frozenset({PartitionState.WAITING, PartitionState.REFUSED, PartitionState.STOPPED})
_AGAIN: Final = frozenset({PartitionState.FENCING, PartitionState.DRAINED})
"""How a take-over begins anew: after a lost connection, or when the topics are others, it does so without a pause."""

FOLLOWED_BY: Final[Mapping[PartitionState, frozenset[PartitionState]]] = {
    PartitionState.FENCING: _FAILED | {PartitionState.RESTORING, PartitionState.DRAINED},
    PartitionState.RESTORING: _FAILED
    | _AGAIN
    | {PartitionState.REPLAYING, PartitionState.ACTIVE, PartitionState.PAUSED},
    PartitionState.REPLAYING: _FAILED | _AGAIN | {PartitionState.ACTIVE, PartitionState.PAUSED},
    PartitionState.ACTIVE: _FAILED | _AGAIN | {PartitionState.PAUSED},
    PartitionState.PAUSED: _FAILED | _AGAIN | {PartitionState.ACTIVE},
    PartitionState.DRAINED: frozenset({PartitionState.FENCING, PartitionState.WAITING, PartitionState.STOPPED}),
    PartitionState.WAITING: frozenset({PartitionState.FENCING, PartitionState.DRAINED, PartitionState.STOPPED}),
    PartitionState.REFUSED: _AGAIN | {PartitionState.WAITING, PartitionState.STOPPED},
    PartitionState.STOPPED: frozenset(),
}
"""States that may come next; a state may always be told again."""

SERVED: Final = frozenset({PartitionState.ACTIVE, PartitionState.PAUSED})
"""A worker has the partition, and its numbers are those of now."""

READY: Final = SERVED | {PartitionState.DRAINED}
"""The partition does what it is to do: it is recovered and released from, or stopped by a policy."""


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
        """Whether the state is one of READY."""
        return self.state in READY

    @property
    def is_served(self) -> bool:
        """Whether the state is one of SERVED."""
        return self.state in SERVED

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

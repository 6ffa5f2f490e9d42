"""The status of each partition, for probes, metrics and people.

A worker publishes its status several times a second. Readers take the last one, so a scrape never waits for a release.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from index.buckets.bucket import TargetCounts
from index.partition.survey import BOUNDS_MS
from index.pending.progress import Position
from sidecar.clock import Clock
from sidecar.engine.ownership.attempts import AttemptCounts

BOUND_NAMES = (*(str(bound_ms // 1_000) for bound_ms in BOUNDS_MS), "+Inf")
"""The values of the label ``within``, in seconds."""

SILENT_AFTER_S = 5.0
"""The silence after which a worker counts as WAITING. An active worker reports several times a second, and less often
while it writes a large batch. A commit without an answer holds it for as long as its transaction may take."""


class PartitionState(StrEnum):
    """The state of a partition from its assignment on.

    The loop (:mod:`sidecar.engine.ownership.serving`) reports each state::

                     assigned                broker answers             state read, owner fenced
        (start) ───────────────► FENCING ──────────────► RESTORING ──────────────────► REPLAYING
                                    ▲                        │                             │ [S, C) indexed
                     after a pause  │                        │ must not start              ▼
                                 WAITING ◄─── any error ─────┼───────────────────────── ACTIVE ◄─► PAUSED
                                    ▲                        ▼                             │
                                    └─── after a while ─── REFUSED           drained ──► DRAINED ──► FENCING

    STOPPED may follow any state: the partition was given back. ``FOLLOWED_BY`` has each transition.
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
"""The states of a new take-over; it begins without a pause after a lost connection or a change of topics."""

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
"""The states that may follow each state; a worker may always report the same state again."""

SERVED: Final = frozenset({PartitionState.ACTIVE, PartitionState.PAUSED})
"""The states in which a worker serves the partition and reports current numbers."""

READY: Final = SERVED | {PartitionState.DRAINED}
"""The states that the operator wants: the partition is served, or a policy has stopped it."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The status of one partition at one moment.

    * ``by_due``: pending records in the ranges of :data:`index.partition.survey.BOUNDS_MS`; ``spread``: in the ranges
      of SPREAD_BOUNDS_MS; ``by_target``: the same by target. All counts are a few seconds old at most.
    * ``released``: the records that were released since the take-over.
    * ``lateness``: recent counts as of :func:`sidecar.lateness.released_within`; ``lateness_ever``: the same since the
      take-over.
    * ``attempts``: None where the delay topic counts none.
    * ``watermark``: None before the first release.
    * ``held_since_ms``: the earliest due time of the held records; ``held_by_target`` counts them by target.
    * ``needed_from``: the first offset that the delay topic must keep, written at ``needed_since_ms``.
    * ``retention_ms``: the retention of the delay topic; -1 for ever, None if the router may not ask for it.
    * ``hidden_s``: the time for which an open transaction has hidden the records behind it in the delay topic; else 0.
    * ``in_doubt``: the number of places that must not be written to (:mod:`sidecar.kafka.doubts`).
    * ``masked``: the number of cancelled records that a restart or a bucket could still bring back.
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
    released: int = 0
    by_due: tuple[int, ...] = ()
    spread: tuple[int, ...] = ()
    lateness: tuple[int, ...] = ()
    lateness_ever: tuple[int, ...] = ()
    by_target: TargetCounts = ()
    attempts: AttemptCounts | None = None
    watermark: Position | None = None
    needed_from: int | None = None
    needed_since_ms: int | None = None
    retention_ms: int | None = None
    hidden_s: float = 0.0
    in_doubt: int = 0
    masked: int = 0

    def beside(self, trouble: str) -> "PartitionStatus":
        """Return the status with the trouble of its topics added to ``why``."""
        return replace(self, why="; ".join(filter(None, (self.why, trouble)))) if trouble else self

    @property
    def ready(self) -> bool:
        """Says whether the state is one of READY."""
        return self.state in READY

    @property
    def is_served(self) -> bool:
        """Says whether the state is one of SERVED."""
        return self.state in SERVED

    def as_json(self) -> dict[str, object]:
        """Return the part of the status that the body of `/readyz` shows."""
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
    """The last status that the worker of a partition reported, and its time; any thread may read it."""

    def __init__(self, clock: Clock, status: PartitionStatus) -> None:
        self._clock = clock
        self._told = status, clock.running_s()
        self._is_asking = False

    @property
    def last(self) -> PartitionStatus:
        """The last reported status."""
        return self._told[0]

    def tell(self, status: PartitionStatus) -> None:
        """Report a status; called by the worker."""
        self._told = status, self._clock.running_s()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Note that the worker waits for answers of the brokers within this context."""
        self._is_asking = True
        try:
            yield
        finally:
            self._is_asking = False

    def now(self) -> PartitionStatus:
        """Return the last status; WAITING with the cause if a ready worker has been silent for SILENT_AFTER_S."""
        status, told_s = self._told
        silent_s = self._clock.running_s() - told_s
        if not status.ready or silent_s < SILENT_AFTER_S:
            return status
        if self._is_asking:
            why = f"the brokers have not answered for {silent_s:.0f} s"
        else:
            why = f"the router has been at work for {silent_s:.0f} s: it waits for no broker, and goes on by itself"
        return replace(status, state=PartitionState.WAITING, why=why)

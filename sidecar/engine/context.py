"""The value that every part of an owned partition gets: its place, metrics, log, traces, clock and limits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog
from structlog.typing import FilteringBoundLogger

from index.pending.pending import Entry
from sidecar.clock import Clock
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.limits import LIMITS, Limits
from sidecar.engine.payload.records import Scheduled
from sidecar.metrics import Metrics


class Tracing(Protocol):
    """The port through which a partition reports its released records."""

    def released(self, place: tuple[str, int], group_id: str, entries: Sequence[Entry[Scheduled]], now_ms: int) -> None:
        """Take the records that were committed by now; return at once, and never raise."""


class NoTracing:
    """Ignores all released records."""

    def released(self, place: tuple[str, int], group_id: str, entries: Sequence[Entry[Scheduled]], now_ms: int) -> None:
        """Do nothing."""


NO_TRACING: Final = NoTracing()


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """The shared value of all parts of a partition; ``topic`` is the delay topic as configured, without policies."""

    topic: DelayTopicConfig
    partition: int
    group_id: str
    metrics: Metrics
    clock: Clock
    tracing: Tracing = NO_TRACING
    limits: Limits = LIMITS
    log: FilteringBoundLogger = field(init=False)

    def __post_init__(self) -> None:
        log = structlog.get_logger().bind(topic=self.topic.name, partition=self.partition)
        object.__setattr__(self, "log", log)

    @property
    def name(self) -> str:
        """Name of the delay topic, the label of metrics."""
        return self.topic.name

    @property
    def place(self) -> tuple[str, int]:
        """Delay topic and partition."""
        return self.topic.name, self.partition

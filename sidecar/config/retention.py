"""What brokers remove from a delay topic by themselves, and which payload placement that allows."""

from dataclasses import dataclass
from typing import Final

from index.bucket_rules import PlacementRule
from sidecar.config.delay_topic import DelayTopicConfig

FOREVER_MS: Final = -1


@dataclass(frozen=True, slots=True)
class Retention:
    """What brokers remove from a topic by themselves; -1 is never. ``keeps_ms`` None: it may not be described."""

    keeps_ms: int | None
    keeps_bytes: int = -1

    def covers(self, span_ms: int) -> bool:
        """Whether nothing younger than ``span_ms`` is removed by age; 0 stands for a span without limit."""
        if self.keeps_ms is None:
            return False
        return self.keeps_ms < 0 or 0 < span_ms <= self.keeps_ms


def placement_under(topic: DelayTopicConfig, retention: Retention) -> PlacementRule:
    """The placement rule in force: ``auto`` points into the delay topic only where that keeps long enough."""
    if topic.placement != "auto":
        return topic.placement
    return "auto" if retention.covers(topic.longest_delay_ms) and retention.keeps_bytes < 0 else "inline"

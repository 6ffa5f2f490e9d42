"""The retention of a delay topic, and the payload placement that it allows."""

from dataclasses import dataclass
from typing import Final

from index.buckets.bucket_rules import PlacementRule
from sidecar.config.delay_topic import DelayTopicConfig

FOREVER_MS: Final = -1


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits up to which brokers keep the records of a topic; -1 is for ever. ``keeps_ms`` is None if it is unknown."""

    keeps_ms: int | None
    keeps_bytes: int = -1

    def covers(self, span_ms: int) -> bool:
        """Say whether records younger than ``span_ms`` stay; 0 stands for a span without limit."""
        if self.keeps_ms is None:
            return False
        return self.keeps_ms < 0 or 0 < span_ms <= self.keeps_ms


def placement_under(topic: DelayTopicConfig, retention: Retention) -> PlacementRule:
    """Return the placement in force: ``auto`` allows pointers only if the delay topic keeps records long enough."""
    if topic.placement != "auto":
        return topic.placement
    return "auto" if retention.covers(topic.longest_delay_ms) and retention.keeps_bytes < 0 else "inline"

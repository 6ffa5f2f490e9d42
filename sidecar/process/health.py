"""The answers of `/livez` and `/readyz`."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from sidecar.engine.ownership.status import PartitionStatus

MEMBER_SILENT_AFTER_S = 120.0
"""The group member's loop turns every half second, and a revocation may hold it for 20 s; far beyond that it hangs."""


class ProcessHealth:
    """Live while the group member's loop turns; ready once every assigned partition is active."""

    def __init__(self, registry: CollectorRegistry, statuses: Callable[[], list[PartitionStatus]]) -> None:
        self.registry = registry
        self._statuses = statuses
        self._problem = "joining the consumer group"
        self._left_out: dict[str, str] = {}
        self._last_sign_s = time.monotonic()

    def turned(self) -> None:
        """Note that the group member's loop has turned once more."""
        self._last_sign_s = time.monotonic()

    def is_member(self) -> None:
        """Note that the process has joined the group: from now on its partitions decide."""
        self._problem = ""

    def waits_for(self, problem: str) -> None:
        """Note the problem that keeps the whole process from working."""
        self._problem = problem
        self.turned()

    def leave_out(self, topics: dict[str, str]) -> None:
        """Note the configured delay topics that are not served, with the reasons: a ready process must hide nothing."""
        self._left_out = topics

    @property
    def has_left_out(self) -> bool:
        """Says that a configured delay topic is not served."""
        return bool(self._left_out)

    def live(self) -> tuple[bool, dict[str, object]]:
        """Say whether the group member's loop turns; the body tells the seconds since its last turn."""
        silent_s = time.monotonic() - self._last_sign_s
        return silent_s < MEMBER_SILENT_AFTER_S, {"seconds_since_last_sign": round(silent_s, 1)}

    def ready(self) -> tuple[bool, dict[str, object]]:
        """Say whether every assigned partition is recovered and active; the body says which are not, and why."""
        statuses = self._statuses()
        ready = not self._problem and all(status.ready for status in statuses)
        partitions = {f"{status.topic}/{status.partition}": status.as_json() for status in statuses}
        body: dict[str, object] = {"ready": ready, "partitions": partitions}
        if self._left_out:
            body["left_out"] = self._left_out
        if self._problem:
            body["why"] = self._problem
        return ready, body

"""Looks up target topics: the cluster tells which exist and may be written to, and the answer is kept for a while.

A missing target stalls a transaction for seconds and then aborts it (notes on Kafka, 2.10), so targets are looked up
before a transaction begins. The admin client describes the topics. A metadata request of a producer could create them
on a broker with auto-creation.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka.admin import AclOperation, AdminClient, TopicDescription

from index.protocol.schedule import Reason, Rejection
from sidecar.engine.ports import KNOWN_FOR_S, NO_DEMANDS, REFUSED_FOR_S, Demands, Target
from sidecar.kafka.client.admin import Denied, described, visible_settings
from sidecar.kafka.client.errors import cluster_errors

CONFIRM_AFTER_S = 1.0
"""The pause before the cluster is asked again for a missing topic, in seconds. A broker that lags behind does not know
a new topic, and records for that topic would be rejected for good. Other partitions go on meanwhile."""

CONFIRM_NEW_EVERY_S = 30.0
"""The least time between two repeated questions for topics never seen: each such question holds up other records."""

MAX_REMEMBERED = 10_000


class TargetDirectory:
    """Looks up targets for all partitions of a process; ``now_s`` returns seconds that only go forward."""

    def __init__(
        self, admin: AdminClient, now_s: Callable[[], float], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._admin = admin
        self._now_s = now_s
        self._sleep = sleep
        self._seen: set[str] = set()
        self._confirm_new_s = float("-inf")
        self._known: dict[str, Target] = {}
        self._lock = threading.Lock()

    def resolve(self, names: Iterable[str], known_for_s: float = KNOWN_FOR_S) -> dict[str, Target]:
        """Look up several targets; a missing topic may be asked for a second time, after a pause.

        An answer about a good target is valid for ``known_for_s``. Raise ClusterError if the cluster does not answer.
        """
        now_s = self._now_s() + KNOWN_FOR_S - known_for_s
        with self._lock:
            found = {name: target for name in names if (target := self._fresh(name, now_s)) is not None}
        missing = [name for name in names if name not in found]
        if missing:
            described = self._describe(missing, self._now_s())
            doubtful = self._doubtful(described)
            if doubtful:
                self._sleep(CONFIRM_AFTER_S)
                described |= self._describe(doubtful, self._now_s())
            with self._lock:
                if len(self._known) + len(described) > MAX_REMEMBERED:
                    self._known.clear()
                self._known.update(described)
                self._remember(described)
            found.update(described)
        return found

    def forget(self) -> None:
        """Forget all answers, since the brokers have contradicted one: the next look-up asks again."""
        with self._lock:
            self._known.clear()

    def _doubtful(self, described: Mapping[str, Target]) -> list[str]:
        """Return the missing topics to ask for again: topics that were seen before, and now and then all of them."""
        unknown = [name for name, target in described.items() if target.is_unknown]
        with self._lock:
            doubtful = [name for name in unknown if name in self._seen]
            now_s = self._now_s()
            if len(doubtful) < len(unknown) and now_s >= self._confirm_new_s:
                self._confirm_new_s = now_s + CONFIRM_NEW_EVERY_S
                return unknown
        return doubtful

    def _remember(self, described: Mapping[str, Target]) -> None:
        """Note which topics exist; a topic that is confirmed to be gone counts as never seen."""
        gone = {name for name, target in described.items() if target.is_unknown}
        self._seen = (self._seen | described.keys()) - gone
        if len(self._seen) > MAX_REMEMBERED:
            self._seen = set(described) - gone

    def _fresh(self, name: str, now_s: float) -> Target | None:
        target = self._known.get(name)
        return target if target is not None and target.expires_s > now_s else None

    def _describe(self, names: list[str], now_s: float) -> dict[str, Target]:
        with cluster_errors():
            found = described(self._admin, names, include_authorized_operations=True)
        present = [name for name, each in found.items() if each is not None and not isinstance(each, Denied)]
        settings = visible_settings(self._admin, present)
        return {name: _target(name, each, now_s, settings.get(name)) for name, each in found.items()}


def _target(
    name: str, description: TopicDescription | Denied | None, now_s: float, settings: dict[str, str] | None
) -> Target:
    if description is None:
        refusal = Rejection(Reason.TARGET_UNKNOWN, f"Target topic {name} does not exist; create it first")
        return Target(0, refusal, now_s + REFUSED_FOR_S)
    if isinstance(description, Denied):
        refusal = Rejection(Reason.TARGET_DENIED, f"The router may not describe target topic {name}")
        return Target(0, refusal, now_s + REFUSED_FOR_S)
    operations = description.authorized_operations
    if operations and not {AclOperation.WRITE, AclOperation.ALL} & set(operations):
        refusal = Rejection(Reason.TARGET_DENIED, f"The router may not write to target topic {name}")
        return Target(len(description.partitions), refusal, now_s + REFUSED_FOR_S)
    return Target(len(description.partitions), None, now_s + KNOWN_FOR_S, _demands(settings))


def _demands(settings: dict[str, str] | None) -> Demands:
    if settings is None:
        # Most often the router may not describe them. Then trials find the records that the broker refuses.
        return NO_DEMANDS
    policies, most = settings.get("cleanup.policy", ""), settings.get("max.message.bytes", "")
    most_bytes = int(most) if most.isascii() and most.isdigit() else NO_DEMANDS.max_batch_bytes
    return Demands("compact" in policies.split(","), most_bytes)

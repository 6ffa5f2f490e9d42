"""The settings that the status topic should have, and the faults of an existing one.

A report is worthless after a minute. ``compact`` keeps the last report of each router, so that the topic stays small
however often they report, and ``delete`` removes the reports of routers that no longer exist. Segments roll soon,
because the active segment is never cleaned.
"""

from collections.abc import Iterator
from typing import Final

from sidecar.cluster.topics.findings import Finding, counted, ok, warn
from sidecar.cluster.topics.topics import WantedTopic
from sidecar.kafka.client.admin import TopicFacts
from sidecar.kafka.client.commands import alter_command, describe_hint

ROLE: Final = "status topic"
KEPT_MS: Final = 3_600_000
LEAST_KEPT_MS: Final = 120_000
"""Least retention: a reader begins with the reports of the last minute."""

_EITHER: Final = frozenset({"compact", "delete"})
_SETTINGS: Final = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(KEPT_MS),
    "retention.bytes": "-1",
    "segment.bytes": str(16 << 20),
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": "600000",
    # The broker's clock alone tells the age of every report.
    "message.timestamp.type": "LogAppendTime",
    "compression.type": "producer",
}


def wanted_status(name: str, replicas: int) -> WantedTopic:
    """Return the status topic to create, with one partition so that all reports have one order."""
    return WantedTopic(ROLE, name, 1, replicas, _SETTINGS)


def examine(facts: TopicFacts, bootstrap: str) -> Iterator[Finding]:
    """Yield the faults of an existing status topic, or one ``ok``; none of them stops a router."""
    thing, settings = f"{ROLE} {facts.name}", facts.settings
    if settings is None:
        yield warn(thing, "its settings may not be described", describe_hint(facts.name))
        return
    policy = settings.get("cleanup.policy", "delete")
    retention_ms = facts.number("retention.ms", -1)
    problems = []
    if {each.strip() for each in policy.split(",")} != _EITHER:
        problems.append(("cleanup.policy", f"cleanup.policy={policy}: old reports pile up"))
    if not 0 <= retention_ms <= 24 * KEPT_MS:
        problems.append(("retention.ms", f"retention.ms={retention_ms}: reports of routers that are no more stay"))
    elif retention_ms < LEAST_KEPT_MS:
        problems.append(("retention.ms", f"retention.ms={retention_ms}: reports go before they are read"))
    if facts.number("segment.ms", KEPT_MS) > KEPT_MS:
        problems.append(("segment.ms", "segment.ms is over an hour: records in an open segment are never removed"))
    if problems:
        mend = {key: _SETTINGS[key] for key, _ in problems}
        text = "; ".join(message for _, message in problems)
        yield warn(thing, text, alter_command(bootstrap, facts.name, mend))
    else:
        yield ok(thing, f"{counted(facts.partitions, 'partition')}, {policy}")

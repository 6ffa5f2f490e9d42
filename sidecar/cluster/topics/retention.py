"""Checks that the delay topic keeps its records as long as the router needs them, by payload placement.

===========  ==========================================================  ==================================
placement    records that must stay in the delay topic                   retention must exceed
===========  ==========================================================  ==================================
``pointer``  every pending record                                        ``max_delay``, and an outage
``inline``   unsealed records, [S, C), and records that arrive meanwhile  ``seal_age`` and a merge, and an outage
``auto``     as ``pointer`` where that is safe, else as ``inline``       the duration of the chosen placement
===========  ==========================================================  ==================================

With inline placement a record that does not fit into a segment (or was indexed while memory was used up) is still only
in the delay topic. So a topic that accepts records larger than ``segment_bytes`` must keep them for ``max_delay``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.cluster.topics.findings import Finding, error, warn
from sidecar.config.delay_topic import DAY_MS, DelayTopicConfig
from sidecar.config.retention import FOREVER_MS, Retention, placement_under
from sidecar.durations import spoken_duration

RETENTION_MARGIN_MS: Final = 7 * DAY_MS
"""Retention beyond the longest delay: a router that is down over a weekend, and then catches up, must lose nothing."""

RETENTION_SLACK_MS: Final = DAY_MS
"""Margin below which a warning is due."""

SEAL_AND_MERGE_MS: Final = 15 * 60_000
"""A generous limit for sealing, one retry of it and merging together, beyond ``seal_age``."""

DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588
"""The brokers' own default of max.message.bytes."""


UNKNOWN: Final = Retention(None)


def retention_of(settings: Mapping[str, str] | None) -> Retention:
    """Return the effective retention by the settings of a topic, or ``UNKNOWN`` if they may not be described."""
    if settings is None:
        return UNKNOWN
    if "delete" not in settings.get("cleanup.policy", "delete"):
        return Retention(FOREVER_MS)
    return Retention(int(settings.get("retention.ms", FOREVER_MS)), int(settings.get("retention.bytes", -1)))


def wanted_retention_ms(topic: DelayTopicConfig) -> int:
    """Return the retention for a new delay topic: safe for each placement, and for records that fit into no segment."""
    return topic.longest_delay_ms + RETENTION_MARGIN_MS if topic.max_delay_ms else FOREVER_MS


def retention_findings(
    thing: str, topic: DelayTopicConfig, settings: Mapping[str, str], remedies: "Remedies"
) -> Iterator[Finding]:
    """Yield the faults of the retention of a delay topic, with numbers."""
    retention = retention_of(settings)
    keeps_ms = retention.keeps_ms
    if keeps_ms is not None and keeps_ms >= 0:
        keeps = f"retention.ms={keeps_ms} keeps {spoken_duration(keeps_ms)}"
        if topic.placement == "pointer" or placement_under(topic, Retention(keeps_ms)) == "auto":
            yield from _against_max_delay(thing, keeps, topic, keeps_ms, remedies.longer)
        else:
            takes_bytes = int(settings.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES))
            yield from _against_sealing(thing, keeps, topic, keeps_ms, remedies.longer)
            yield from _of_large_records(thing, keeps, topic, keeps_ms, takes_bytes, remedies)
    if retention.keeps_bytes >= 0:
        yield warn(
            thing,
            f"retention.bytes={retention.keeps_bytes} removes records by size, pending ones too",
            remedies.any_size,
        )


@dataclass(frozen=True, slots=True)
class Remedies:
    """Shell commands that mend the faults that the findings report."""

    longer: str
    any_size: str
    smaller_records: str


def _against_max_delay(
    thing: str, keeps: str, topic: DelayTopicConfig, keeps_ms: int, remedy: str
) -> Iterator[Finding]:
    max_delay_ms = topic.longest_delay_ms
    if not max_delay_ms:
        yield warn(thing, f"{keeps}, but max_delay has no limit: longer delays are lost", remedy)
    elif keeps_ms < max_delay_ms:
        yield error(
            thing,
            f"{keeps}, but max_delay is {spoken_duration(max_delay_ms)} and placement is pointer:"
            " records that are pending longer are lost",
            f'{remedy}; or placement = "inline"',
        )
    elif keeps_ms < max_delay_ms + RETENTION_SLACK_MS:
        longest = spoken_duration(max_delay_ms)
        yield warn(thing, f"{keeps} and max_delay is {longest}: little is left for an outage", remedy)


def _against_sealing(thing: str, keeps: str, topic: DelayTopicConfig, keeps_ms: int, remedy: str) -> Iterator[Finding]:
    needed_ms = topic.seal_age_ms + SEAL_AND_MERGE_MS
    if keeps_ms < needed_ms:
        yield warn(
            thing,
            f"{keeps}, but records are needed for {spoken_duration(needed_ms)} (seal_age and merging) until their"
            " payload is in snapshots, and longer in an outage",
            remedy,
        )


def _of_large_records(
    thing: str, keeps: str, topic: DelayTopicConfig, keeps_ms: int, takes_bytes: int, remedies: Remedies
) -> Iterator[Finding]:
    unlimited, longest_ms = not topic.max_delay_ms, topic.longest_delay_ms
    if takes_bytes <= topic.segment_bytes or (not unlimited and keeps_ms >= longest_ms):
        return
    longest = "has no limit" if unlimited else f"is {spoken_duration(longest_ms)}"
    why = " (placement auto keeps payload inline because of that)" if topic.placement == "auto" else ""
    yield warn(
        thing,
        f"{keeps} and max_delay {longest}{why}: records larger than segment_bytes={topic.segment_bytes} fit into no"
        f" segment and are lost when they wait longer than {spoken_duration(keeps_ms)}",
        f"{remedies.longer}; or let nothing larger in: {remedies.smaller_records}",
    )

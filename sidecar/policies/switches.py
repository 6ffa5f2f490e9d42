"""Switches: one table of pause, resume, drain and undrain, for the admin API, its client and the commands.

Each switch sets one key of a policy on or off; the verbs are for people.

* A pause of a delay topic: no record is released any more. Records that come in are indexed and sealed, so memory is
  bounded. Only a late record (its due time is at or before the watermark) holds up the cursor. After 10,000 offsets
  behind the cursor, or a quarter of the memory for payload, the intake waits. The delay topic keeps later records by
  its retention.
* A pause of a target: records for the target are held back, within the bounds of :mod:`sidecar.engine.release.gate`,
  and records for other targets pass. The pause of a delay topic holds for all its targets, under any policy of a
  target.
* The drain of a delay topic, before maintenance: each of its partitions takes no record in any more, commits, and seals
  the records in memory. Then its worker gives it up: no producer, no consumer and no open transaction is left. The next
  owner finds all records in buckets.
"""

from typing import Final, Literal, NamedTuple

from sidecar.config.units import format_instant
from sidecar.policies.policy import ScopeKind

SwitchKey = Literal["paused", "drained"]


class Switch(NamedTuple):
    """A verb that sets ``key`` on or off in the policy of a delay topic, or of a target topic."""

    kind: ScopeKind
    verb: str
    key: SwitchKey
    on: bool
    does: str

    @property
    def needs_confirmation(self) -> bool:
        """Says whether the topic has to be named once more: a slip of the pen would stop all its partitions."""
        return self.key == "drained" and self.on

    @property
    def is_pause(self) -> bool:
        """Says whether the switch begins a pause, which may have an end and a reason."""
        return self.key == "paused" and self.on


_TOPIC, _TARGET = ScopeKind.TOPIC, ScopeKind.TARGET

SWITCHES: Final = (
    Switch(_TOPIC, "pause", "paused", True, "Release nothing from a delay topic; new records are still indexed."),
    Switch(
        _TOPIC,
        "resume",
        "paused",
        False,
        "Release again: records that have become due meanwhile leave at once, in order.",
    ),
    Switch(_TOPIC, "drain", "drained", True, "Seal and give up every partition, before maintenance; until undrain."),
    Switch(_TOPIC, "undrain", "drained", False, "Serve the partitions of a delay topic again."),
    Switch(_TARGET, "pause", "paused", True, "Hold the records of a target topic, from any delay topic."),
    Switch(_TARGET, "resume", "paused", False, "Release the held records of a target topic."),
)


def pause_terms(until_ms: int | None, reason: str) -> dict[str, str]:
    """Return the keys of a policy for the end and the reason of a pause."""
    until = {} if until_ms is None else {"paused_until": format_instant(until_ms)}
    return until | ({"paused_reason": reason} if reason else {})


def switch_of(kind: ScopeKind, key: SwitchKey, *, on: bool) -> Switch:
    """Return the switch of the table; raise KeyError if it has none."""
    return _BY_MEANING[kind, key, on]


_BY_MEANING: Final = {(each.kind, each.key, each.on): each for each in SWITCHES}

"""Selects rejected records, and changes their headers on the way back."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from index.errors import ConfigError
from index.protocol.headers import DELAY_REDRIVEN, OURS, HeaderRole, Headers, lowered
from index.protocol.schedule import Reason
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.operations.rejected.records import RejectedRecord

MOST_REDRIVEN: Final = 3
"""Times that a record is driven again by default; a record that is rejected each time would otherwise circulate."""


@dataclass(frozen=True)
class RejectedSelection:
    """Conditions on the rejected records of one delay topic; an empty condition selects all.

    The times limit the time of the rejection; ``until_ms`` is not included.
    """

    topic: str
    codes: frozenset[str] = frozenset()
    ids: frozenset[bytes] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for a code that does not exist: it would select nothing."""
        for code in sorted(self.codes - {each.value for each in Reason}):
            raise ConfigError(f"{code} is not a code of rejection; there are {', '.join(Reason)}")

    def takes(self, record: RejectedRecord) -> bool:
        """Say whether a record meets every condition."""
        return (
            record.source.topic == self.topic
            and (not self.codes or record.code in self.codes)
            and (not self.ids or record.deliver_id in self.ids)
            and (self.since_ms is None or record.rejected_ms >= self.since_ms)
            and (self.until_ms is None or record.rejected_ms < self.until_ms)
        )


@dataclass(frozen=True)
class HeaderChanges:
    """Headers to drop and to set; case of names does not matter, and a header that is set replaces all of its name."""

    drop: tuple[str, ...] = ()
    put: tuple[tuple[str, bytes], ...] = ()

    def __post_init__(self) -> None:
        """Raise ConfigError for a header that the router writes itself."""
        for name in (*self.drop, *(name for name, _ in self.put)):
            if lowered(name) in OURS:
                raise ConfigError(f"header {name}: the router writes it itself; choose another name")

    def of(self, record: RejectedRecord) -> list[tuple[str, bytes | None]]:
        """Return the headers with which a record goes back."""
        gone = {lowered(name) for name in (*self.drop, *(name for name, _ in self.put))}
        kept: Headers = [header for header in record.headers if lowered(header[0]) not in gone]
        return [*kept, *self.put, (DELAY_REDRIVEN, b"%d" % (record.redriven + 1))]


NO_CHANGES: Final = HeaderChanges()


def id_names(topic: DelayTopicConfig) -> frozenset[str]:
    """Return the headers that name a schedule of this delay topic, in lower case."""
    aliases: Iterable[str] = (
        alias.name for each in topic.aliases for alias in each.expanded() if alias.role is HeaderRole.ID
    )
    return frozenset(map(lowered, ["deliver-id", *aliases]))

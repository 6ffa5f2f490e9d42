"""Which pending schedules are looked for, what is told of each, and where a page goes on."""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from index.errors import ConfigError
from index.progress import BEFORE_ALL, Position
from index.record import Record
from index.schedule import AT_ONCE, Schedule

PLACE: Final = re.compile(r"[0-9]{1,9}/(?:held|log)/[0-9]{1,18}(?:/[0-9]{1,18}(?:/-1/-1|/[0-9]{1,18}/[0-9]{1,18}))?")
"""As ``Place`` writes itself; nothing lies before -1/-1."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Pending schedules of one delay topic; what is left out selects all. Due times are without the end."""

    topic: str
    deliver_id: bytes | None = None
    due_from_ms: int | None = None
    due_to_ms: int | None = None
    target: str = ""
    key: bytes | None = None
    """Of the record that a producer wrote."""

    def takes_due(self, due_ms: int) -> bool:
        """Whether what is due then may be wanted."""
        begins = self.due_from_ms is None or due_ms >= self.due_from_ms
        return begins and (self.due_to_ms is None or due_ms < self.due_to_ms)

    def takes_any(self, first_ms: int, last_ms: int) -> bool:
        """Whether what is due from the first to the last of these times may be wanted."""
        if first_ms == AT_ONCE:
            # Its time is that of the record.
            return True
        ends = self.due_from_ms is not None and last_ms < self.due_from_ms
        return not ends and (self.due_to_ms is None or first_ms < self.due_to_ms)

    def takes(self, schedule: Schedule, record: Record, due_ms: int) -> bool:
        """Whether a schedule that is due then is wanted; ``record`` is the one that made it."""
        return (
            self.takes_due(due_ms)
            and (self.deliver_id is None or schedule.deliver_id == self.deliver_id)
            and (not self.target or self.target in schedule.targets)
            and (self.key is None or record.key == self.key)
        )


class Pending(NamedTuple):
    """One pending schedule: neither value nor header of it, but for its id.

    ``due_ms`` of one that named no time is that of the record. ``series`` is the offset of the first record of the
    recurring schedule that it is an occurrence of.
    """

    due_ms: int
    partition: int
    offset: int
    targets: tuple[str, ...]
    deliver_id: bytes | None
    series: int | None
    key: bytes | None


class Place(NamedTuple):
    """Where a page goes on in a partition: in what is held, or in the log of offsets.

    Where it goes on within a bucket, ``to_offset`` is where that ended, and ``after`` what was looked at last of
    [offset, to_offset).
    """

    partition: int
    is_held: bool = True
    offset: int = 0
    to_offset: int = 0
    after: Position = BEFORE_ALL

    def __str__(self) -> str:
        within = f"/{self.to_offset}/{self.after.due_ms}/{self.after.offset}" if self.to_offset else ""
        return f"{self.partition}/{'held' if self.is_held else 'log'}/{self.offset}{within}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` wrote; ConfigError on anything else.

        >>> Place.parse("3/log/17/99/1700000000000/21").after
        Position(due_ms=1700000000000, offset=21)
        """
        if PLACE.fullmatch(text) is None:
            raise ConfigError(f"{text!r} is no place to go on from: give next_from of the page before")
        partition, part, offset, *within = text.split("/")
        if not within:
            return cls(int(partition), part == "held", int(offset))
        to_offset, due_ms, after = map(int, within)
        return cls(int(partition), part == "held", int(offset), to_offset, Position(due_ms, after))


class Page(NamedTuple):
    """Schedules in the order of their due times; ``next_from`` is where the next page begins, None: there is none."""

    schedules: list[Pending]
    next_from: Place | None

"""The values of a search: the wanted schedules, the found ones, and the place where a page goes on."""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from index.errors import ConfigError
from index.pending.progress import BEFORE_ALL, Position
from index.protocol.record import Record
from index.protocol.recurring import Recurrence
from index.protocol.schedule import AT_ONCE, Attempted, Schedule
from index.protocol.where import CancelWhere

PLACE: Final = re.compile(r"[0-9]{1,9}/(?:held|log)/[0-9]{1,18}(?:/[0-9]{1,18}(?:/-1/-1|/[0-9]{1,18}/[0-9]{1,18}))?")
"""The text of a PagePlace; nothing lies before -1/-1."""


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """A selection of pending schedules of one delay topic; a field that is left out selects all.

    Due times are a half-open range.
    """

    topic: str
    deliver_id: bytes | None = None
    due_from_ms: int | None = None
    due_to_ms: int | None = None
    target: str = ""
    key: bytes | None = None
    """Key of the record that a producer wrote."""
    recurring: bool = False
    """True: only occurrences of recurring schedules."""
    where: CancelWhere | None = None
    """A predicate of a query; it compares the requested due time."""

    def takes_due(self, due_ms: int) -> bool:
        """Say whether a schedule of this due time may be wanted."""
        begins = self.due_from_ms is None or due_ms >= self.due_from_ms
        return begins and (self.due_to_ms is None or due_ms < self.due_to_ms)

    def takes_any(self, first_ms: int, last_ms: int) -> bool:
        """Say whether a schedule that is due between these times may be wanted."""
        if first_ms == AT_ONCE:
            # Its due time is the timestamp of its record.
            return True
        ends = self.due_from_ms is not None and last_ms < self.due_from_ms
        return not ends and (self.due_to_ms is None or first_ms < self.due_to_ms)

    def takes(self, schedule: Schedule, record: Record, due_ms: int) -> bool:
        """Say whether a schedule of this due time is wanted; ``record`` is the record that made it."""
        return (
            self.takes_due(due_ms)
            and (self.deliver_id is None or schedule.deliver_id == self.deliver_id)
            and (not self.target or self.target in schedule.targets)
            and (self.key is None or record.key == self.key)
            and (self.where is None or self.where.matches(schedule, record))
        )


class Pending(NamedTuple):
    """One pending schedule, without value and headers apart from its id.

    ``due_ms`` is the timestamp of the record where a schedule named no time. An occurrence of a recurring schedule has
    in ``series`` the offset of the schedule's first record, and in ``recurrence`` how it recurs. ``attempt`` is there
    where attempts are counted. A spread has added ``shift_ms`` to the requested time.
    """

    due_ms: int
    partition: int
    offset: int
    targets: tuple[str, ...]
    deliver_id: bytes | None
    series: int | None
    key: bytes | None
    attempt: Attempted | None = None
    recurrence: Recurrence | None = None
    shift_ms: int = 0


class PagePlace(NamedTuple):
    """The place in a partition where a page goes on: among the held records, or in the log of offsets.

    Within a bucket, ``to_offset`` is the end of the bucket, and ``after`` the entry of [offset, to_offset) that was
    looked at last.
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
        """Read the text of a place, and raise ConfigError on any other text.

        >>> PagePlace.parse("3/log/17/99/1700000000000/21").after
        Position(due_ms=1700000000000, offset=21)
        """
        if PLACE.fullmatch(text) is None:
            raise ConfigError(f"{text!r} is no place to go on from: give next_from of the page before")
        partition, part, offset, *within = text.split("/")
        if not within:
            return cls(int(partition), part == "held", int(offset))
        to_offset, due_ms, after = map(int, within)
        return cls(int(partition), part == "held", int(offset), to_offset, Position(due_ms, after))


class SchedulePage(NamedTuple):
    """Schedules by due time; ``next_from`` is the place of the next page, None behind the last one."""

    schedules: list[Pending]
    next_from: PagePlace | None

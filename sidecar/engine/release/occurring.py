"""Finds the recurring records of a transaction: series that begin, occurrences that leave, and the next one of each.

An occurrence that leaves is followed by the next one in the same transaction, whether it is released, expired or
refused by its target. So exactly one occurrence of each series is pending at any time. An occurrence that the rules of
its offset reject for its own headers (over the maximum delay, say) ends its series: the next one would fare no better,
and would be written at once, for ever.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Final

from index.named.names import hash_of
from index.named.transit import NO_ID
from index.pending.pending import Entry
from index.protocol.headers import SERIES
from index.protocol.occurrences import (
    check_cron,
    first_match_ms,
    following,
    is_ours,
    missed_from_ms,
    record_of,
    shortest_period_ms,
)
from index.protocol.record import Record
from index.protocol.recurring import (
    CRON,
    UNTIL,
    ZONE,
    Occurrence,
    Recurrence,
    may_recur,
    problem_with,
    recurrence_of,
)
from index.protocol.schedule import Reason, Rejection, Schedule
from index.rules.rules import Rules
from sidecar.engine.payload.records import Appended, Refused, Scheduled

ZoneOf = Callable[[str], tzinfo]
"""Returns the rules of a zone by its name; raises ValueError when there is no such zone."""

FORGED: Final = Rejection(Reason.INVALID_SCHEDULE, f"{SERIES}: this header is written by routers alone")


@dataclass(slots=True)
class Recurring:
    """The recurring records among the records that are to leave, all by offset.

    * ``begun``: first occurrences, of series that begin; the records that begin them are not released.
    * ``beginning``: the records that begin them.
    * ``refused``: records that cannot recur as they say, and occurrences that no router has written.
    * ``occurrences``: the series and the number of each occurrence.
    * ``next``: the records that follow them, where there are any.
    * ``skipped``: how many missed occurrences lie between.
    * ``notes``: due time and hash of the id of each record that follows or is begun.
    """

    begun: dict[int, Record] = field(default_factory=dict)
    beginning: dict[int, Record] = field(default_factory=dict)
    refused: dict[int, Rejection] = field(default_factory=dict)
    occurrences: dict[int, Occurrence] = field(default_factory=dict)
    next: dict[int, Record] = field(default_factory=dict)
    skipped: dict[int, int] = field(default_factory=dict)
    notes: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    def appended(self, leaving: Iterable[int]) -> list[Appended]:
        """Return the records to append to the delay partition when these offsets leave; a record that begins a series
        leaves, too.
        """
        if not self.next and not self.begun:
            return []
        follow = {offset: self.next[offset] for offset in leaving if offset in self.next}
        appended = [*self.begun.items(), *follow.items()]
        return [Appended(offset, record, *self.notes[offset]) for offset, record in appended]

    def skipped_before(self, appended: Iterable[Appended]) -> int:
        """Count the missed occurrences that these appended records skip."""
        return sum(self.skipped.get(each.offset, 0) for each in appended)

    def ended(self, unfollowed: Mapping[int, Rejection]) -> list[tuple[int, Refused]]:
        """Drop the successors of these records; return a rejection for each of them that would have begun a series."""
        rejected = [
            (each, Refused(why, self.beginning[each])) for each, why in unfollowed.items() if each in self.begun
        ]
        for offset in unfollowed:
            self.begun.pop(offset, None)
            self.next.pop(offset, None)
        return rejected


class Series:
    """The recurring schedules of one partition.

    ``key`` signs the occurrences that routers append; it is empty where nothing ever recurred. ``source`` is the text
    in front of an offset that names the partition.
    """

    def __init__(self, key: bytes, source: str, zone_of: ZoneOf) -> None:
        self._key = key
        self._source = source
        self._zone_of = zone_of

    @property
    def may_recur(self) -> bool:
        """True when a record of the partition may belong to a series."""
        return bool(self._key)

    def look(
        self,
        released: Iterable[Entry[Scheduled]],
        rejected: Sequence[tuple[int, Refused]],
        planned: Iterable[Entry[Scheduled]],
        rules_at: Callable[[int], Rules],
        now_ms: int,
    ) -> Recurring:
        """Find the recurring records among the released and the rejected ones.

        Of the rejected records only the ``planned`` ones count, since they were accepted when they were indexed.
        ``rules_at`` gives the rules that decided a record, by its offset.
        """
        found = Recurring()
        for _, offset, (schedule, _, record) in released:
            recurrence = _recurrence(record, rules_at(offset))
            if recurrence is None or record is None:
                continue
            if recurrence.begins:
                after = self._begin(found, offset, record, recurrence, rules_at(offset), now_ms)
            else:
                after = self._leave(found, offset, record, recurrence, schedule, now_ms)
            _note(found, offset, after, schedule)
        refused = dict(rejected)
        for _, offset, payload in planned if refused else ():
            if offset not in refused or not payload.schedule.targets:
                continue
            record = refused[offset].record
            recurrence = _recurrence(record, rules_at(offset))
            if recurrence is not None and not recurrence.begins:
                after = self._leave(found, offset, record, recurrence, payload.schedule, now_ms)
                _note(found, offset, after, payload.schedule)
        return found

    def _leave(
        self, found: Recurring, offset: int, record: Record, recurrence: Recurrence, schedule: Schedule, now_ms: int
    ) -> Occurrence | None:
        """Note an occurrence that leaves and return the next one; a record without a number is the first occurrence."""
        occurrence = recurrence.occurrence or Occurrence(offset, 1, schedule.asked_ms)
        if recurrence.occurrence is not None and not is_ours(record, recurrence, self._key):
            found.refused[offset] = FORGED
            return None
        zone = self._zone(recurrence)
        if isinstance(zone, Rejection):
            # Another version may have accepted a zone or cron that this version does not know.
            found.refused[offset] = zone
            return None
        found.occurrences[offset] = occurrence
        # An occurrence that is due while this one waits for its place in a burst does not count as missed.
        missed_ms = missed_from_ms(record, recurrence)
        follows = following(recurrence, zone, occurrence, missed_ms, now_ms - schedule.shift_ms)
        if follows is None:
            return None
        after = Occurrence(occurrence.first_offset, occurrence.number + 1, follows.due_ms)
        found.next[offset] = record_of(record, after, f"{self._source}{offset}", self._key, now_ms)
        found.skipped[offset] = follows.skipped
        return after

    def _begin(
        self, found: Recurring, offset: int, record: Record, recurrence: Recurrence, rules: Rules, now_ms: int
    ) -> Occurrence | None:
        due_ms = self.first_due_ms(record, recurrence, rules)
        if isinstance(due_ms, Rejection):
            found.refused[offset] = due_ms
            return None
        first = Occurrence(offset, 1, due_ms)
        found.beginning[offset] = record
        source, asked_ms = f"{self._source}{offset}", record.timestamp_ms
        found.begun[offset] = record_of(record, first, source, self._key, now_ms, asked_ms)
        return first

    def first_due_ms(self, record: Record, recurrence: Recurrence, rules: Rules) -> int | Rejection:
        """Return the due time of the first occurrence of the cron series that this record begins, or the reason for
        none.
        """
        cron, zone = recurrence.cron, self._zone(recurrence)
        if isinstance(zone, Rejection):
            return zone
        if (shortest_ms := shortest_period_ms(cron)) < rules.min_period_ms:
            why = f"{shortest_ms} ms apart, and min_period of this delay topic is {rules.min_period_ms} ms"
            return problem_with(CRON, cron, why)
        due_ms = first_match_ms(cron, zone, rules.start_ms(record.headers, record.timestamp_ms))
        if due_ms is None:
            return problem_with(CRON, cron, "there is no such minute")
        if due_ms > recurrence.until_ms:
            return problem_with(UNTIL, str(recurrence.until_ms), f"the first occurrence is due later, at {due_ms}")
        return due_ms

    def _zone(self, recurrence: Recurrence) -> tzinfo | Rejection:
        """Return the rules of the zone of a schedule, once its cron fields are known to be valid."""
        try:
            if recurrence.cron:
                check_cron(recurrence.cron)
        except ValueError as error:
            return problem_with(CRON, recurrence.cron, str(error))
        try:
            return self._zone_of(recurrence.zone)
        except ValueError as error:
            return problem_with(ZONE, recurrence.zone, str(error))


def _note(found: Recurring, offset: int, after: Occurrence | None, schedule: Schedule) -> None:
    if after is not None:
        deliver_id = schedule.deliver_id
        found.notes[offset] = after.due_ms, NO_ID if deliver_id is None else hash_of(deliver_id)


def _recurrence(record: Record | None, rules: Rules) -> Recurrence | None:
    """Return how an accepted record recurs, if it does; the rules of 0.1.0 did not look at such headers."""
    if record is None or rules.are_of_0_1_0 or not may_recur(record.headers):
        return None
    recurrence = recurrence_of(record.headers)
    return None if isinstance(recurrence, Rejection) else recurrence

"""Too late to be released: what is rejected with EXPIRED instead, after downtime or a long pause.

How late a record may be is said by its own ``deliver-expire-after``, else by its targets' policies, else by that of its
delay topic; 0 is no limit, and with several targets the strictest counts, since all of them get the record or none.
Counted is from the due time; for a record without one, from its timestamp.

It is a decision of the moment, taken once, at release: decided when a record is indexed it would have to come out the
same on every replay, and lateness never does. The record is rejected in the transaction that moves the watermark past
it, as every other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from index.pending import Entry
from index.schedule import AT_ONCE, NO_EXPIRY, Reason, Rejection
from sidecar.payload.records import Scheduled


@dataclass(frozen=True, slots=True)
class Expiry:
    """The limits of one delay topic in milliseconds; ``by_target`` has targets with one of their own."""

    default_ms: int = 0
    by_target: Mapping[str, int] = field(default_factory=dict)

    def refused(self, entries: Sequence[Entry[Scheduled]], now_ms: int) -> dict[int, Rejection]:
        """Offsets of entries that are too late now, with the reason; one look at each where nothing can expire."""
        if self.default_ms or self.by_target:
            suspects: Iterable[Entry[Scheduled]] = entries
        else:
            # By attribute: one lookup each, and nearly always that is all.
            suspects = [entry for entry in entries if entry[2].schedule.expire_after_ms > 0]
        refused: dict[int, Rejection] = {}
        for due_ms, offset, (schedule, _, record) in suspects:
            limit_ms = schedule.expire_after_ms
            if limit_ms == NO_EXPIRY:
                limit_ms = self._limit_ms(schedule.targets)
            since_ms = due_ms if due_ms != AT_ONCE or record is None else max(record.timestamp_ms, 0)
            late_ms = now_ms - since_ms
            if 0 < limit_ms < late_ms:
                refused[offset] = _expired(late_ms, limit_ms)
        return refused

    def _limit_ms(self, targets: Sequence[str]) -> int:
        limits_ms = [self.by_target.get(target, self.default_ms) for target in targets]
        return min((limit_ms for limit_ms in limits_ms if limit_ms), default=0)


NEVER_EXPIRES: Final = Expiry()


def _expired(late_ms: int, limit_ms: int) -> Rejection:
    message = f"{late_ms} ms late, and {limit_ms} ms after its due time it is of no use any more"
    return Rejection(Reason.EXPIRED, message)

"""Rejects records that are too late to be released, with the reason EXPIRED: after downtime or a long pause.

The limit of a record is its own ``deliver-expire-after``, else the limit in the policies of its targets, else the limit
in the policy of its delay topic. A limit of 0 is no limit. The strictest limit of several targets counts, since all of
them get the record or none. Lateness is counted from the due time, and from the timestamp for a record without one.

The decision is taken once, at release. A decision that is taken when a record is indexed must come out the same on
every replay, and lateness changes. The record is rejected in the transaction that moves the watermark past it, as every
other rejected record.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from index.pending.pending import Entry
from index.protocol.schedule import AT_ONCE, NO_EXPIRY, Reason, Rejection
from sidecar.engine.payload.records import Scheduled


@dataclass(frozen=True, slots=True)
class Expiry:
    """The limits of one delay topic in milliseconds; ``by_target`` has the targets with a limit of their own."""

    default_ms: int = 0
    by_target: Mapping[str, int] = field(default_factory=dict)

    def refused(self, entries: Sequence[Entry[Scheduled]], now_ms: int) -> dict[int, Rejection]:
        """Return the offsets of the entries that are too late now, each with the reason; O(entries)."""
        if self.default_ms or self.by_target:
            suspects: Iterable[Entry[Scheduled]] = entries
        else:
            # Without limits in policies, one attribute lookup for each entry is nearly always all the work.
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

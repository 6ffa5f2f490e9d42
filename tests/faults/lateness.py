"""Measures lateness in and out of faults, and the time from a heal until records are on time again."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sidecar.dev.audit import AuditedRecord
from tests.integration.scenario import released_due_ms

LOW_MS = 250
"""The p99 of lateness that counts as recovered."""

AFTER_MS = 30_000
"""A record that was due less than this after a heal counts as one in a fault."""


class Fault(NamedTuple):
    """A fault with its times; ``owner_was_hit``: partitions had to be taken over, or an owner was cut off for long."""

    kind: str
    began_ms: int
    healed_ms: int
    owner_was_hit: bool


class Lateness:
    """Sorted lateness ``inside`` and ``outside`` of faults, in ms, of records that had a due time of their own.

    Records due before ``from_ms``, when no router served yet, are left out.
    """

    def __init__(self, released: Iterable[AuditedRecord], faults: Sequence[Fault], from_ms: int) -> None:
        self._faults = faults
        self._by_second: defaultdict[int, list[int]] = defaultdict(list)
        self.inside: list[int] = []
        self.outside: list[int] = []
        began = [fault.began_ms for fault in faults]
        for record in released:
            due_ms = released_due_ms(record)
            if due_ms < from_ms:
                continue
            late_ms = record.timestamp_ms - due_ms
            self._by_second[due_ms // 1000].append(late_ms)
            last = bisect_right(began, due_ms) - 1
            near = last >= 0 and due_ms < faults[last].healed_ms + AFTER_MS
            (self.inside if near else self.outside).append(late_ms)
        self.inside.sort()
        self.outside.sort()

    def recovery_s(self, *, owner_was_hit: bool) -> list[float | None]:
        """Return, for each such fault, the seconds from the heal until p99 stayed low; None if the next fault came
        first.
        """
        began = [fault.began_ms for fault in self._faults]
        found: list[float | None] = []
        for fault in self._faults:
            if fault.owner_was_hit is owner_was_hit:
                following = bisect_left(began, fault.healed_ms)
                until_ms = began[following] if following < len(began) else fault.healed_ms + AFTER_MS
                found.append(self._recovered_after_s(fault.healed_ms // 1000, until_ms // 1000))
        return found

    def _recovered_after_s(self, from_s: int, until_s: int) -> float | None:
        """Look at whole seconds of due time, from the last one backwards while they are good."""
        second = until_s - 1
        while second >= from_s and self._is_low(second):
            second -= 1
        return None if second == until_s - 1 else float(second + 1 - from_s)

    def _is_low(self, second: int) -> bool:
        late_ms = sorted(self._by_second.get(second, ()))
        return not late_ms or late_ms[min(len(late_ms) - 1, len(late_ms) * 99 // 100)] < LOW_MS

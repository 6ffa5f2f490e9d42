"""Holds back records that their target may not be given yet, without a delay for other targets.

The watermark W passes records in the order of (due, offset), so a waiting record in front of W would hold up all that
follow. The gate moves such a record aside: the transaction that moves W past it writes it, whole, into the state topic
(:mod:`snapshots.state.held`), and the transaction that releases it at last removes it from there. So at every commit a
record is either after W, or held, or done, even after a crash. A take-over reads held records with the rest of the
state.

::

    index ──► batch ──┬──► targets that may be given it
                 ▲    └──► held (state topic and memory), in one lane for each set of targets that hold back
                 └───────── first of a lane, as soon as its targets may be given it

Bounds: ``Limits.held_records`` and ``Limits.held_bytes`` for each partition, since held records are in memory and a
take-over reads them. At the bound the partition waits: due records of all targets stay where they are, and no record is
taken in. A gauge and ``why`` in the status tell of it. A target that is stopped for long under load belongs into a
delay topic of its own.

Order: records of one lane leave in the order they were held in, and no record of the lane passes them. The records of
other lanes are not delayed.

Records that a target may refuse are set aside in the same way. A few of them at a time are tried, beside the records
that leave otherwise, and more at once as long as no record is refused.

Records for a partition in doubt (:mod:`sidecar.kafka.doubts`) are held in a lane of that partition until the doubt
ends.

Rejected
--------
* *W waits*, or a share of each batch for each target: both hold up the records for other targets.
* *A bitmap of held offsets in the progress record*, records read again from where they lie. It is the smallest to
  write. But a record below W may be in a segment only (inline, delay topic trimmed), so a bucket could neither be
  removed nor merged while one of its records is held: five modules would have to know of it.
* *A watermark for each target* that lags behind W. A record that comes in late for a lagging target needs a cursor of
  its own, too. A record with several targets would be in several lanes, and the end of one lane could double the work
  of another.
* *A new due time*: the record as a new one in the delay topic. Its provenance could be forged by any producer.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from pyroaring import BitMap64

from index.pending.pending import Entry
from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE
from sidecar.engine.limits import Limits
from sidecar.engine.payload.records import Scheduled, resident_bytes, scheduled, scheduled_size, size_of
from sidecar.engine.release.aside import Aside, Doubts
from sidecar.engine.release.rates import RateLimits, TargetLimit
from snapshots.state.held import HeldEntry, encode_held, held_key

HELD_AT_ONCE: Final = 1_000
"""The most records that one transaction holds. Each costs 20 us, and more would stall the release of others."""

TRIED_AT_ONCE: Final = 4
"""The most records at once that a target may refuse: the refused ones are found in a few trials; others wait then."""

_EVERYTHING: Final = 1 << 62
_Lane = tuple[str, ...]


def waiting_since_ms(entry: Entry[Scheduled]) -> int:
    """Return the due time of a held record in milliseconds; the timestamp of a record without one."""
    due_ms, _, (_, _, record) = entry
    return due_ms if due_ms != AT_ONCE or record is None else record.timestamp_ms


class Gate:
    """Holds the records of one owned partition; used by its worker only."""

    def __init__(
        self,
        rates: RateLimits,
        limits: Limits,
        held: Iterable[HeldEntry] = (),
        aside: Aside | None = None,
    ) -> None:
        self._rates = rates
        self._limits = limits
        self.aside = Aside(("", 0), ("", 0), "", lambda _: 0) if aside is None else aside
        self._gated: Mapping[str, TargetLimit] = {}
        self._doubted: set[str] = set()
        self._tried_at_once = TRIED_AT_ONCE
        self._was_refused = False
        self._lanes: dict[_Lane, deque[Entry[Scheduled]]] = {}
        self._parts: dict[int, list[bytes]] = {}
        self._named: dict[bytes, dict[int, tuple[Position, int]]] = {}
        self._state: list[tuple[bytes, bytes | None]] = []
        self.records = 0
        self.resident_bytes = 0
        for entry in held:
            parts = [held_key(entry.offset, part) for part in range(entry.parts)]
            self._put(
                (entry.due_ms, entry.offset, scheduled(entry.schedule, size_of(entry.record), entry.record)), parts
            )

    def use(self, gated: Mapping[str, TargetLimit]) -> None:
        """Hold back records for these targets from now on, and let go of records for others."""
        self._gated = gated
        self._sort()

    def use_doubts(self, doubts: Doubts) -> None:
        """Hold records for these places from now on, and let go of records for others."""
        self.aside.use(doubts)
        self._sort()

    def has_room_for(self, entries: Sequence[Entry[Scheduled]]) -> bool:
        """Say whether these records may be held beside the held ones."""
        more_bytes = resident_bytes(entries)
        has_place = self.records + len(entries) <= self._limits.held_records
        return has_place and self.resident_bytes + more_bytes <= self._limits.held_bytes

    def set_aside(self, entries: Sequence[Entry[Scheduled]], doubted: Iterable[str]) -> None:
        """Hold these records of the transaction being made, since the ``doubted`` topics may refuse them.

        ``resumed`` gives them out again, a few at a time.
        """
        self._doubted |= set(doubted)
        self.refused()
        for entry in entries:
            self._hold(entry)
        self._sort()

    def refused(self) -> None:
        """Note that a target has refused a record of the transaction being made: try only a few at once for now."""
        self._was_refused = True

    def _sort(self) -> None:
        waiting = [entry for lane in self._lanes.values() for entry in lane]
        self._lanes = {}
        for entry in sorted(waiting, key=lambda entry: entry[:2]):
            self._lanes.setdefault(self._lane_of(entry), deque()).append(entry)

    @property
    def room_records(self) -> int:
        """The number of records that the next batch may have; without bound while no target is held back."""
        if not self.holds_back:
            return _EVERYTHING
        if self.resident_bytes >= self._limits.held_bytes:
            return 0
        return max(0, min(HELD_AT_ONCE, self._limits.held_records - self.records))

    @property
    def room_bytes(self) -> int:
        """The bytes of payload that may still be held, at least 1; without bound while no target is held back."""
        return max(1, self._limits.held_bytes - self.resident_bytes) if self.holds_back else _EVERYTHING

    @property
    def holds_back(self) -> bool:
        """Says whether a target or a place is held back, so that records may have to be held."""
        return bool(self._gated or self._doubted or self.aside.holds_back)

    def wait_s(self, now_ms: int) -> float | None:
        """Return the seconds until a held record may leave; None if none is held or only the end of a pause helps."""
        lanes = [(self._limits_of(lane), each[0][0]) for lane, each in self._lanes.items() if not _is_blocked(lane)]
        waits = [
            max(self._rates.wait_s(limits), (due_ms - now_ms) / 1_000)
            for limits, due_ms in lanes
            if not any(limit.paused for _, limit in limits)
        ]
        first_s = min(waits, default=None)
        return max(first_s, self._limits.resume_every_s) if first_s else first_s

    @property
    def offsets(self) -> Collection[int]:
        """The offsets of the held records."""
        return self._parts.keys()

    def places_of(self, deliver_id: bytes) -> dict[Position, int]:
        """Return the positions of the held records of this id, each with its shift by the spread in milliseconds."""
        return dict(self._named.get(deliver_id, {}).values())

    def records_at(self, offsets: Collection[int]) -> dict[int, Record]:
        """Return the held records at these offsets."""
        if self._parts.keys().isdisjoint(offsets):
            return {}
        held = chain.from_iterable(self._lanes.values())
        return {offset: record for _, offset, (_, _, record) in held if offset in offsets and record is not None}

    def cancel(self, offsets: Collection[int]) -> frozenset[int]:
        """Let go of the held records that the transaction being made cancels, and return their offsets."""
        held = frozenset(self._parts.keys() & offsets)
        if not held:
            return held
        for lane, waiting in list(self._lanes.items()):
            kept = deque(entry for entry in waiting if entry[1] not in offsets)
            for entry in waiting:
                if entry[1] in offsets:
                    self._take_out(entry)
            if kept:
                self._lanes[lane] = kept
            else:
                del self._lanes[lane]
        return held

    def resumed(
        self, most: int, now_ms: int, most_bytes: int = _EVERYTHING, doomed: Collection[int] | BitMap64 = ()
    ) -> list[Entry[Scheduled]]:
        """Take out records that may leave now: at most ``most``, and none after they fill ``most_bytes``.

        They must be in the next transaction. Every record was due when it was held, but may not be due by a clock that
        was set back since, or by the clock of a new owner. A lane whose first record is ``doomed`` waits for the
        receipt that takes it out.
        """
        taken: list[Entry[Scheduled]] = []
        for lane in list(self._lanes):
            if _is_blocked(lane):
                continue
            waiting, limits = self._lanes[lane], self._limits_of(lane)
            upto = most if self._doubted.isdisjoint(lane) else min(most, len(taken) + self._tried_at_once)
            while waiting and len(taken) < upto and most_bytes > 0 and waiting[0][0] <= now_ms:
                if waiting[0][1] in doomed:
                    break
                if not self._may_leave(limits, waiting[0]):
                    break
                most_bytes -= scheduled_size(waiting[0][2])
                taken.append(self._take_out(waiting.popleft()))
            if not waiting:
                del self._lanes[lane]
        return taken

    def hold_blocked(self, entries: Sequence[Entry[Scheduled]]) -> list[Entry[Scheduled]]:
        """Hold the records for places in doubt, and return them."""
        blocked = [entry for entry in entries if self.aside.blocking(entry)]
        for entry in blocked:
            self._hold(entry)
        return blocked

    def hold(self, entries: Sequence[Entry[Scheduled]], resumed: frozenset[int]) -> list[Entry[Scheduled]]:
        """Hold the records that may not leave now, and return them. Records at ``resumed`` offsets may leave."""
        held: list[Entry[Scheduled]] = []
        for entry in entries:
            lane = self._lane_of(entry)
            if not lane or entry[1] in resumed:
                continue
            if lane in self._lanes or not self._may_leave(self._limits_of(lane), entry):
                self._hold(entry)
                held.append(entry)
        return held

    def _hold(self, entry: Entry[Scheduled]) -> None:
        due_ms, offset, (schedule, _, record) = entry
        assert record is not None, f"offset {offset} was not re-read"
        parts = encode_held(HeldEntry(offset, schedule, record))
        # A record that was resumed for this very transaction has left a tombstone: the last record of a key counts.
        self._state += parts
        self._put((due_ms, offset, scheduled(schedule, size_of(record), record)), [key for key, _ in parts])

    @property
    def held_since_ms(self) -> int | None:
        """The earliest due time of the held records in milliseconds; None if none is held."""
        return min((waiting_since_ms(waiting[0]) for waiting in self._lanes.values() if waiting), default=None)

    def held_by_target(self) -> dict[str, int]:
        """Return the number of held records by target; a record that waits for several targets counts for each."""
        counts: dict[str, int] = {}
        for lane, waiting in self._lanes.items():
            for target in {name.partition("/")[0] for name in lane} if waiting else ():
                counts[target] = counts.get(target, 0) + len(waiting)
        return counts

    def waiting(self) -> list[list[Entry[Scheduled]]]:
        """Return copies of the lanes with their held records."""
        return [list(lane) for lane in self._lanes.values()]

    def state(self) -> list[tuple[bytes, bytes | None]]:
        """Return the records for the state topic in the transaction that is being made."""
        return self._state

    def committed(self) -> None:
        """Note that the transaction was committed, and try more records at once if no target refused one."""
        self._state = []
        if self._doubted:
            self._doubted &= {target for lane in self._lanes for target in lane}
            self._tried_at_once = TRIED_AT_ONCE if self._was_refused else min(2 * self._tried_at_once, HELD_AT_ONCE)
        self._was_refused = False

    def _put(self, entry: Entry[Scheduled], parts: list[bytes]) -> None:
        self._lanes.setdefault(self._lane_of(entry), deque()).append(entry)
        self._parts[entry[1]] = parts
        schedule = entry[2].schedule
        if schedule.deliver_id is not None:
            self._named.setdefault(schedule.deliver_id, {})[entry[1]] = Position(*entry[:2]), schedule.shift_ms
        self.records += 1
        self.resident_bytes += resident_bytes([entry])

    def _take_out(self, entry: Entry[Scheduled]) -> Entry[Scheduled]:
        self._state += [(key, None) for key in self._parts.pop(entry[1], [])]
        deliver_id = entry[2].schedule.deliver_id
        if deliver_id is not None:
            self._named[deliver_id].pop(entry[1])
            if not self._named[deliver_id]:
                del self._named[deliver_id]
        self.records -= 1
        self.resident_bytes -= resident_bytes([entry])
        return entry

    def _lane_of(self, entry: Entry[Scheduled]) -> _Lane:
        targets = entry[2].schedule.targets
        held_back = (target for target in targets if target in self._gated or target in self._doubted)
        return (*self.aside.blocking(entry), *held_back)

    def _limits_of(self, lane: _Lane) -> list[tuple[str, TargetLimit]]:
        return [(target, self._gated[target]) for target in lane if target in self._gated]

    def _may_leave(self, limits: Sequence[tuple[str, TargetLimit]], entry: Entry[Scheduled]) -> bool:
        return not any(limit.paused for _, limit in limits) and self._rates.take(limits, entry[2].size_bytes)


def _is_blocked(lane: _Lane) -> bool:
    """Say whether a lane waits for a place in doubt; names of topics have no slash."""
    return any("/" in name for name in lane)

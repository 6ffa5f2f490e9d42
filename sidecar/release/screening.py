"""The last look at a batch before its transaction begins: what may depend on the moment is decided here, once.

A decision taken when a record was indexed must replay, so it never asks the cluster. This one does: whether each target
exists, may be written to and is still allowed. A record with several targets goes to all of them or to none.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter

from index.pending import Entry
from index.record import Record
from index.rules import Rules
from index.schedule import AT_ONCE, KeepKey, Reason, Rejection, Schedule
from index.unreadable import as_accepted
from sidecar.payload.records import Decide, Leaving, Refused, Scheduled
from sidecar.ports import REFUSED_FOR_S, Directory, Target

BATCH_BYTES = 61
"""The least that a batch has beside the keys and values of its records."""

_Route = tuple[tuple[str, ...], int]

_route_of: Callable[[Schedule], _Route] = itemgetter(1, 2)
"""Targets and partition of a schedule, without a call of Python code for each record."""


@dataclass(frozen=True, slots=True)
class Screened:
    """A batch, sorted into what can be released, what must be rejected, and what the delay topic no longer holds."""

    released: list[Entry[Scheduled]]
    rejected: list[tuple[int, Refused]]
    lost: list[int]

    def holding(self, held: Sequence[Entry[Scheduled]]) -> "Screened":
        """Return the same without records that wait for their target."""
        offsets = {offset for _, offset, _ in held}
        rejected = [each for each in self.rejected if each[0] not in offsets]
        return Screened([entry for entry in self.released if entry[1] not in offsets], rejected, self.lost)

    def beginning(self, offsets: Collection[int]) -> "Screened":
        """The same without records of which nothing is released: they begin a series."""
        return Screened([entry for entry in self.released if entry[1] not in offsets], self.rejected, self.lost)

    def without(self, refusals: Mapping[int, Rejection]) -> "Screened":
        """The same with the records at these offsets rejected instead of released."""
        rejected = [
            (offset, Refused(refusals[offset], record))
            for _, offset, (_, _, record) in self.released
            if offset in refusals and record is not None
        ]
        released = [entry for entry in self.released if entry[1] not in refusals]
        return Screened(released, self.rejected + rejected, self.lost)


ReadRecords = Callable[[Sequence[int]], dict[int, Record | None]]
"""Reads records of the delay partition at ascending offsets; None for one that is gone."""


def screen(
    batch: Leaving,
    rules: Rules,
    directory: Directory,
    read: ReadRecords,
    decide: Decide,
    *,
    compresses: bool = True,
) -> Screened:
    """Complete and check a batch; ClusterError when the cluster does not answer, and then nothing is concluded.

    ``compresses``: what is written is compressed, so that the size of a record does not tell that of its batch.
    """
    entries = [*batch.late, *batch.due]
    entries, rejected = _rejected_at_last(entries, decide)
    lost: list[int] = []
    # Without targets it was gone when its segment was loaded, and is not asked for again.
    absent = [(offset, payload.schedule.targets) for _, offset, payload in entries if payload[2] is None]
    if absent:
        entries, lost = _completed(entries, read(sorted(offset for offset, targets in absent if targets)))
    screened = Screened(entries, batch.rejected + rejected, lost)
    refusals = refused_by_target(entries, rules, directory, compresses=compresses)
    return screened.without(refusals) if refusals else screened


def _rejected_at_last(
    entries: list[Entry[Scheduled]], decide: Decide
) -> tuple[list[Entry[Scheduled]], list[tuple[int, Refused]]]:
    """Take out what a backfill indexed though it is to be rejected: due at once, with a record and without a target."""
    rejected: list[tuple[int, Refused]] = []
    for due_ms, offset, (schedule, _, record) in entries:
        if due_ms == AT_ONCE and record is not None and not schedule.targets:
            decision = decide(offset, record)
            assert isinstance(decision, Rejection), f"offset {offset} has no target and is not rejected"
            rejected.append((offset, Refused(decision, record)))
    if not rejected:
        return entries, rejected
    gone = {offset for offset, _ in rejected}
    return [entry for entry in entries if entry[1] not in gone], rejected


def refused_by_target(
    entries: list[Entry[Scheduled]], rules: Rules, directory: Directory, *, compresses: bool = True
) -> dict[int, Rejection]:
    """Offsets whose targets cannot all be written to now, with the reason; O(1) lookups for each distinct route."""
    routes: set[_Route] = set(map(_route_of, [payload[0] for _, _, payload in entries]))
    names = set(chain.from_iterable(targets for targets, _ in routes))
    targets = directory.resolve(names)
    refused = {route: refusal for route in routes if (refusal := _refusal(route, rules, targets)) is not None}
    refusals = (
        {
            offset: refused[route]
            for _, offset, (schedule, _, _) in entries
            if (route := (schedule.targets, schedule.partition)) in refused
        }
        if refused
        else {}
    )
    if _unfit(entries, targets, compresses=compresses):
        # Such settings change: nothing is rejected because of what was true some time ago.
        refusals = _unfit(entries, directory.resolve(names, REFUSED_FOR_S), compresses=compresses) | refusals
    return refusals


def _unfit(entries: list[Entry[Scheduled]], targets: dict[str, Target], *, compresses: bool) -> dict[int, Rejection]:
    """Offsets of records that a target is certain to refuse: to try would cost the others of the batch their time."""
    unfit: dict[int, Rejection] = {}
    compacted = {name for name, target in targets.items() if target.demands.key}
    if compacted:
        for _, offset, (schedule, _, record) in entries:
            if record is not None and _key(schedule, record) is None:
                for name in compacted.intersection(schedule.targets):
                    why = f"Target topic {name} is compacted, and takes no record without a key"
                    unfit[offset] = Rejection(Reason.TARGET_DENIED, why)
    least = min((target.demands.max_batch_bytes for target in targets.values()), default=0)
    if not compresses and entries and max([payload[1] for _, _, payload in entries]) > least:
        for _, offset, (schedule, _, record) in entries:
            size_bytes = (
                0 if record is None else BATCH_BYTES + len(_key(schedule, record) or b"") + len(record[1] or b"")
            )
            for name in schedule.targets:
                if size_bytes > (most := targets[name].demands.max_batch_bytes):
                    why = f"Key and value have more bytes than target topic {name} takes: max.message.bytes={most}"
                    unfit[offset] = Rejection(Reason.RECORD_TOO_LARGE, why)
    return unfit


def _key(schedule: Schedule, record: Record) -> bytes | None:
    return record.key if isinstance(schedule.key, KeepKey) else schedule.key


def _refusal(route: _Route, rules: Rules, targets: dict[str, Target]) -> Rejection | None:
    names, partition = route
    for name in names:
        if not rules.allowed(name):
            return Rejection(Reason.TARGET_NOT_ALLOWED, f"Target topic {name} is no longer allowed for {rules.topic}")
        target = targets[name]
        if target.refusal is not None:
            return target.refusal
        if partition >= target.partitions:
            return Rejection(
                Reason.TARGET_UNKNOWN,
                f"Target topic {name} has {target.partitions} partitions; deliver-partition {partition} is not one",
            )
    return None


def _completed(
    entries: Iterable[Entry[Scheduled]], reread: dict[int, Record | None]
) -> tuple[list[Entry[Scheduled]], list[int]]:
    complete: list[Entry[Scheduled]] = []
    lost: list[int] = []
    for due_ms, offset, scheduled in entries:
        record = scheduled.record or reread.get(offset)
        if record is None:
            lost.append(offset)
        else:
            complete.append((due_ms, offset, scheduled._replace(record=as_accepted(record))))
    return complete, lost

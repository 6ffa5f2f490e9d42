"""Joins every sent record with its copies and receipts; the module needs no Kafka, and tests feed it any records."""

from array import array
from collections.abc import Iterable, Mapping
from typing import Final

from sidecar.dev.audit.attempts import AttemptRules, without_attempts
from sidecar.dev.audit.entry import Entry
from sidecar.dev.audit.receipt import AuditedControl, AuditedReceipt, receipt_of
from sidecar.dev.audit.record import (
    AT_ONCE,
    UNREADABLE,
    AuditedRecord,
    begun_by,
    digest,
    due_ms,
    source_of,
    spread_of,
    user_headers,
)
from sidecar.dev.audit.report import AuditReport
from sidecar.dev.audit.where import AuditedWhere

_SAMPLES: Final = 20
_REJECTION: Final = ["delay-error", "delay-error-message", "delay-source"]
_OCCURRENCE: Final = ["delay-occurrence", "delay-series"]
_OUTCOMES: Final = (
    *("released_once", "rejected", "pending", "duplicated", "lost"),
    *("cancelled", "replaced", "moved", "answered"),
)
_COUNTS: Final = (
    *("early", "altered", "wrong_target", "foreign", "unreadable", "create_time"),
    *("cancelled_but_left", "answered_twice", "moved_to_nowhere"),
)


def join(
    sent: Iterable[AuditedRecord],
    released: Iterable[AuditedRecord],
    rejected: Iterable[AuditedRecord],
    receipts: Iterable[AuditedRecord] = (),
    *,
    now_ms: int,
    default_targets: Mapping[str, str] | None = None,
    default_delays_ms: Mapping[str, int] | None = None,
    retries: Mapping[str, AttemptRules] | None = None,
) -> AuditReport:
    """Report on records; each iterable is read once, in this order. A record due after `now_ms` may be pending."""
    books = _Books(default_targets or {}, default_delays_ms or {}, retries or {})
    for record in sent:
        books.enter(record)
    for record in released:
        books.release(record)
    for record in rejected:
        books.reject(record)
    for record in receipts:
        books.answer(record)
    return books.report(now_ms)


def check_order(sent: Iterable[AuditedRecord], released: Iterable[AuditedRecord]) -> list[str]:
    """Return a line for each release that breaks the (due, offset) order of its delay partition.

    `released` must be ordered by offset in each partition. The caller must know that no record was indexed after its
    due time: such records rightly leave behind others.
    """
    due = {record.place: (due_ms(record), record.offset) for record in sent}
    last: dict[tuple[str, str, int], tuple[tuple[int, int], str]] = {}
    breaks = []
    for record in released:
        source = source_of(record)
        if source not in due:
            continue
        lane = (source.rpartition("/")[0], record.topic, record.partition)
        before, before_source = last.get(lane, ((UNREADABLE, UNREADABLE), ""))
        due_at, offset = due[source]
        place = due_at + spread_of(record), offset
        if place <= before:
            breaks.append(f"{record.place}: {source} {place} came after {before_source} {before}")
        last[lane] = place, source
    return breaks


class _Books:
    """Collects every sent record by its place, and the counts."""

    def __init__(
        self,
        default_targets: Mapping[str, str],
        default_delays_ms: Mapping[str, int],
        retries: Mapping[str, AttemptRules],
    ) -> None:
        self._default_targets = default_targets
        self._default_delays_ms = default_delays_ms
        self._retries = retries
        self._entries: dict[str, Entry] = {}
        self._begun: list[str] = []
        self._single: dict[str, tuple[str, ...]] = {}
        self._lateness_ms = array("q")
        self._unnamed: list[tuple[str, AuditedControl, AuditedReceipt]] = []
        self._moves: list[tuple[str, AuditedReceipt]] = []
        self._queries: list[tuple[str, AuditedWhere, AuditedReceipt]] = []
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._samples: dict[str, list[str]] = {}

    def enter(self, record: AuditedRecord) -> None:
        """Enter a record of a delay topic."""
        target, delay_ms = self._default_targets.get(record.topic, ""), self._default_delays_ms.get(record.topic, 0)
        self._entries[record.place] = Entry(record, target, delay_ms, self._retries.get(record.topic))
        if beginning := begun_by(record):
            self._begun.append(beginning)
        # A control lies in front of the record that the router writes for it.
        mover = self._entries.get(source_of(record))
        if mover is not None:
            mover.has_moved = True

    def release(self, record: AuditedRecord) -> None:
        """Match a record of a target topic; a record without ``delay-source`` is not from a router."""
        source = source_of(record)
        entry = self._entries.get(source)
        if entry is None:
            if source:
                self._note("foreign", f"{record.place}: no record at {source}")
            return
        # One shared tuple per target saves memory: a million records usually go to a few topics.
        single = self._single.setdefault(record.topic, (record.topic,))
        entry.arrivals = entry.arrivals + single if entry.arrivals else single
        if (entry.targets or entry.cancels) and record.topic not in entry.targets:
            self._note("wrong_target", f"{source}: {record.place}, wanted {', '.join(entry.targets) or 'none'}")
        kept, attempt = user_headers(record.headers), entry.attempt
        if attempt is not None:
            kept = without_attempts(kept)
            if not attempt.is_told(record):
                self._note("altered", f"{source}: {record.place} does not tell attempt {attempt.number}")
        if digest(record.key, record.value, kept) != entry.as_released:
            self._note("altered", f"{source}: {record.place} differs")
        self._time(entry, record, source)

    def _time(self, entry: Entry, record: AuditedRecord, source: str) -> None:
        if not record.appended:
            self._note("create_time", f"{record.topic}: message.timestamp.type is not LogAppendTime")
        if entry.due_ms == UNREADABLE:
            self._note("unreadable", f"{source}: {record.place}, but its schedule cannot be read")
            return
        # With a spread a record of a burst leaves at its own time, behind its due time.
        due_at = entry.due_ms if entry.attempt is None else entry.attempt.due_ms(record)
        leaves_ms = due_at + spread_of(record)
        if record.timestamp_ms < leaves_ms:
            early_ms = leaves_ms - record.timestamp_ms
            self._note("early", f"{source}: {record.place} {early_ms} ms before it was due")
        # The clock of a producer may run ahead of the broker's, so its time of sending is capped at the append time.
        could_leave_ms = max(leaves_ms, min(entry.timestamp_ms, record.timestamp_ms))
        self._lateness_ms.append(record.timestamp_ms - could_leave_ms)

    def reject(self, record: AuditedRecord) -> None:
        """Match a record of a rejected topic, except for a mark of records that were driven again."""
        if [name for name, _ in record.headers] == ["delay-redriven-offsets"]:
            return
        source = source_of(record)
        entry = self._entries.get(source)
        if entry is None:
            self._note("foreign", f"{record.place}: no record at {source or '(no delay-source)'}")
            return
        entry.rejections += 1
        as_sent, added = record.headers[:-3], [name for name, _ in record.headers[-3:]]
        if entry.recurs and [name for name, _ in as_sent[-2:]] == _OCCURRENCE:
            as_sent = as_sent[:-2]
        if added != _REJECTION or digest(record.key, record.value, as_sent) != entry.as_rejected:
            self._note("altered", f"{source}: {record.place} differs")

    def answer(self, record: AuditedRecord) -> None:
        """Match a receipt with its control and with the records that it names."""
        source = source_of(record)
        entry = self._entries.get(source)
        if entry is None or entry.control is None:
            self._note("foreign", f"{record.place}: no control at {source or '(no delay-source)'}")
            return
        entry.answers += 1
        if entry.answers == 2:  # noqa: PLR2004 -- counted once, for any number of extra receipts
            self._note("answered_twice", f"{source}: again by {record.place}")
        receipt, control = receipt_of(record), entry.control
        if receipt is None or not _is_of(record, receipt, control):
            self._note("altered", f"{source}: {record.place} is not the receipt of this control")
        if receipt is None:
            return
        if control.where is not None:
            self._queries.append((source, control.where, receipt))
        if receipt.is_move:
            self._moves.append((source, receipt))
        entry.is_void = entry.is_void or (control.conditional and receipt.is_in_vain)
        for offset in receipt.offsets:
            self._name(offset, source, control, receipt)
        if receipt.unnamed:
            self._unnamed.append((source, control, receipt))

    def _name(self, offset: int, source: str, control: AuditedControl, receipt: AuditedReceipt) -> None:
        """Note that the receipt of the control at ``source`` names this offset of its partition."""
        lane, _, control_offset = source.rpartition("/")
        entry = self._entries.get(f"{lane}/{offset}")
        if entry is None:
            self._note("foreign", f"the receipt of {source}: no record at {lane}/{offset}")
            return
        if entry.cancels:
            entry.taken_by += (source,)
            if offset >= int(control_offset) or not _takes(control, receipt, entry):
                self._note(
                    "altered", f"{lane}/{offset}: {source} does not ask for the schedule that it moves, and names it"
                )
            return
        entry.named += (receipt.done,)
        if entry.first_offset >= int(control_offset) or not _holds_for(control, receipt, entry):
            self._note("altered", f"{lane}/{offset}: {source} does not ask for it, and its receipt names it")

    def _name_the_unnamed(self) -> None:
        """Assign the records that a receipt counts without naming them.

        They are the records of its id that are found nowhere; their number must be the number in the receipt.
        """
        for source, control, receipt in self._unnamed:
            lane, _, control_offset = source.rpartition("/")
            found = [
                entry
                for place, entry in self._entries.items()
                if entry.deliver_id == receipt.deliver_id and not (entry.named or entry.has_left or entry.is_void)
                if place.rpartition("/")[0] == lane and entry.first_offset < int(control_offset)
                if _holds_for(control, receipt, entry)
            ]
            for entry in found:
                entry.named = (receipt.done,)
            taken = [
                entry
                for place, entry in ((place, self._entries[place]) for place, _ in self._moves)
                if not (entry.taken_by or entry.has_moved) and _takes(control, receipt, entry)
                if place.rpartition("/")[0] == lane and entry.first_offset < int(control_offset)
            ]
            for entry in taken:
                entry.taken_by = (source,)
            nowhere = len(found) + len(taken)
            if nowhere != receipt.unnamed:
                self._note("altered", f"{source}: its receipt has {receipt.unnamed} unnamed, {nowhere} are nowhere")

    def _name_the_queried(self) -> None:
        """Assign the records that queries have cancelled: the records in front that match and are found nowhere.

        If a receipt tells their number, it must be the number of these records.
        """
        nowhere: dict[str, list[Entry]] = {}
        for place, entry in self._entries.items() if self._queries else ():
            if not (entry.named or entry.has_left or entry.has_begun or entry.cancels or entry.is_void):
                nowhere.setdefault(place.rpartition("/")[0], []).append(entry)
        places = [(*source.rpartition("/")[::2], where, receipt) for source, where, receipt in self._queries]
        for lane, offset, where, receipt in sorted(places, key=lambda each: (each[0], int(each[1]))):
            found = [
                entry
                for entry in nowhere.get(lane, ())
                if not entry.named and entry.first_offset < int(offset) and entry.matches(where)
            ]
            for entry in found:
                entry.named = (receipt.done,)
            behind = len(receipt.offsets) + receipt.unnamed
            if receipt.matched is not None and receipt.matched != len(found) + behind:
                cancelled = f"{len(found) + behind} records that match are nowhere"
                self._note("altered", f"{lane}/{offset}: its receipt says {receipt.matched}, {cancelled}")

    def _follow_the_moved(self, now_ms: int) -> None:
        """Check that each moved schedule has its record; until it is due, an open transaction may hide the record.

        A schedule that a later control of the same transaction has taken needs no record.
        """
        moved = {source for source, _ in self._moves}
        for source, entry in self._entries.items():
            is_move = entry.control is not None and entry.control.action == "move"
            if entry.taken_by and is_move and source not in moved:
                self._note(
                    "altered",
                    f"{source}: named by {entry.taken_by[0]} for the schedule that it moves, but it moves none",
                )
        for source, receipt in self._moves:
            entry = self._entries[source]
            is_written = entry.has_moved or bool(entry.taken_by)
            if not is_written and (receipt.due_ms is None or receipt.due_ms <= now_ms):
                self._note("moved_to_nowhere", f"{source}: moved by its receipt, and no record was written for it")

    def report(self, now_ms: int) -> AuditReport:
        """Return the report; records due later than `now_ms` may still be pending."""
        for beginning in self._begun:
            if beginning in self._entries:
                self._entries[beginning].has_begun = True
        self._name_the_unnamed()
        self._name_the_queried()
        self._follow_the_moved(now_ms)
        outcomes = dict.fromkeys(_OUTCOMES, 0)
        for source, entry in self._entries.items():
            outcome = entry.outcome(now_ms)
            outcomes[outcome] += 1
            if outcome in {"duplicated", "lost"}:
                found = ", ".join(entry.arrivals) or "nowhere"
                line = f"{source}: in {found}; rejected {entry.rejections} times; due {entry.due_ms}"
                if entry.control is not None:
                    line += f"; a control with {entry.answers} receipts"
                self._sample(outcome, line)
            if entry.has_left_in_spite:
                said = ", ".join(entry.named) or "no schedule"
                self._note("cancelled_but_left", f"{source}: has left, and is {said} by a receipt")
        return AuditReport(
            sent=len(self._entries),
            **outcomes,
            **self._counts,
            lateness_ms=array("q", sorted(self._lateness_ms)),
            samples=self._samples,
        )

    def _note(self, count: str, line: str) -> None:
        self._counts[count] += 1
        self._sample(count, line)

    def _sample(self, count: str, line: str) -> None:
        lines = self._samples.setdefault(count, [])
        if len(lines) < _SAMPLES:
            lines.append(line)


def _is_of(record: AuditedRecord, receipt: AuditedReceipt, control: AuditedControl) -> bool:
    """Say whether a receipt has the id and the headers of its control, and a possible answer to it."""
    *copied, last = record.headers
    as_sent = digest(None, None, copied) == control.headers if receipt.whole else not copied
    # The id may be in a header of a name unknown here.
    of_its_id = control.deliver_id in {receipt.deliver_id, None}
    return last[0] == "delay-source" and as_sent and of_its_id and receipt.answers(control)


def _takes(control: AuditedControl, receipt: AuditedReceipt, move: Entry) -> bool:
    """Say whether a control applies to the schedule that an earlier move has moved.

    The audit trusts the receipt if the time is in a header of a name unknown here.
    """
    if move.control is None or move.control.action != "move":
        return False
    if receipt.deliver_id is not None and move.control.deliver_id not in {receipt.deliver_id, None}:
        return False
    return not control.conditional or move.due_ms in {control.if_due_ms, AT_ONCE}


def _holds_for(control: AuditedControl, receipt: AuditedReceipt, entry: Entry) -> bool:
    """Say whether a control applies to an earlier record.

    The audit trusts the receipt if the id or the time is in a header of a name unknown here.
    """
    if control.where is not None:
        return not entry.cancels and entry.matches(control.where)
    if entry.cancels or entry.deliver_id not in {receipt.deliver_id, None}:
        return False
    return not control.conditional or entry.due_ms in {control.if_due_ms, AT_ONCE}

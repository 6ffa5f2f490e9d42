"""Judges receipts by the orders of the producers and by the records that have left; it shares no code with the index.

A control cancels every schedule of its id that lies in front of it and has not left. Its receipt says so once, in the
transaction whose progress passes the control. So the records that left before determine the whole receipt, with one
exception: a record that a job has rejected waits in its bucket and is no schedule meanwhile. A record that some rules
reject is judged when it leaves.

A record that a transaction has appended is pending from then on, and a control holds for it if the series of the record
begins in front of the control. A control that holds for one due time only may be evaluated before or after that, and
the checker cannot tell which.

A query cancels every schedule in front of it that matches and has not left. Its receipt tells their number, and names
those that lie behind it. A record in transit that the rules of the moment reject stays owed.

A moved schedule is also pending for the controls behind the move that the same transaction answers: it has no record
yet, and it has the offset of the move. If a move reports that its schedule could not be written, the schedule stays.
"""

import json
from collections.abc import Callable, Collection, Mapping, MutableMapping
from typing import Any, NamedTuple

from tests.simulation.violation import require
from tests.simulation.world import REJECTED, Answer, Named, Produced, Transaction, Where

DONE = {"cancel": "cancelled", "replace": "replaced", "move": "moved"}
BY_QUERY = "the query at"
NO_SCHEDULE = ("cancel", "move", "cancel-where")


class Unwritten(NamedTuple):
    """A moved schedule that nobody has written yet: the last record it had, and its due time now."""

    deliver_id: bytes
    due_ms: int
    last: Produced


class Answers:
    """Follows the committed transactions in order; ``produced`` and ``left`` are the checker's, by offset."""

    def __init__(
        self,
        produced: Mapping[int, Produced],
        left: MutableMapping[int, str],
        may_be_rejected: Callable[[Produced], bool],
        may_be_accepted: Callable[[Produced], bool],
        due_us: Callable[[Produced], int],
        target: Callable[[Produced], str],
    ) -> None:
        self._produced = produced
        self._left = left
        self._may_be_rejected = may_be_rejected
        self._may_be_accepted = may_be_accepted
        self._due_us = due_us
        self._target = target
        self.doubtful: dict[int, int] = {}
        """Records that match a query, and that a job may have rejected or retention removed before, with the query."""
        self.unwanted: set[int] = set()
        self._has_appended: set[int] = set()
        self._passed_over: set[int] = set()
        self._log_end_as_left: dict[int, int] = {}
        self._answered: set[int] = set()
        self._never_indexed: set[int] = set()
        self._unwritten: dict[int, Unwritten] = {}
        self._stays: set[int] = set()
        self._log_end_as_spared: dict[int, int] = {}
        self._moved_now: set[bytes] = set()
        self._spared: set[tuple[int, int]] = set()

    def follow(self, transaction: Transaction) -> None:
        """Raise Violation if a receipt is wrong, or if a record leaves that a receipt has cancelled."""
        rejected = {
            each.offset for each in transaction.left if each.topic == REJECTED and not each.is_refused_at_release
        }
        self._never_indexed |= rejected
        moved = {control: self._produced[place] for control, place in transaction.placed.items()}
        moved = {control: record for control, record in moved.items() if record.moved_by is not None}
        self._stays.clear()
        self._moved_now.clear()
        for answer in transaction.answers:
            says = json.loads(answer.record.value or b"")
            taken = self._take_unwritten(answer, says)
            control = self._answered_by(answer)
            if control.where is not None:
                self._query(answer, says, control.where, transaction.log_start)
                continue
            self._one(answer, says, taken, rejected, transaction.log_start)
            self._moved(answer, says, taken, moved.pop(answer.offset, None))
        require(not moved, f"moved, and no receipt tells of it: {moved}")
        require(not self._unwritten, f"moved by receipts, and nothing is appended: {self._unwritten}")
        log_end = max(self._produced, default=-1) + 1
        for offset, *_ in transaction.left:
            if offset not in rejected:
                self._not_in_spite(self._produced[offset])
                self._log_end_as_left[offset] = log_end
        self._has_appended |= set(transaction.placed.values())

    def unanswered(self) -> set[int]:
        """Return the offsets of controls that were not rejected and have no receipt."""
        controls = {offset for offset, each in self._produced.items() if each.named and each.named.action}
        return controls - self._answered - self._never_indexed

    def _take_unwritten(self, answer: Answer, says: Any) -> dict[int, Unwritten]:
        """Remove and return the unwritten schedules that a receipt must name: all that its control finds."""
        named = self._produced[answer.offset].named
        assert named is not None
        wanted = {
            offset: each
            for offset, each in self._unwritten.items()
            if each.deliver_id == named.deliver_id and named.if_due_ms in (None, each.due_ms)
        }
        told = says["cancelled"][len(says["cancelled"]) - len(wanted) :] if wanted else []
        as_wanted = [{"offset": offset, "due": each.due_ms} for offset, each in wanted.items()]
        require(told == as_wanted, f"{answer.offset} names {says['cancelled']}, and not at its end {as_wanted}")
        for offset in wanted:
            del self._unwritten[offset]
        return wanted

    def _answered_by(self, answer: Answer) -> Produced:
        """Return the control that a receipt answers: a legible one that is not rejected, and has no other receipt."""
        control = self._produced[answer.offset]
        is_control = control.named is not None and bool(control.named.action)
        require(is_control, f"{answer.offset} is no control, and has a receipt")
        require(answer.offset not in self._answered, f"{answer.offset} has two receipts")
        require(answer.offset not in self._never_indexed, f"{answer.offset} is rejected, and has a receipt")
        require(control.legible, f"{answer.offset} cannot be read, and has a receipt")
        self._answered.add(answer.offset)
        return control

    def _one(
        self,
        answer: Answer,
        says: Any,
        taken: Mapping[int, Unwritten],
        rejected: Collection[int],
        log_start: int,
    ) -> None:
        control = self._produced[answer.offset]
        named = control.named
        assert named is not None
        told = answer.record.key, list(answer.record.headers), says["action"]
        require(told == (named.deliver_id, list(control.headers), named.action), f"{answer.offset} is told as {told}")
        of_its_id = [
            each
            for offset, each in self._produced.items()
            if self._is_in_front(each, answer.offset) and self._may_be_found(offset, log_start)
            if each.named and each.named.deliver_id == named.deliver_id and each.named.action not in NO_SCHEDULE
        ]
        pending = [each for each in of_its_id if each.offset not in rejected]
        # The record was in transit: it depends on the moment of the read whether the control found it.
        is_doubtful = any(each.says is not None and each.offset in rejected for each in of_its_id)
        hit = [each for each in pending if named.if_due_ms in (None, self._due_ms(each))]
        written = says["cancelled"][: len(says["cancelled"]) - len(taken)]
        cancelled = {each["offset"]: each["due"] for each in written}
        certain = [each for each in hit if self._is_certain(each, log_start) and not _is_conditional(each, named)]
        wanted = {each.offset: self._due_ms(each) for each in hit}
        require(cancelled.items() <= wanted.items(), f"{answer.offset} cancels {cancelled}, not {wanted}")
        missed = [each.offset for each in certain if each.offset not in cancelled]
        if "why" in says:
            # The record that could not be written again, or a record behind the moved schedule, which has no record
            # itself. To a control for one due time, a schedule that an earlier move could not write was due later.
            not_moved = [each for each in missed if each not in self._stays]
            self._stays |= {each.offset for each in hit if each.offset not in cancelled}
            self._log_end_as_spared |= dict.fromkeys(self._stays, max(self._produced) + 1)
            require(len(not_moved) <= 1, f"{answer.offset} cancels {cancelled}, and could write none of {not_moved}")
        # A conditional control is evaluated when it is read, and applies to the time to which the schedule was moved.
        is_conditional = named.if_due_ms is not None
        spared = {
            each.offset
            for each in hit
            if ("why" in says and each.offset in self._stays)
            or (is_conditional and answer.offset < self._log_end_as_spared.get(each.offset, 0))
        } - cancelled.keys()
        self._spared |= {(answer.offset, _begins_at(self._produced[each])) for each in spared}
        missed = [each for each in missed if each not in spared]
        require(not missed, f"{answer.offset} has not cancelled {missed}")
        again = self._passed_over & cancelled.keys()
        require(not again, f"{answer.offset} cancels {again}, which a control before it has not")
        passed_over = {each.offset for each in hit if not _is_conditional(each, named)} - cancelled.keys()
        self._passed_over |= passed_over - self._stays - spared - self.unwanted
        require(list(cancelled) == sorted(cancelled), f"{answer.offset}: not in the order of the log")
        found = bool(cancelled or taken)
        outcomes = {DONE[named.action]} if found else {"changed", "not-pending"}
        if named.action == "move" and cancelled and (is_doubtful or len(certain) < len(hit)):
            # The control found a schedule that is gone from the log, or was rejected, and does not name it.
            outcomes.add("cancelled")
        sure = not is_doubtful and not any(_is_conditional(each, named) for each in pending)
        unwritten = {each.deliver_id for each in self._unwritten.values()}
        if named.deliver_id in self._moved_now | unwritten:
            outcomes -= {"not-pending"}
        elif not found and sure and all(self._is_certain(each, log_start) for each in pending):
            outcomes = {"changed"} if pending else {"not-pending", *self._of_what_left_meanwhile(control)}
        if "why" in says:
            require(named.action == "move" and says["due"] is None, f"{answer.offset} is no move, and says {says}")
            outcomes = {"cancelled"} if found else {"not-moved"}
        require(says["outcome"] in outcomes, f"{answer.offset}: {says['outcome']}, not {outcomes}")
        for offset in cancelled:
            self._left[offset] = f"the receipt of {answer.offset}"
        self._itself(control, says["due"], is_void=not found and named.if_due_ms is not None)

    def _query(self, answer: Answer, says: Any, where: Where, log_start: int) -> None:
        """Check the receipt of a query: each schedule in front of it that matches is cancelled from here on."""
        control = self._produced[answer.offset]
        told = answer.record.key, list(answer.record.headers), says["action"], says["outcome"], says["due"]
        wanted = None, list(control.headers), "cancel-where", "cancelled-where", None
        require(told == wanted, f"{answer.offset} is told as {told}")
        hit = [
            each
            for offset, each in self._produced.items()
            if offset not in self._left
            if self._is_in_front(each, answer.offset)
            if each.named is None or each.named.action not in NO_SCHEDULE
            if (self._may_be_accepted(each) or _is_judged_when_due(each)) and self._matches(each, where)
        ]
        certain = [each for each in hit if self._is_certain(each, log_start)]
        cancelled = {each["offset"]: each["due"] for each in says["cancelled"]}
        behind = {each.offset: self._due_ms(each) for each in hit if each.offset > answer.offset}
        require(cancelled.items() <= behind.items(), f"{answer.offset} names {cancelled}, not {behind}")
        missed = [each.offset for each in certain if each.offset in behind.keys() - cancelled.keys()]
        require(not missed, f"{answer.offset} does not name {missed}")
        matched = says["matched"]
        if matched is None:
            require("estimated" in says, f"{answer.offset} says neither a number nor an estimate")
        else:
            is_right = len(certain) <= matched <= len(hit)
            require(is_right, f"{answer.offset} says {matched}, not {len(certain)} to {len(hit)}")
        self._left.update(dict.fromkeys((each.offset for each in certain), f"{BY_QUERY} {answer.offset}"))
        self._left.update(dict.fromkeys(cancelled, f"the receipt of {answer.offset}"))
        # The rules of the moment may reject a record in transit, and other rules may accept it when it is read.
        doubtful = [each.offset for each in hit if each not in certain and each.offset < answer.offset]
        self.doubtful |= dict.fromkeys(doubtful, answer.offset)
        self.unwanted |= {each.offset for each in hit if each.offset < answer.offset} | cancelled.keys()
        self._left[answer.offset] = "its receipt"

    def _matches(self, record: Produced, where: Where) -> bool:
        due_ms = self._due_ms(record) or record.timestamp_ms
        deliver_id = None if record.named is None else record.named.deliver_id
        return (
            where.target in (None, self._target(record))
            and (where.due_from_ms is None or due_ms >= where.due_from_ms)
            and (where.due_to_ms is None or due_ms < where.due_to_ms)
            and (where.id_prefix is None or (deliver_id is not None and deliver_id.startswith(where.id_prefix)))
            and (where.header is None or where.header in record.headers)
        )

    def _of_what_left_meanwhile(self, control: Produced) -> set[str]:
        """Return the outcomes possible because of records that left between the evaluation of a control and its
        receipt.

        A control is evaluated when it is indexed, so a record that it spares may leave before its receipt does.
        """
        assert control.named is not None
        deliver_id = control.named.deliver_id
        left = [
            self._produced[offset] for offset, end in self._log_end_as_left.items() if offset < control.offset < end
        ]
        return {"changed" for each in left if each.named and each.named.deliver_id == deliver_id}

    def _is_certain(self, record: Produced, log_start: int) -> bool:
        """Say whether a control must find a record that has not left: it was neither trimmed nor rejected by a job."""
        return record.offset >= log_start and not self._may_be_rejected(record)

    def _may_be_found(self, offset: int, log_start: int) -> bool:
        """Say whether a control may find a record: it has not left, or it is gone from the log.

        Nobody can tell whether a query has cancelled a record that is gone.
        """
        left = self._left.get(offset)
        return left is None or (left.startswith(BY_QUERY) and offset < log_start)

    def _itself(self, control: Produced, due_ms: int | None, *, is_void: bool) -> None:
        """Follow the control itself: a cancel or move is done, and so is a replacement that replaces nothing."""
        assert control.named is not None
        if control.named.action == "move":
            # The check of appended records compares the due time that the receipt of a move tells.
            self._left[control.offset] = "its receipt"
        elif control.named.action == "cancel" or is_void:
            require(due_ms is None, f"{control.offset} is no schedule, and is told as due at {due_ms}")
            self._left[control.offset] = "its receipt"
        else:
            require(due_ms == self._due_ms(control), f"{control.offset} is told as due at {due_ms}")

    def _is_in_front(self, record: Produced, offset: int) -> bool:
        """Say whether a control at an offset holds for a record: it lies in front, or follows from one that does."""
        if record.says is None:
            return record.offset < offset
        return _begins_at(record) < offset and record.offset in self._has_appended

    def _moved(self, answer: Answer, says: Any, taken: Mapping[int, Unwritten], moved: Produced | None) -> None:
        """Check that a moved schedule is unchanged but for its due time, which the control gives, and has one receipt.

        The record is written with that receipt, unless a later receipt of the same transaction takes the schedule.
        """
        control = self._produced[answer.offset]
        assert control.named is not None
        if says["outcome"] != "moved":
            require(moved is None, f"{answer.offset} has moved {moved}, and says {says}")
            require(control.named.action != "move" or says["due"] is None, f"{answer.offset} moves nothing: {says}")
            return
        last_offset = says["cancelled"][-1]["offset"]
        last = taken[last_offset].last if last_offset in taken else self._produced[last_offset]
        if moved is None:
            require(says["due"] == self._due_ms(control), f"{answer.offset}: {says}")
            self._unwritten[answer.offset] = Unwritten(control.named.deliver_id, says["due"], last)
            return
        self._moved_now.add(control.named.deliver_id)
        require(says["due"] == self._due_ms(control) == self._due_ms(moved), f"{answer.offset}: {says} of {moved}")
        wanted = last.key, last.value, last.target, _own(last), _which(last)
        found = moved.key, moved.value, moved.target, _own(moved), _which(moved)
        require(found == wanted, f"{answer.offset} has moved {wanted}, and made {found} of it")
        came_from = dict(moved.headers).get("delay-source")
        require(moved.series is not None or came_from == b"d/0/%d" % answer.offset, f"{moved} comes from {came_from!r}")
        require(moved.named == Named(control.named.deliver_id), f"{moved} has another id")

    def _not_in_spite(self, record: Produced) -> None:
        if record.named is None:
            return
        for offset in self._answered:
            control = self._produced[offset].named
            assert control is not None
            if self._is_in_front(record, offset) and control.deliver_id == record.named.deliver_id:
                if (offset, _begins_at(record)) in self._spared:
                    continue
                spared = control.if_due_ms not in (None, self._due_ms(record)) or _is_conditional(record, control)
                require(spared, f"{record.offset} leaves, and {offset} was to cancel it")

    def _due_ms(self, record: Produced) -> int:
        """Return the due time of a record by its headers and its topic; the beginning of a series is due at once."""
        if record.series is not None and record.series.begins:
            return 0
        return -(-self._due_us(record) // 1_000)


def _begins_at(record: Produced) -> int:
    """Return the offset of the record that a producer wrote and this one follows from, or of the move that wrote it."""
    if record.says is None:
        return record.offset
    if record.moved_last is not None:
        return record.moved_last
    assert record.series is not None
    return record.series.first


def _is_judged_when_due(record: Produced) -> bool:
    """Say whether a record is a schedule until it is due, although it may be rejected then.

    The index takes it for one if it claims to be an occurrence, or if it begins a series by cron. Only the first
    occurrence of that series may be due too late.
    """
    if record.series is None:
        return any(name == "deliver-series" for name, _ in record.headers)
    return record.series.begins


def _own(record: Produced) -> list[tuple[str, bytes | None]]:
    """Return the headers that the router has not written."""
    return [(name, raw) for name, raw in record.headers if not name.lower().startswith(("deliver-", "delay-"))]


def _which(record: Produced) -> tuple[int, ...]:
    """Return series and occurrence of a record; the beginning of a series counts as its first occurrence."""
    series = record.series
    return () if series is None else (series.first, series.number, series.period_ms, series.times, series.until_ms)


def _is_conditional(record: Produced, control: Named) -> bool:
    return record.says is not None and control.if_due_ms is not None

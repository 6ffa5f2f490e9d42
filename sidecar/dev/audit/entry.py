"""Determines the outcome of a sent record from its copies and from the receipts that name it."""

from sidecar.dev.audit.attempts import AttemptRules, AuditedAttempt, without_attempts
from sidecar.dev.audit.receipt import control_of, deliver_id_of
from sidecar.dev.audit.record import (
    AuditedRecord,
    digest,
    due_ms,
    follows_from,
    recurs,
    released_key,
    targets,
    user_headers,
)
from sidecar.dev.audit.where import AuditedWhere, marks_of


class Entry:
    """A sent record with its copies and receipts.

    * ``first_offset``: the offset of the record from which it follows, or of the control that has moved it; nearly
      always its own offset. A control behind that offset applies to the record.
    * ``answers``: the number of receipts for the record as a control.
    * ``named``: the outcome in each receipt that names the record.
    * ``is_void``: the record is a control and no schedule.
    * ``has_moved``: a router has written a record for the schedule that this control has moved.
    * ``marks``: marks of its headers, by which a query finds them.
    * ``attempt``: the attempt of a record whose delay topic counts attempts.
    * ``taken_by``: the controls whose receipts name the schedule that this control has moved; no record was written
      for it.
    """

    __slots__ = (
        *("arrivals", "as_rejected", "as_released", "due_ms", "rejections", "targets", "timestamp_ms"),
        *("answers", "control", "deliver_id", "first_offset", "has_begun", "has_moved", "is_void", "named", "recurs"),
        *("attempt", "marks", "taken_by"),
    )

    def __init__(
        self, record: AuditedRecord, default_target: str, delay_ms: int, retry: AttemptRules | None = None
    ) -> None:
        self.control = control_of(record)
        self.deliver_id = deliver_id_of(record)
        self.answers = 0
        self.is_void = self.cancels
        self.named: tuple[str, ...] = ()
        self.due_ms = due_ms(record, delay_ms)
        self.recurs = recurs(record.headers)
        self.has_begun = False
        self.has_moved = False
        self.taken_by: tuple[str, ...] = ()
        self.first_offset = record.offset if (first := follows_from(record)) is None else first
        self.timestamp_ms = record.timestamp_ms
        self.targets = () if self.cancels else targets(record.headers, default_target)
        kept = user_headers(record.headers)
        self.marks = marks_of(record.headers)
        self.attempt: AuditedAttempt | None = None
        if retry is not None and not self.cancels:
            self.attempt = attempt = AuditedAttempt.of(record, default_target, retry)
            self.due_ms, self.targets, kept = attempt.to_ms, attempt.targets, without_attempts(kept)
        self.as_released = digest(released_key(record), record.value, kept)
        self.as_rejected = digest(record.key, record.value, record.headers)
        self.arrivals: tuple[str, ...] = ()
        self.rejections = 0

    @property
    def cancels(self) -> bool:
        """Says that the record is a control and no schedule, independently of its outcome."""
        return self.control is not None and self.control.action != "replace"

    def matches(self, where: AuditedWhere) -> bool:
        """Say whether a predicate is true of the record."""
        return where.matches(self.targets, self.due_ms, self.timestamp_ms, self.deliver_id, self.marks)

    @property
    def has_left(self) -> bool:
        """Says that a copy of the record is in a target or rejected topic."""
        return bool(self.arrivals or self.rejections)

    @property
    def has_left_in_spite(self) -> bool:
        """Says that the record has left although a receipt says that it does not."""
        return self.has_left and bool(self.named or (self.is_void and self.answers))

    def outcome(self, now_ms: int) -> str:
        """Return the name of the one count to which the record belongs."""
        if self.answers > 1 or len(self.named) > 1 or self.has_left_in_spite:
            return "duplicated"
        if len(self.taken_by) + self.has_moved > 1:
            return "duplicated"
        if self.control is not None and not self.answers and not self.rejections:
            # A router writes the receipt when it reads the control, independently of the due times of the schedules.
            return "lost" if self.timestamp_ms <= now_ms else "pending"
        if self.named:
            return self.named[0]
        return "answered" if self.is_void and self.answers else self._by_copies(now_ms)

    def _by_copies(self, now_ms: int) -> str:
        """Return the count by the copies alone; the record that begins a series is released as its first occurrence."""
        if self.has_begun and not self.arrivals and not self.rejections:
            return "released_once"
        if self.arrivals and self.arrivals == self.targets and not self.rejections:
            return "released_once"
        found, wanted = set(self.arrivals), set(self.targets or self.arrivals[:1])
        if len(self.arrivals) > len(found) or self.rejections > 1 or (self.rejections and found):
            return "duplicated"
        if self.rejections:
            return "rejected"
        if found and found >= wanted:
            return "released_once" if found == wanted else "duplicated"
        return "lost" if self.due_ms <= now_ms else "pending"

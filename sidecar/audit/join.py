"""The join: every record sent meets what was found of it. No Kafka here: tests feed it any records."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from sidecar.audit.record import (
    UNREADABLE,
    Record,
    begun_by,
    digest,
    due_ms,
    recurs,
    released_key,
    source_of,
    targets,
    user_headers,
)

_SAMPLES: Final = 20
_REJECTION: Final = ["delay-error", "delay-error-message", "delay-source"]
_OCCURRENCE: Final = ["delay-occurrence", "delay-series"]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What became of the records sent.

    ``sent`` is the sum of the five that follow; the others count copies, of which a record may have several:

    * ``early``: appended before the due time.
    * ``altered``: key, value or user headers differ from what was sent.
    * ``wrong_target``: in a topic the record did not name.
    * ``foreign``: the origin that is named is not in the delay topics.
    * ``unreadable``: released, although this reader cannot work out when it was due.
    * ``create_time``: released to a topic without append times; its punctuality is the router's own word.

    And, to look into it:

    * ``lateness_ms``: sorted; append time minus due time, or minus the time of sending where that was later.
    * ``samples``: per count, a line for each of the first offenders.
    """

    sent: int
    released_once: int
    rejected: int
    pending: int
    duplicated: int
    lost: int
    early: int = 0
    altered: int = 0
    wrong_target: int = 0
    foreign: int = 0
    unreadable: int = 0
    create_time: int = 0
    lateness_ms: Sequence[int] = ()
    samples: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is lost, doubled, early, altered or astray."""
        return not (self.duplicated or self.lost or self.early or self.altered or self.wrong_target or self.foreign)

    def percentile_ms(self, percent: float) -> int:
        """Return the lateness in ms that `percent` % of the released copies kept within; 0 without any."""
        rank = max(ceil(len(self.lateness_ms) * percent / 100), 1)
        return self.lateness_ms[rank - 1] if self.lateness_ms else 0

    def summary(self) -> str:
        """Return the one line that states the outcome; what it leaves out is 0."""
        line = (
            f"sent {self.sent}, released once {self.released_once}, rejected {self.rejected}, "
            f"duplicated {self.duplicated}, early {self.early}, lost {self.lost}"
        )
        for name in ("pending", "altered", "wrong_target", "foreign", "unreadable", "create_time"):
            if count := getattr(self, name):
                line += f", {name.replace('_', ' ')} {count}"
        return line


def join(
    sent: Iterable[Record],
    released: Iterable[Record],
    rejected: Iterable[Record],
    *,
    now_ms: int,
    default_targets: Mapping[str, str] | None = None,
    default_delays_ms: Mapping[str, int] | None = None,
) -> AuditReport:
    """Report on records; each iterable is read once, in this order. Due after `now_ms` may be pending."""
    books = _Books(default_targets or {}, default_delays_ms or {})
    for record in sent:
        books.enter(record)
    for record in released:
        books.release(record)
    for record in rejected:
        books.reject(record)
    return books.report(now_ms)


def check_order(sent: Iterable[Record], released: Iterable[Record]) -> list[str]:
    """Name each release out of the (due, offset) order of its delay partition.

    `released` comes by offset in each partition. Only for callers who know that nothing was indexed after its
    due time: such records rightly go out behind others.
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
        if due[source] <= before:
            breaks.append(f"{record.place}: {source} {due[source]} came after {before_source} {before}")
        last[lane] = due[source], source
    return breaks


class _Entry:
    """A record sent, and what was found of it."""

    __slots__ = (
        *("arrivals", "as_rejected", "as_released", "due_ms", "rejections", "targets", "timestamp_ms"),
        *("has_begun", "recurs"),
    )

    def __init__(self, record: Record, default_target: str, delay_ms: int) -> None:
        self.due_ms = due_ms(record, delay_ms)
        self.recurs = recurs(record.headers)
        self.has_begun = False
        self.timestamp_ms = record.timestamp_ms
        self.targets = targets(record.headers, default_target)
        self.as_released = digest(released_key(record), record.value, user_headers(record.headers))
        self.as_rejected = digest(record.key, record.value, record.headers)
        self.arrivals: tuple[str, ...] = ()
        self.rejections = 0

    def outcome(self, now_ms: int) -> str:
        """Name the one count this record belongs to; one that begins a series is released as its first occurrence."""
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


class _Books:
    """Every record sent by its place, and the counts."""

    def __init__(self, default_targets: Mapping[str, str], default_delays_ms: Mapping[str, int]) -> None:
        self._default_targets = default_targets
        self._default_delays_ms = default_delays_ms
        self._entries: dict[str, _Entry] = {}
        self._begun: list[str] = []
        self._single: dict[str, tuple[str, ...]] = {}
        self._lateness_ms = array("q")
        self._counts = dict.fromkeys(("early", "altered", "wrong_target", "foreign", "unreadable", "create_time"), 0)
        self._samples: dict[str, list[str]] = {}

    def enter(self, record: Record) -> None:
        """Enter a record of a delay topic."""
        target, delay_ms = self._default_targets.get(record.topic, ""), self._default_delays_ms.get(record.topic, 0)
        self._entries[record.place] = _Entry(record, target, delay_ms)
        if beginning := begun_by(record):
            self._begun.append(beginning)

    def release(self, record: Record) -> None:
        """Match a record of a target topic; one without ``delay-source`` came from somebody else."""
        source = source_of(record)
        entry = self._entries.get(source)
        if entry is None:
            if source:
                self._note("foreign", f"{record.place}: no record at {source}")
            return
        # One shared tuple per target: a million records mostly go to a few topics.
        single = self._single.setdefault(record.topic, (record.topic,))
        entry.arrivals = entry.arrivals + single if entry.arrivals else single
        if entry.targets and record.topic not in entry.targets:
            self._note("wrong_target", f"{source}: {record.place}, wanted {', '.join(entry.targets)}")
        if digest(record.key, record.value, user_headers(record.headers)) != entry.as_released:
            self._note("altered", f"{source}: {record.place} differs")
        self._time(entry, record, source)

    def _time(self, entry: _Entry, record: Record, source: str) -> None:
        if not record.appended:
            self._note("create_time", f"{record.topic}: message.timestamp.type is not LogAppendTime")
        if entry.due_ms == UNREADABLE:
            self._note("unreadable", f"{source}: {record.place}, but its schedule cannot be read")
            return
        if record.timestamp_ms < entry.due_ms:
            early_ms = entry.due_ms - record.timestamp_ms
            self._note("early", f"{source}: {record.place} {early_ms} ms before it was due")
        # A producer's clock may run ahead of the broker's; what it sent has left no earlier than it was sent.
        could_leave_ms = max(entry.due_ms, min(entry.timestamp_ms, record.timestamp_ms))
        self._lateness_ms.append(record.timestamp_ms - could_leave_ms)

    def reject(self, record: Record) -> None:
        """Match a record of a rejected topic; a mark of what was driven again is none."""
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

    def report(self, now_ms: int) -> AuditReport:
        """Sum up; records due later than `now_ms` may still be pending."""
        for beginning in self._begun:
            if beginning in self._entries:
                self._entries[beginning].has_begun = True
        outcomes = dict.fromkeys(("released_once", "rejected", "pending", "duplicated", "lost"), 0)
        for source, entry in self._entries.items():
            outcome = entry.outcome(now_ms)
            outcomes[outcome] += 1
            if outcome in {"duplicated", "lost"}:
                found = ", ".join(entry.arrivals) or "nowhere"
                line = f"{source}: in {found}; rejected {entry.rejections} times; due {entry.due_ms}"
                self._sample(outcome, line)
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

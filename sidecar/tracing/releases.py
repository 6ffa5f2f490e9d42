"""Passes committed records from a worker to the tracing thread by a bounded queue, so that releases never wait."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Final, NamedTuple

import structlog

from index.pending.pending import Entry
from index.protocol.headers import Headers
from index.protocol.schedule import AT_ONCE
from sidecar.engine.payload.records import Scheduled
from sidecar.logs.events import Trouble

EXAMINED_RECORDS: Final = 2_000
"""Most records of a transaction that a worker examines, which takes it about a millisecond."""

WAITING_RELEASES: Final = 2_000
"""Most releases that wait for the thread; each is some hundred bytes."""

LOOKS_EVERY_S: Final = 0.5
"""Time within which the thread notices that it must stop, and reports dropped records."""

_TRACEPARENT_BYTES: Final = 55
_FLAGS_END: Final = b"13579bdf"
"""The last digit of the flags when the lowest bit, *sampled*, is set."""


class Traced(NamedTuple):
    """A released record whose trace is sampled; times are of the wall clock."""

    topic: str
    partition: int
    offset: int
    group_id: str
    targets: Sequence[str]
    is_tombstone: bool
    began_ms: int
    released_ms: int
    traceparent: str
    tracestate: str


def traced_among(
    place: tuple[str, int], group_id: str, entries: Iterable[Entry[Scheduled]], now_ms: int
) -> Iterable[Traced]:
    """Yield the records whose producer has sampled the trace.

    The span of a record that arrived after its due time begins when the record was sent.
    """
    for due_ms, offset, (schedule, _, record) in entries:
        if record is None or not (found := _trace_of(record.headers)):
            continue
        traceparent, tracestate = found
        began_ms = record.timestamp_ms if due_ms <= AT_ONCE else max(due_ms, record.timestamp_ms)
        yield Traced(
            *place,
            offset,
            group_id,
            schedule.targets,
            is_tombstone=record.value is None,
            began_ms=min(began_ms, now_ms),
            released_ms=now_ms,
            traceparent=traceparent,
            tracestate=tracestate,
        )


def _trace_of(headers: Headers) -> tuple[str, str] | None:
    """Return the last ``traceparent`` and the last ``tracestate`` if the trace is sampled, otherwise None.

    The caller's propagator checks their form.
    """
    parent = state = b""
    for name, value in headers:
        if name == "traceparent":
            parent = value or b""
        elif name == "tracestate":
            state = value or b""
    if len(parent) < _TRACEPARENT_BYTES or parent[_TRACEPARENT_BYTES - 1] not in _FLAGS_END:
        return None
    return parent.decode("latin-1"), state.decode("latin-1")


class ReleaseTracing(Thread):
    """Passes released records to ``tell``, in a thread of its own, which calls ``close`` at the end."""

    def __init__(self, tell: Callable[[Traced], None], close: Callable[[], None]) -> None:
        super().__init__(name="tracing", daemon=True)
        self._tell = tell
        self._close = close
        self._waiting: Queue[Traced] = Queue(WAITING_RELEASES)
        self._stopping = Event()
        self._log = structlog.get_logger()
        self._trouble = Trouble(self._log)
        self.dropped = 0

    def released(self, place: tuple[str, int], group_id: str, entries: Sequence[Entry[Scheduled]], now_ms: int) -> None:
        """Queue the traced records among the first EXAMINED_RECORDS; any worker may call this."""
        try:
            for traced in traced_among(place, group_id, islice(entries, EXAMINED_RECORDS), now_ms):
                self._waiting.put_nowait(traced)
        except Full:
            # The count is inexact if several workers count at once; it need not be exact.
            self.dropped += 1

    def run(self) -> None:
        """Pass records to ``tell`` until the thread must stop and the queue is empty."""
        told_dropped = 0
        while not (self._stopping.is_set() and self._waiting.empty()):
            try:
                self._tell(self._waiting.get(timeout=LOOKS_EVERY_S))
            except Empty:
                pass
            except Exception:  # noqa: BLE001 - no error of a tracing library must end the thread
                self._trouble.tell("tracing_failed", exc_info=True)
            if self.dropped > told_dropped:
                told_dropped = self.dropped
                self._trouble.tell("traces_dropped", "more is released than spans can be made of")
        self._close()

    def stop(self) -> None:
        """Stop the thread, and wait a moment until the queued records are sent."""
        self._stopping.set()
        self.join(LOOKS_EVERY_S * 4)

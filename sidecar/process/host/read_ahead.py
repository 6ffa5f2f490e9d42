"""Reads and decides in a thread of its own, some fetches ahead, so that both overlap with the waits of the worker."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from sidecar.engine.intake.decided import Decided
from sidecar.engine.intake.deciding import Deciding
from sidecar.kafka.reading.fetching import Fetching
from sidecar.process.host.budget import PayloadBudget
from sidecar.process.host.turnstile import Visitor

FETCH_RECORDS: Final = 500
"""Most records decided at once: deciding them takes some 2 ms, and more of them at once cost no less for each."""

RECORDS_AHEAD: Final = 20_000
"""Records that are decided and not indexed yet: a transaction's worth, read while the transaction before is on its way.
"""

AHEAD_IN_ALL: Final = 200_000
"""The same in all partitions of a process. They are objects of Python, half a kilobyte each, and Python keeps most of
the memory that they have taken."""

FEW_AHEAD: Final = 5_000
"""The same in one partition where memory is not plentiful, since every partition reads ahead."""

LEAST_FETCHES: Final = 2
"""The fetches that are decided ahead in any case: one is indexed while the next one is decided."""

PLENTY_BYTES: Final = 256 * 1_048_576
"""Room for payload from which on memory is plentiful."""

WAIT_S: Final = 0.25
"""Time after which the thread notices that it has to end: a hundred threads that looked more often would take most of
the time of a process."""

FULL_FOR_S: Final = 30.0
"""Longest wait for memory while none is given back, three times the lead of loading segments. Payload that still holds
the memory then does not leave, as with a paused topic, and other partitions must go on. Records read from there on are
left in the delay topic until due, and their index entries are not counted: this is no way to go on while other
partitions are being sealed."""


class ReadAhead:
    """Owns the ``fetching`` of one delay partition; one other thread takes the decided fetches.

    ``needs_room`` says whether reading pauses while memory is full: releases continue and make room. ``visitor`` is the
    other thread: it leaves the turnstile while it waits for a fetch, and is inside afterwards.
    """

    def __init__(
        self,
        fetching: Fetching,
        deciding: Deciding,
        budget: PayloadBudget,
        needs_room: Callable[[], bool],
        visitor: Visitor,
        name: str,
    ) -> None:
        self.log_end = 0
        self._full_since_s: float | None = None
        self._given_back_bytes = 0
        self._fetching = fetching
        self._deciding = deciding
        self._budget = budget
        self._needs_room = needs_room
        self._visitor = visitor
        self._stopping = threading.Event()
        self._taken = threading.Event()
        # Without a limit, since the thread does not read while there are enough fetches.
        self._decided: queue.Queue[Decided] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=f"intake {name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def taken_bytes(self) -> int:
        """Bytes of payload for which memory was taken so far."""
        return self._deciding.taken_bytes

    def next(self, wait_s: float) -> Decided | None:
        """Return the next decided fetch, waiting at most ``wait_s`` for it; raise an error of the thread here."""
        if wait_s > 0:
            self._visitor.leave()
        try:
            decided = self._decided.get(block=wait_s > 0, timeout=wait_s)
        except queue.Empty:
            return None
        finally:
            self._visitor.enter()
        self._taken.set()
        if decided.failed is not None:
            raise decided.failed
        return decided

    def close(self) -> None:
        """End the thread and give the consumer back to librdkafka."""
        self._stopping.set()
        while self._thread.is_alive():
            # The thread may be waiting for memory, or until a fetch is taken.
            self._budget.look_again()
            self._taken.set()
            self._thread.join(0.01)
        self._fetching.close()

    def _run(self) -> None:
        while not self._stopping.is_set() and not self._deciding.has_ended:
            try:
                decided = self._read()
            except Exception as error:  # noqa: BLE001 - it is raised where the worker looks at it
                decided = Decided(failed=error)
            if decided.steps or decided.failed:
                self._decided.put(decided)
            if decided.failed:
                # The error has passed this frame, which would keep it and the reader.
                del decided
                return

    def _read(self) -> Decided:
        self._taken.clear()
        if self._decided.qsize() >= self._most_fetches():
            self._taken.wait(WAIT_S)
            return Decided()
        if self._waits_for_room(time.monotonic()):
            self._budget.wait_until_not_full(WAIT_S)
            return Decided()
        fetch = self._fetching.read(WAIT_S, FETCH_RECORDS)
        decided = Decided() if fetch is None else self._deciding.decide(fetch)
        self.log_end = self._fetching.log_end()
        return decided

    def _most_fetches(self) -> int:
        """Return how many fetches may be decided and not indexed."""
        records = RECORDS_AHEAD if self._budget.room_bytes >= PLENTY_BYTES else FEW_AHEAD
        return max(min(records, AHEAD_IN_ALL // self._budget.partitions) // FETCH_RECORDS, LEAST_FETCHES)

    def _waits_for_room(self, now_s: float) -> bool:
        if not self._budget.is_full or not self._needs_room():
            self._full_since_s = None
            return False
        given_back_bytes = self._budget.given_back_bytes
        if self._full_since_s is None or given_back_bytes != self._given_back_bytes:
            self._full_since_s, self._given_back_bytes = now_s, given_back_bytes
        return now_s < self._full_since_s + FULL_FOR_S

"""A transactional producer, and the transactions that one partition or several write with it.

The threads of the partitions hand in their parts. The thread that finds the producer free becomes the leader: it begins
a transaction, writes its own part and all parts that wait, and commits them together. Parts that come in meanwhile wait
for the next transaction, which the first of their threads leads. So the number of transactions does not grow with the
number of partitions (a *group commit*). A leader wakes the threads of its parts and the next leader, and no others::

    partition 3 ──► part ┐                       ┌──► COMMITTED
    partition 7 ──► part ├─► one transaction ────┼──► COMMITTED
    partition 9 ──► part ┘                       └──► COMMITTED

If the brokers refuse something in a shared transaction, or abort it, each part is tried in a transaction of its own.
So one partition alone hears of a refusal. After an unknown outcome, or when another owner has fenced the producer, the
lane ends: each partition hears it with its next part, and is taken over anew.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from threading import Lock
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from index.errors import ClusterError, ConnectionLostError
from sidecar.engine.release.transaction import MAX_BATCH_BYTES, SETTLE_S, Outcome, Result
from sidecar.kafka.client.connections import RenewableProducer
from sidecar.kafka.client.errors import Verdict, classify, cluster_error, error_of
from sidecar.kafka.writing import transactions

Finish = Callable[[], Result]
"""Makes the result of a part of a committed transaction."""

Part = Callable[[], Finish]
"""Writes a part into the open transaction."""

_OUTCOMES: Final = {
    Verdict.REFUSED: Outcome.REFUSED,
    Verdict.AGAIN: Outcome.ABORTED,
    Verdict.FENCED: Outcome.FENCED,
}
"""Outcomes by verdict. After any other error the outcome is unknown, or the producer is of no use any more: also
UNKNOWN."""

_FAILED: Final = "a commit of several partitions has failed; the log has the error of the partition that led it"

_ENDS_LANE: Final = frozenset({Outcome.UNKNOWN, Outcome.FENCED})

SERVE_EVERY_S: Final = 0.05
"""The time between two looks at the log lines of an idle producer, for all partitions of a lane."""

_ALONE_BYTES: Final = MAX_BATCH_BYTES + 1
"""The size of a turn that shares the producer with no part."""


def _no_part() -> Finish:
    raise AssertionError("a thread that has the producer alone hands in no part")


def _locked() -> Lock:
    lock = Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class _Turn:
    """A thread that waits until it leads, or until the leader has set the result of its part.

    The leader releases ``woken``, for which the thread waits.
    """

    part: Part = _no_part
    size_of: Callable[[], int] = lambda: _ALONE_BYTES
    result: Result | None = None
    defect: Exception | None = None
    woken: Lock = field(default_factory=_locked)


class Lane:
    """A producer that has fenced all others of its transactional id; any thread may use it."""

    def __init__(self, producer: RenewableProducer) -> None:
        self.producer = producer
        self._lock = Lock()
        self._is_busy = False
        self._waiting: list[_Turn] = []
        self._open_again_s = self._serve_s = 0.0
        self._end: Result | None = None
        # Made now, because a leader needs it when it may have no memory left.
        self._failed = _unknown(RuntimeError(_FAILED))

    @property
    def has_ended(self) -> bool:
        """Says that the lane commits no further transaction."""
        return self._end is not None

    @property
    def is_over(self) -> bool:
        """Says that the lane has ended, and that no thread is in a call of its producer or will make one."""
        # In this order: a thread that had the producer when the lane ended has let it go.
        return self._end is not None and not self._is_busy

    def commit(self, part: Part, size_of: Callable[[], int]) -> Result:
        """Commit a part, alone or with the parts of other partitions; ``size_of`` returns its size in bytes.

        Raise the error of a part that fails by itself.
        """
        mine = _Turn(part, size_of)
        with self._leading(mine) as leads:
            if leads:
                self._commit_with_waiting(mine)
        if mine.defect is not None:
            raise mine.defect
        assert mine.result is not None
        return mine.result

    @contextmanager
    def alone(self) -> Iterator[RenewableProducer]:
        """Wait for the producer, and keep it from all other partitions; an error within ends the lane."""
        with self._leading(_Turn()):
            self._raise_end()
            try:
                yield self.producer
            except Exception as error:
                self._end = _unknown(error)
                raise

    def serve(self) -> None:
        """Let the producer hand over its log lines if it is time; raise the error by which the lane has ended."""
        now_s = time.monotonic()
        if self._end is None and now_s < self._serve_s:
            return
        self._serve_s = now_s + SERVE_EVERY_S
        with self._leading() as leads:
            if not leads:
                # The commit that is under way serves the producer.
                return
            self._raise_end()
            try:
                self.producer.require_connections()
            except ConnectionLostError as error:
                self._end = _unknown(error)
                raise

    def end(self) -> None:
        """Note that the producer was fenced, so that no part is tried with it any more."""
        self._end = self._end or Result(Outcome.FENCED, error=_fenced())

    def close(self) -> None:
        """Throw the producer away; the next one of its transactional id settles an open transaction."""
        self.producer.purge()

    def _leads(self, mine: _Turn | None) -> bool:
        with self._lock:
            if not self._is_busy:
                self._is_busy = True
                return True
            if mine is None:
                return False
            self._waiting.append(mine)
        mine.woken.acquire()
        return mine.result is None

    @contextmanager
    def _leading(self, mine: _Turn | None = None) -> Iterator[bool]:
        """Wait for the turn of a thread, and yield whether it leads; let the first thread that waits lead after it.

        If it does not lead, the result of its part is set. A thread without a turn does not wait. A thread that leads
        runs no code outside, since it may run out of memory there, and all others would wait for ever.
        """
        leads = self._leads(mine)
        try:
            yield leads
        finally:
            if leads:
                with self._lock:
                    self._is_busy = bool(self._waiting)
                    if self._is_busy:
                        self._waiting.pop(0).woken.release()

    def _raise_end(self) -> None:
        if self._end is not None:
            self._end.give_up()

    def _commit_with_waiting(self, mine: _Turn) -> None:
        """Commit the part of the leader with the parts that wait, and set the result of each."""
        pause_s = self._open_again_s - time.monotonic()
        if pause_s > 0:
            time.sleep(pause_s)
        together = self._take(mine)
        try:
            if self._end is None and self._try(together) and len(together) > 1:
                for each in together:
                    if self._end is None:
                        self._try([each])
        finally:
            for each in together:
                if each.result is None:
                    self._end = each.result = self._end or self._failed
                each.woken.release()

    def _take(self, mine: _Turn) -> list[_Turn]:
        """Return the turn of the leader and the first ones that wait, as many as fit into one transaction."""
        with self._lock:
            if not self._waiting:
                return [mine]
            sizes_bytes = accumulate((each.size_of() for each in self._waiting), initial=mine.size_of())
            fitting = sum(1 for _ in takewhile(MAX_BATCH_BYTES.__ge__, sizes_bytes))
            together = [mine, *self._waiting[: max(fitting - 1, 0)]]
            del self._waiting[: len(together) - 1]
        return together

    def _try(self, together: Sequence[_Turn]) -> bool:
        """Commit these parts in one transaction; return True if it was aborted, and set no result of several parts."""
        finishes: list[Finish] = []
        try:
            self.producer.begin_transaction()
            finishes += [each.part() for each in together]
            transactions.commit(self.producer)
        except ConnectionLostError as error:
            self._end = _unknown(error)
        except KafkaException as exception:
            return self._has_aborted(_after(exception), together)
        except Exception as defect:  # noqa: BLE001 - a defect of the router that shows in one part is raised there
            if len(together) == 1:
                together[0].defect = defect
            return self._has_aborted(Result(Outcome.ABORTED, error=defect), together)
        else:
            self._open_again_s = time.monotonic() + SETTLE_S
            for each, finish in zip(together, finishes, strict=True):
                each.result = finish()
        return False

    def _has_aborted(self, result: Result, together: Sequence[_Turn]) -> bool:
        """Abort the transaction if its outcome leaves it open, and say whether the lane goes on."""
        if result.outcome not in _ENDS_LANE:
            try:
                self.producer.abort_transaction()
            except KafkaException as exception:
                error = error_of(exception)
                result = Result(Outcome.UNKNOWN, error=cluster_error(error), why=error.str())
        if result.outcome in _ENDS_LANE:
            self._end = result
            return False
        if len(together) == 1:
            together[0].result = result
        return True


def _after(exception: KafkaException) -> Result:
    error = error_of(exception)
    return Result(_OUTCOMES.get(classify(error), Outcome.UNKNOWN), error=cluster_error(error), why=error.str())


def _unknown(error: Exception) -> Result:
    return Result(Outcome.UNKNOWN, error=error, why=str(error))


def _fenced() -> ClusterError:
    return cluster_error(KafkaError(KafkaError._FENCED, "fenced by a take-over of a partition of the lane"))

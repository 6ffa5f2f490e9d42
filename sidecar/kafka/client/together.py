"""Asks the cluster once for all workers that ask the same at the same time.

The partitions that a process takes over together ask for the same: the facts of their topics, the leaders of all
partitions, and the end of each partition of a target. Each answer names all partitions of the topics. So the cost of a
start would grow with the square of the number of partitions.

A look answers all questions that were asked before it began, and no others. So an answer is never older than its
question, as when each worker asks by itself::

    worker 1 ──asks──► ┌─ look ─┐──► its answer
    worker 2 ──asks──► waits    └─► ┌─ look ─┐──► its answer
    worker 3 ──asks──────► waits    └────────┘──► its answer
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Final, Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException

from sidecar.kafka.client.errors import error_of

K = TypeVar("K")
V = TypeVar("V")

_FAILED: Final = "a question of several partitions has failed; the log has the error of the partition that asked it"


@dataclass(eq=False)
class _Look(Generic[K, V]):
    """A look that has not begun, or its answers, or the error that it ended with.

    The exception itself would keep the frames that it has passed, and they keep the client of the worker.
    """

    keys: dict[K, None] = field(default_factory=dict)
    answers: Mapping[K, V] | None = None
    error: KafkaError = field(default_factory=lambda: KafkaError(KafkaError._FAIL, _FAILED))
    over: Event = field(default_factory=Event)

    def run(self, ask: Callable[[Iterable[K]], Mapping[K, V]]) -> Mapping[K, V]:
        try:
            answers = self.answers = ask(self.keys)
        except KafkaException as exception:
            self.error = error_of(exception)
            raise
        finally:
            self.over.set()
        return answers


class Together(Generic[K, V]):
    """Answers questions about keys; any thread may ask. One look at a time is under way."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._looking = Lock()
        self._next: _Look[K, V] | None = None

    def answers(self, keys: Iterable[K], ask: Callable[[Iterable[K]], Mapping[K, V]]) -> Mapping[K, V]:
        """Return the answers about these keys, and about keys that other threads ask about at the same time.

        ``ask`` is called with all of them by the first thread of a look. The other threads wait for it, and for the
        look before it. If it raises an error, each of them raises a KafkaException.
        """
        asked = dict.fromkeys(keys)
        with self._lock:
            is_first = self._next is None
            look = self._next = self._next or _Look()
            look.keys.update(asked)
        if is_first:
            with self._looking:
                with self._lock:
                    self._next = None
                return look.run(ask)
        look.over.wait()
        if look.answers is None:
            raise KafkaException(look.error)
        return look.answers

"""The consumers that pages are read with, kept from one page to the next.

To make some, to have them learn who leads what and to connect them takes longer than all that is read to find an id.
There are never more than pages at a time. They fetch nothing while they are kept, and are closed when somebody asks
again and they have read a topic that was deleted or created again, or nothing for a while.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition

from index.errors import ClusterError
from sidecar.config.model import Config
from sidecar.intake.offset_reader import OffsetReader
from sidecar.kafka import clients
from sidecar.kafka.admin import REQUEST_TIMEOUT_S
from sidecar.kafka.scan import read_part
from sidecar.ports import Place, Stored

KEPT_FOR_S: Final = 120.0
"""Brokers close what nothing came through for minutes, and whoever asks next would have to notice that first."""

T = TypeVar("T")


class Closable(Protocol):
    """What is kept."""

    def close(self) -> None:
        """Give back what it holds."""


R = TypeVar("R", bound=Closable)


class Readers:
    """What one page is read with; not to be shared between threads."""

    def __init__(self, config: Config) -> None:
        self.records = OffsetReader(partial(clients.reader, config), partial(clients.bulk_reader, config))
        self._config = config
        self._state: Consumer | None = None

    def log_range(self, place: Place) -> tuple[int, int]:
        """First offset that a partition still has, and the one behind its last committed record; KafkaException."""
        start, settled = self._connected().get_watermark_offsets(TopicPartition(*place), REQUEST_TIMEOUT_S)
        return start, settled

    def state_since(self, place: Place, offset: int) -> tuple[list[Stored], int]:
        """What a state partition has from an offset on, up to the first open transaction; also where that ended."""
        start, settled = self.log_range(place)
        return read_part(self._connected(), *place, max(start, offset), settled), settled

    def close(self) -> None:
        """Give the consumers back."""
        self.records.close()
        if self._state is not None:
            self._state.close()

    def _connected(self) -> Consumer:
        if self._state is None:
            self._state = clients.state_reader(self._config)
        return self._state


class About(NamedTuple):
    """What is read: a delay topic, and the ids under which it and its state topic were created."""

    topic: str
    topic_id: str | None
    state_id: str | None


class _Kept(NamedTuple, Generic[R]):
    about: About
    readers: R
    used_s: float


class KeptReaders(Generic[R]):
    """At most ``most`` of them, each lent to one page at a time; any thread may ask.

    ``connect`` makes one, ``now_s`` is a clock that only goes forward.
    """

    def __init__(self, connect: Callable[[], R], most: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._most = most
        self._now_s = now_s
        self._room = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._kept: list[_Kept[R]] = []
        self._lent = 0
        self._is_closed = False

    def read(self, about: About, work: Callable[[R], T]) -> T:
        """What ``work`` makes of readers that have read this and nothing else before, or else of new ones.

        Where the cluster fails kept ones, it is done once more, with new ones: those ask anew who leads what.
        """
        with self._room:
            found = self._take(about)
            try:
                if found is not None:
                    with suppress(KafkaException, ClusterError):
                        return self._used(about, found, work)
                return self._used(about, self._connect(), work)
            finally:
                with self._lock:
                    self._lent -= 1

    def close(self) -> None:
        """Close what is kept now, and keep nothing from now on."""
        with self._lock:
            self._is_closed = True
            kept, self._kept = self._kept, []
        _close(kept)

    def _take(self, about: About) -> R | None:
        """Kept ones that are about this, if there are any; there is room for them, or for new ones, from now on."""
        with self._lock:
            self._lent += 1
            good = [each for each in self._kept if self._is_good(each, about)]
            found = next((each for each in good if each.about == about), None)
            others = [each for each in good if each is not found]
            left = others[max(0, len(others) + self._lent - self._most) :]
            gone = [each for each in self._kept if each is not found and each not in left]
            self._kept = left
        _close(gone)
        return None if found is None else found.readers

    def _is_good(self, kept: _Kept[R], about: About) -> bool:
        is_other = kept.about.topic == about.topic and kept.about != about
        return not is_other and self._now_s() - kept.used_s <= KEPT_FOR_S

    def _used(self, about: About, readers: R, work: Callable[[R], T]) -> T:
        """Keep them afterwards, unless that fails: what they are in the middle of then would be in the way."""
        try:
            done = work(readers)
        except BaseException:
            readers.close()
            raise
        kept = _Kept(about, readers, self._now_s())
        with self._lock:
            if not self._is_closed:
                self._kept.append(kept)
                return done
        _close([kept])
        return done


def _close(kept: Iterable[_Kept[R]]) -> None:
    for each in kept:
        each.readers.close()

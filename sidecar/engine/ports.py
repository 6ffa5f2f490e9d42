"""The ports through which the engine reaches the cluster and its process, and the values that pass through them."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from index.protocol.record import Record
from index.protocol.schedule import Reason, Rejection

T = TypeVar("T")

Place = tuple[str, int]
"""A partition of a topic."""

KNOWN_FOR_S = 10.0
"""Seconds for which a good target is trusted. A topic that is deleted meanwhile holds up its partition until the
producer gives up, after 10 s by default; a question to the cluster costs one release 2 ms."""

REFUSED_FOR_S = 2.0
"""Seconds for which a bad target is remembered: few, so that the next record finds a topic that was created late."""


class Stored(NamedTuple):
    """One record of a compacted topic, as it is stored."""

    offset: int
    key: bytes | None
    value: bytes | None


class Demands(NamedTuple):
    """The demands of a topic on each record; no demands where the router may not describe the topic."""

    key: bool = False
    max_batch_bytes: int = 1 << 62


NO_DEMANDS: Final = Demands()


class Target(NamedTuple):
    """One target topic, as the cluster describes it."""

    partitions: int
    refusal: Rejection | None
    expires_s: float
    demands: Demands = NO_DEMANDS

    @property
    def is_unknown(self) -> bool:
        """Says that the topic does not exist in the cluster."""
        return self.refusal is not None and self.refusal.reason is Reason.TARGET_UNKNOWN


class Directory(Protocol):
    """The port through which targets are looked up."""

    def resolve(self, names: Iterable[str], known_for_s: float = KNOWN_FOR_S) -> dict[str, Target]:
        """Look up several targets; raise ClusterError when the cluster does not answer."""

    def forget(self) -> None:
        """Forget all answers, because a broker has contradicted one: the next lookup asks the cluster again."""


ReadEach: TypeAlias = Generator[tuple[int, Record | None], None, None]
"""Pairs of offset and record in ascending order; the record is None if the topic no longer holds it."""


class Records(Protocol):
    """The port through which records are read again by their offsets; not to be shared between threads.

    Each method raises ClusterError on timeout or any other error: the caller may then draw no conclusion.
    """

    def read(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Return the records at ascending offsets; None for one that the topic no longer holds."""

    def read_each(self, topic: str, partition: int, offsets: Sequence[int]) -> ReadEach:
        """Yield the records that ``read`` returns, if they may be too many to hold at once; close the generator."""

    def read_large(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Return large records that a router has written; None also for one that is lost, or whose batch is damaged."""

    def read_apart(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Return small records that lie apart, as ``read_large`` does."""

    def scan(self, topic: str, partition: int, from_offset: int, to_offset: int) -> Iterator[tuple[int, Record]]:
        """Yield every record of [from_offset, to_offset) with its offset; yield none if the first ones are gone."""

    def scan_left(self, topic: str, partition: int, from_offset: int, to_offset: int) -> Iterator[tuple[int, Record]]:
        """Yield every record of [from_offset, to_offset) that the topic still holds, with its offset."""

    def first_timestamp_ms(self, topic: str, partition: int, from_offset: int) -> int | None:
        """Return the timestamp of the first record from an offset on; None without one, or if the offset is gone."""

    def log_start(self, topic: str, partition: int) -> int:
        """Return the first offset that the topic still has."""


class Turns(Protocol):
    """The port through which partitions take turns, a few at a time."""

    def has_come(self, who: object, now_s: float) -> bool:
        """Say whether ``who`` has its turn, which it keeps until it leaves; the first call puts it in line."""

    def leave(self, who: object) -> None:
        """Give the turn, or the place in line, to the next one."""


class Handover(Protocol[T]):
    """The port through which one thread passes items to another, a few ahead."""

    @property
    def is_closed(self) -> bool:
        """Says that the handover takes no more items."""

    def put(self, made: T) -> bool:
        """Pass the next item, and wait for room; return False if the handover is closed before there is any."""

    def take(self) -> Sequence[T]:
        """Take the next item; the result is empty if none is ready."""

    def close(self) -> None:
        """Close the handover, so that the thread that makes the items ends."""


class Pool(Protocol):
    """The port to the threads that all partitions share. Each kind of work has its own, so that none waits for another.

    The result of the work is in the future, or the error that it raised.
    """

    @property
    def seals(self) -> Turns:
        """Turns to seal."""

    @property
    def merges(self) -> Turns:
        """Turns to merge."""

    def load(self, work: Callable[[Records], T]) -> Future[T]:
        """Read segments that are due soon."""

    def look(self, work: Callable[[Records], T]) -> Future[T]:
        """Read a record or two."""

    def merge(self, work: Callable[[Records], None]) -> Future[None]:
        """Prepare a merge."""

    def scan(self, work: Callable[[Records], T]) -> Future[T]:
        """Read whole buckets."""

    def fetch(self, work: Callable[[Records], T]) -> Future[T]:
        """Read segments that a merge needs next."""

    def look_up(self, work: Callable[[Records], T]) -> Future[T]:
        """Look for ids."""

    def handover(self, most: int) -> "Handover[Any]":
        """Make a handover with room for ``most`` items; 0: without bound."""

    def encode(self, work: Callable[[], T]) -> Future[T]:
        """Encode a segment."""


class Budget(Protocol):
    """The port to the memory that all partitions of a process together may spend on payload."""

    @property
    def room_bytes(self) -> int:
        """Bytes that are still free."""

    @property
    def is_full(self) -> bool:
        """Says that reads that can wait should wait, and that all entries that can be sealed should be sealed."""

    def take(self, size_bytes: int) -> None:
        """Count bytes as used; the sum may exceed the limit by the records of one intake."""

    def give_back(self, size_bytes: int) -> None:
        """Count bytes as free again."""

"""Where transactions are open, and what they hide: the ends of partitions, and records that nobody sees yet."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from index.errors import NotYetError
from index.headers import DELAY_DUE, DELAY_SOURCE, DELAY_SOURCE_TIMESTAMP, DELAY_SPREAD
from index.orphans import NOTHING_WRITTEN
from index.record import Record
from sidecar.config.model import Config
from sidecar.healing.short_transactions import SECOND_TOUCH_KEY
from sidecar.kafka import clients
from sidecar.kafka.admin import MISSING, Place, Told, offsets

POLL_S = 5.0
PAUSE_S = 0.02
ENDED_WITHIN_S = 10.0
BEYOND_ALL = (1 << 63) - 1

_NOT_OURS = MISSING | {KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""Nothing of ours is in a topic that is gone, or that the router may not see."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Of a partition: up to where committed records are seen, up to where it is written, and since which election."""

    settled: int
    written: int
    leader_epoch: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open there, of whomever."""
        return self.settled < self.written


@dataclass(frozen=True, slots=True)
class Found:
    """A record of this delay partition behind an open transaction.

    ``source_offset`` is NOTHING_WRITTEN for what only ended a transaction. ``due_ms`` is None where its headers do not
    tell whether it named a time; those of a rejected record never do. ``leader_epoch``: it was written after that
    election of a leader.
    """

    offset: int
    source_offset: int
    due_ms: int | None
    record: Record
    leader_epoch: int | None

    @property
    def is_of_second(self) -> bool:
        """Whether the producer that only heals wrote it; what the other one writes says nothing about its end."""
        return self.record.key == SECOND_TOUCH_KEY


class Read(NamedTuple):
    """A record where it was found."""

    offset: int
    record: Record
    leader_epoch: int | None


def ends_of(admin: AdminClient, places: Iterable[Place]) -> dict[Place, Ends]:
    """The ends of many partitions, in a request to each broker; those that are not there are left out.

    KafkaException when one cannot be asked: it may be the one that hides something.
    """
    wanted = {place: OffsetSpec.latest() for place in places}
    if not wanted:
        return {}
    # In this order: what is committed between the two questions must not look open for longer than it is.
    written = _offsets(admin, wanted, IsolationLevel.READ_UNCOMMITTED)
    settled = _offsets(admin, wanted, IsolationLevel.READ_COMMITTED)
    return {
        place: Ends(min(settled[place].offset, end), end, settled[place].leader_epoch)
        for place, (end, _) in written.items()
        if place in settled
    }


def still_open(admin: AdminClient, places: Iterable[Place], within_s: float) -> dict[Place, Ends]:
    """Where something that is written by now is not settled even after a moment."""
    deadline_s = time.monotonic() + within_s
    left = {place: ends for place, ends in ends_of(admin, places).items() if ends.is_open}
    while left and time.monotonic() < deadline_s:
        time.sleep(PAUSE_S)
        now = ends_of(admin, left)
        left = {
            place: Ends(now[place].settled, ends.written, now[place].leader_epoch)
            for place, ends in left.items()
            if place in now and now[place].settled < ends.written
        }
    return left


def wait_until_ended(admin: AdminClient, place: Place, is_ended: Callable[[Ends], bool]) -> None:
    """Wait until what was open on a partition is ended; NotYetError when it is not within ``ENDED_WITHIN_S``."""
    deadline_s = time.monotonic() + ENDED_WITHIN_S
    while not all(is_ended(now) for now in ends_of(admin, [place]).values()):
        if time.monotonic() > deadline_s:
            raise NotYetError(
                f"a transaction on {place[0]}/{place[1]} is open, and is not of the producer id that this partition"
                " has now, or somebody else's is in front of it; see OPERATIONS, 'A transaction that nobody ends'"
            )
        time.sleep(PAUSE_S)


def _offsets(admin: AdminClient, at: dict[Place, OffsetSpec], isolation: IsolationLevel) -> dict[Place, Told]:
    found: dict[Place, Told] = {}
    for place, told in offsets(admin, at, isolation).items():
        if isinstance(told, Told):
            found[place] = told
        elif told.code() not in _NOT_OURS:
            raise NotYetError(
                f"{place[0]}/{place[1]} does not tell whether a transaction of this partition is open"
                f" there ({told.name()}); until it does, nothing may be written there"
            ) from KafkaException(told)
    return found


def read_hidden(config: Config, place: Place, from_offset: int, to_offset: int) -> Iterator[Read]:
    """Records of [from_offset, to_offset), of open and aborted transactions too; KafkaException also on timeout."""
    return _read(clients.hidden_reader(config), place, from_offset, to_offset)


def read_seen(config: Config, place: Place, from_offset: int, to_offset: int, source: str) -> list[Found]:
    """As ``ours`` of what readers of committed records see of [from_offset, to_offset)."""
    return ours(_read(clients.state_reader(config), place, from_offset, to_offset), source)


def _read(consumer: Consumer, place: Place, from_offset: int, to_offset: int) -> Iterator[Read]:
    try:
        consumer.assign([TopicPartition(*place, from_offset)])
        yield from _scan(consumer, from_offset, to_offset)
    finally:
        consumer.close()


def _scan(consumer: Consumer, from_offset: int, to_offset: int) -> Iterator[Read]:
    while from_offset < to_offset:
        first = consumer.poll(POLL_S)
        if first is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"offset {from_offset} was not read in time"))
        for message in [first, *consumer.consume(10_000, 0)]:
            error = message.error()
            offset = message.offset() or 0
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            from_offset = offset + (error is None)
            if error is not None:
                return
            if offset < to_offset:
                yield Read(offset, _record_of(message), message.leader_epoch())


def _record_of(message: Message) -> Record:
    try:
        # The stubs also allow what may only be given to produce.
        headers: Any = message.headers() or ()
    except (UnicodeDecodeError, SystemError):
        # A name that is no UTF-8, which no record of ours has.
        headers = ()
    return Record(message.key(), message.value(), headers, message.timestamp()[1])


def first_offsets(admin: AdminClient, places: Iterable[Place], since_ms: int | None) -> dict[Place, int]:
    """The first offset of each as late as that, or the first there is; beyond all where nothing is as late."""
    spec = OffsetSpec.earliest() if since_ms is None else OffsetSpec.for_timestamp(max(since_ms, 0))
    wanted = dict.fromkeys(places, spec)
    found = _offsets(admin, wanted, IsolationLevel.READ_UNCOMMITTED) if wanted else {}
    return {place: offset if offset >= 0 else BEYOND_ALL for place, (offset, _) in found.items()}


def ours(records: Iterable[Read], source: str) -> list[Found]:
    """Those that the router has made of records of a delay partition; ``source`` is its ``topic/partition/``."""
    prefix = source.encode()
    found: list[Found] = []
    for offset, record, leader_epoch in records:
        headers = dict(record.headers)
        place = headers.get(DELAY_SOURCE)
        if place is None or not place.startswith(prefix):
            continue
        number = _number(place[len(prefix) :])
        if number is None:
            if place != prefix + b"%d" % NOTHING_WRITTEN:
                continue
            number = NOTHING_WRITTEN
        found.append(Found(offset, number, _due_of(headers), record, leader_epoch))
    return found


def _due_of(headers: dict[str, bytes | None]) -> int | None:
    due_ms, timestamp_ms = _number(headers.get(DELAY_DUE)), _number(headers.get(DELAY_SOURCE_TIMESTAMP))
    if due_ms is None:
        return None
    # The timestamp stands for a time nobody named, see index.released_headers.
    return None if due_ms == (timestamp_ms or 0) else due_ms + (_number(headers.get(DELAY_SPREAD)) or 0)


def _number(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) < 20 else None  # noqa: PLR2004 - of int64

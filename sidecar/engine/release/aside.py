"""Knows the places in doubt of one delay partition, and the records that must not be written to them.

A record waits only if it would be written to a place in doubt: by ``deliver-partition``, by its key, or because its
series would be continued in a delay partition that is in doubt. A record without a key goes to another partition of its
target. While a topic has a place in doubt, the partition of each record for it is chosen here, since a producer with
newer metadata could choose a place in doubt.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from index.pending.pending import Entry
from index.protocol.partitioner import partition_of_key
from index.protocol.record import Record
from index.protocol.recurring import may_recur
from index.protocol.schedule import BY_KEY, KeepKey, Schedule
from sidecar.engine.payload.records import Refused, Scheduled
from sidecar.engine.ports import Place

TOLD_AT_MOST: Final = 5
"""Most places that one line for a person names."""


class Doubt(NamedTuple):
    """An open transaction that the brokers may have forgotten.

    ``from_offset`` is its first offset. ``first_epoch`` is the leader epoch of the record there, None where the record
    could not be read. The doubt ends once all records below ``until_offset`` are settled.
    """

    from_offset: int
    until_offset: int
    first_epoch: int | None


class PlaceEnds(NamedTuple):
    """The last stable offset of a partition, its end, and the epoch of its leader, None where that is not known."""

    settled: int
    written: int
    leader_epoch: int | None

    @property
    def is_open(self) -> bool:
        """True when a transaction is open there."""
        return self.settled < self.written


def doubt_of(ends: PlaceEnds, first_epoch: int | None) -> Doubt | None:
    """Return the doubt about a partition, None where the brokers have forgotten nothing there.

    ``first_epoch`` is the leader epoch of the record at the last stable offset, None where it could not be read.

    >>> doubt_of(PlaceEnds(40, 44, leader_epoch=7), first_epoch=7)
    >>> doubt_of(PlaceEnds(40, 44, leader_epoch=8), first_epoch=7)
    Doubt(from_offset=40, until_offset=44, first_epoch=7)
    """
    if not ends.is_open or (first_epoch is not None and first_epoch == ends.leader_epoch):
        return None
    return Doubt(ends.settled, ends.written, first_epoch)


Doubts = Mapping[Place, Doubt | None]
"""The places in doubt; None where the partition gives no answer."""


class Aside:
    """Decides which records of one delay partition must wait; used by its worker only.

    ``delay`` and ``receipts`` are the places of the delay partition itself and of its receipts, ``rejected`` is the
    rejected topic. ``partitions_of`` returns how many partitions a topic has.
    """

    def __init__(self, delay: Place, receipts: Place, rejected: str, partitions_of: Callable[[str], int]) -> None:
        self._own = (delay, receipts)
        self._rejected = rejected
        self._partitions_of = partitions_of
        self.doubts: Doubts = {}
        self._by_topic: dict[str, frozenset[int]] = {}

    def use(self, doubts: Doubts) -> None:
        """Set the places in doubt."""
        self.doubts = doubts
        self._by_topic = {
            topic: frozenset(partition for name, partition in doubts if name == topic) for topic, _ in doubts
        }

    @property
    def holds_back(self) -> bool:
        """True while any place is in doubt."""
        return bool(self.doubts)

    @property
    def stops_intake(self) -> bool:
        """True while the delay partition or its receipts are in doubt, so that no control can be answered."""
        return any(place in self.doubts for place in self._own)

    @property
    def stops_series(self) -> bool:
        """True while the delay partition is in doubt, so that no next occurrence can be written to it."""
        return self._own[0] in self.doubts

    def blocking(self, entry: Entry[Scheduled]) -> tuple[str, ...]:
        """Return the names of the places in doubt that the record would be written to; O(targets)."""
        if not self.doubts:
            return ()
        schedule, _, record = entry[2]
        assert record is not None, f"offset {entry[1]} was not re-read"
        places = [(target, each) for target in schedule.targets for each in self._hit(target, schedule, record)]
        if self.stops_series and may_recur(record.headers):
            places.append(self._own[0])
        return tuple(f"{topic}/{partition}" for topic, partition in places)

    def _hit(self, target: str, schedule: Schedule, record: Record) -> list[int]:
        doubted = self._by_topic.get(target)
        if doubted is None:
            return []
        if schedule.partition != BY_KEY:
            return [schedule.partition] if schedule.partition in doubted else []
        partitions, key = self._partitions_of(target), _key(schedule, record)
        if len(schedule.targets) > 1 or partitions <= len(doubted):
            # The targets may have different numbers of partitions, and a schedule names one partition for all of them.
            return sorted(doubted)
        if key is None:
            return []
        chosen = partition_of_key(key, partitions)
        return [chosen] if chosen in doubted else []

    def routed(self, entries: list[Entry[Scheduled]]) -> list[Entry[Scheduled]]:
        """Return the same records, with an explicit partition where a target has a place in doubt."""
        return [self._routed(entry) for entry in entries]

    def _routed(self, entry: Entry[Scheduled]) -> Entry[Scheduled]:
        due_ms, offset, payload = entry
        schedule, _, record = payload
        if schedule.partition != BY_KEY or record is None or self._by_topic.keys().isdisjoint(schedule.targets):
            return entry
        (target,) = schedule.targets
        key = _key(schedule, record)
        if key is None:
            partition = self._other_partition(target, offset)
        else:
            partition = partition_of_key(key, self._partitions_of(target))
        return due_ms, offset, payload._replace(schedule=schedule._replace(partition=partition))

    def rejected(self, refused: Iterable[tuple[int, Refused]]) -> list[tuple[int, Refused]]:
        """Return the same rejections, with an explicit partition while the rejected topic has a place in doubt."""
        if self._rejected not in self._by_topic:
            return list(refused)
        return [
            (offset, each._replace(partition=self._other_partition(self._rejected, offset))) for offset, each in refused
        ]

    def _other_partition(self, topic: str, spread_by: int) -> int:
        doubted = self._by_topic[topic]
        others = [each for each in range(self._partitions_of(topic)) if each not in doubted]
        return others[spread_by % len(others)]

    def why(self, bootstrap: str) -> str:
        """Name the places in doubt and say how a person ends the first of them; return an empty text where there is
        none.
        """
        if not self.doubts:
            return ""
        names = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(self.doubts)[:TOLD_AT_MOST])
        more = f" and {len(self.doubts) - TOLD_AT_MOST} more" if len(self.doubts) > TOLD_AT_MOST else ""
        opened = {place: doubt for place, doubt in self.doubts.items() if doubt is not None}
        if not opened:
            return f"records for {names}{more} wait: these partitions have no leader, or too few in-sync replicas"
        (topic, partition), doubt = min(opened.items())
        return f"records for {names}{more} wait: {open_since(topic, partition, doubt, bootstrap)}"


def open_since(topic: str, partition: int, doubt: Doubt, bootstrap: str) -> str:
    """Name an open transaction that the brokers may have forgotten, and say how to find its owner."""
    return (
        f"the transaction that is open on {topic}/{partition} from offset {doubt.from_offset} on began before the last"
        " change of leader, so the brokers may have forgotten it. Most end within their timeout. To find its owner:"
        f" kafka-transactions.sh --bootstrap-server {bootstrap} describe-producers --topic {topic}"
        f" --partition {partition}; to end it: RUNBOOK, 'A transaction that nobody ends'"
    )


def _key(schedule: Schedule, record: Record) -> bytes | None:
    return record.key if isinstance(schedule.key, KeepKey) else schedule.key

"""Follows the staged buckets of all partitions of this process: one consumer, in a thread of its own.

A consumer for each partition would take memory where nothing is ever staged. Staged records are decoded here, since
decoding a manifest of many segments would hold up a release. A topic that is missing counts as empty, and the thread
looks for it again now and then.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from index.errors import FormatError
from sidecar.clock import Clock
from sidecar.engine.ownership.adopting import BackfillRecord
from sidecar.engine.ports import Place
from sidecar.kafka.client.admin import MISSING, REQUEST_TIMEOUT_S
from sidecar.kafka.client.errors import error_of, text_of
from sidecar.kafka.reading.following import TopicFollower
from sidecar.kafka.reading.scan import AT_ONCE, NO_END, PartitionScan, ScanError, learn_leaders, place_of
from snapshots.state.staged import STAGED_PREFIX, StagedBucket, decode_staged

WAIT_S = 0.25
AGAIN_AFTER_S = 30.0
"""Time after an error, or after a topic was found missing, at which the topics are requested again."""

STOP_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True)
class StagedAt:
    """A delay partition, named by the topics that matter here."""

    backfill: str
    snapshots: str
    partition: int


NOTHING: Mapping[bytes, BackfillRecord] = {}
"""The empty answer: always the same object, so that the caller sees that nothing has changed."""


@dataclass(slots=True, eq=False)
class StagedWatch:
    """A place as one owner of it follows it.

    A scan adds records only to the watches it began with. So it tells nothing to a later watch of the same place.
    """

    place: StagedAt
    next_offset: int = OFFSET_BEGINNING
    raw: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    waiting: Mapping[bytes, BackfillRecord] = field(default_factory=dict)
    has_looked: bool = False


class Staging(TopicFollower):
    """Knows the staged buckets; every method may be called from any thread. The thread starts by itself when needed."""

    def __init__(self, connect: Callable[[], Consumer], clock: Clock) -> None:
        super().__init__("staging", structlog.get_logger(), stop_within_s=STOP_WITHIN_S)
        self._connect = connect
        self._clock = clock
        self._watches: dict[StagedAt, StagedWatch] = {}
        self._held_off_to_s: dict[StagedAt, float] = {}
        self._met: set[str] = set()
        self._changed = threading.Event()
        self._lock = threading.Lock()

    def watch(self, place: StagedAt) -> StagedWatch:
        """Read a partition from its beginning and follow it, instead of an earlier watch of it."""
        watch = StagedWatch(place)
        with self._lock:
            self._watches[place] = watch
            self._changed.set()
            if self.ident is None:
                self.start()
        return watch

    def unwatch(self, watch: StagedWatch) -> None:
        """End a watch; do nothing if a later watch has taken its place."""
        with self._lock:
            if self._watches.get(watch.place) is watch:
                del self._watches[watch.place]
                self._changed.set()

    def waiting(self, place: StagedAt) -> Mapping[bytes, BackfillRecord]:
        """Return the staged records by key; not to be altered, and another object whenever they have changed."""
        watch = self._watches.get(place)
        return (watch and watch.waiting) or NOTHING

    def has_looked(self, place: StagedAt) -> bool:
        """Say whether the topic was read to its end since it is watched, or cannot be read."""
        watch = self._watches.get(place)
        return watch is not None and watch.has_looked

    def hold_off(self, place: StagedAt) -> None:
        """Have the next owner wait before it adopts again, since the brokers refuse the writes of an adoption."""
        self._held_off_to_s[place] = self._clock.running_s() + AGAIN_AFTER_S

    def not_before_s(self, place: StagedAt) -> float:
        """Return the running time of the clock from which on a bucket may be adopted."""
        return self._held_off_to_s.get(place, 0.0)

    def _follow(self) -> None:
        consumer = self._connect()
        self._met.clear()
        try:
            self._keep_reading(consumer)
        finally:
            consumer.close()

    def _interrupted(self, error: KafkaError) -> float:
        self._trouble.tell("backfill_topics_unreadable", text_of(error), again_in_s=AGAIN_AFTER_S)
        with self._lock:
            for watch in self._watches.values():
                watch.has_looked = True
        return AGAIN_AFTER_S

    def _keep_reading(self, consumer: Consumer) -> None:
        scan, watches = self._scan(consumer)
        again_s = self._clock.running_s() + AGAIN_AFTER_S
        missing = False
        while not self._stopping.is_set():
            if self._changed.is_set() or (missing and self._clock.running_s() >= again_s):
                again_s, missing = self._clock.running_s() + AGAIN_AFTER_S, False
                scan, watches = self._scan(consumer)
            came = scan.fetch(WAIT_S)
            absent = self._take_in(scan, watches)
            missing |= bool(absent)
            if came < AT_ONCE or scan.at_end:
                self._judge(consumer, watches.values())
            if scan.at_end:
                self._trouble.is_over()
            for at, watch in watches.items():
                watch.has_looked |= at in scan.at_end or at[0] in absent

    def _scan(self, consumer: Consumer) -> tuple[PartitionScan, dict[Place, StagedWatch]]:
        with self._lock:
            self._changed.clear()
            watches = {(place.backfill, place.partition): watch for place, watch in self._watches.items()}
        for topic in {topic for topic, _ in watches} - self._met:
            learn_leaders(consumer, topic)
            self._met.add(topic)
        ranges = {at: range(watch.next_offset, NO_END) for at, watch in watches.items()}
        return PartitionScan(consumer, ranges), watches

    def _take_in(self, scan: PartitionScan, watches: Mapping[Place, StagedWatch]) -> set[str]:
        """Note the records that were fetched; return the topics that do not exist."""
        absent: set[str] = set()
        while True:
            try:
                for message in scan.taken():
                    _note(watches[place_of(message)], message.key() or b"", message.offset() or 0, message.value())
            except ScanError as error:
                if error_of(error).code() not in MISSING:
                    raise
                absent.add(error.place[0])
            else:
                return absent

    def _judge(self, consumer: Consumer, watches: Iterable[StagedWatch]) -> None:
        """Decode the records that have come and were not withdrawn since."""
        for watch in watches:
            before, raw = watch.waiting, watch.raw
            if {key: offset for key, (offset, _) in raw.items()} == {key: each.offset for key, each in before.items()}:
                continue
            watch.waiting = {
                key: before[key]
                if key in before and before[key].offset == offset
                else BackfillRecord(offset, self._decoded(consumer, watch.place, key, value))
                for key, (offset, value) in raw.items()
            }

    def _decoded(self, consumer: Consumer, place: StagedAt, key: bytes, value: bytes) -> StagedBucket | FormatError:
        try:
            staged = decode_staged(key, value)
        except FormatError as error:
            return error
        at = staged.manifest.record_offsets
        if not at:
            return staged
        start, end = consumer.get_watermark_offsets(TopicPartition(place.snapshots, place.partition), REQUEST_TIMEOUT_S)
        if min(at) < start or max(at) >= end:
            return FormatError(
                f"record {key.decode(errors='backslashreplace')!r} of the backfill topic names segments at offsets"
                f" {min(at)} to {max(at)} of {place.snapshots}/{place.partition}, which holds [{start}, {end})"
            )
        return staged


def _note(watch: StagedWatch, key: bytes, offset: int, value: bytes | None) -> None:
    watch.next_offset = offset + 1
    if not key.startswith(STAGED_PREFIX):
        return
    if value is None:
        watch.raw.pop(key, None)
    else:
        watch.raw[key] = offset, value

"""Follows the staged buckets of all partitions of this process: one consumer, in a thread of its own.

A consumer for each partition would take memory where nothing is ever staged. Staged records are decoded here, since
decoding a manifest of many segments would hold up a release. A topic that is missing counts as empty, and the thread
looks for it again now and then.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

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


class Staging(TopicFollower):
    """Knows the staged buckets; every method may be called from any thread. The thread starts by itself when needed."""

    def __init__(self, connect: Callable[[], Consumer], clock: Clock) -> None:
        super().__init__("staging", structlog.get_logger(), stop_within_s=STOP_WITHIN_S)
        self._connect = connect
        self._clock = clock
        self._places: dict[StagedAt, int] = {}
        self._raw: dict[StagedAt, dict[bytes, tuple[int, bytes]]] = {}
        self._waiting: dict[StagedAt, dict[bytes, BackfillRecord]] = {}
        self._held_off_to_s: dict[StagedAt, float] = {}
        self._looked: set[StagedAt] = set()
        self._met: set[str] = set()
        self._changed = threading.Event()
        self._lock = threading.Lock()

    def watch(self, place: StagedAt) -> None:
        """Read a partition from its beginning and follow it."""
        with self._lock:
            self._places[place] = OFFSET_BEGINNING
            self._raw[place], self._waiting[place] = {}, {}
            self._looked.discard(place)
            self._changed.set()
            if self.ident is None:
                self.start()

    def unwatch(self, place: StagedAt) -> None:
        """Forget a partition."""
        with self._lock:
            for known in (self._places, self._raw, self._waiting):
                known.pop(place, None)
            self._changed.set()

    def waiting(self, place: StagedAt) -> Mapping[bytes, BackfillRecord]:
        """Return the staged records by key; not to be altered, and another object whenever they have changed."""
        return self._waiting.get(place) or NOTHING

    def has_looked(self, place: StagedAt) -> bool:
        """Say whether the topic was read to its end since it is watched, or cannot be read."""
        return place in self._looked

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
        self._looked |= set(self._places)
        return AGAIN_AFTER_S

    def _keep_reading(self, consumer: Consumer) -> None:
        scan = self._scan(consumer)
        again_s = self._clock.running_s() + AGAIN_AFTER_S
        missing = False
        while not self._stopping.is_set():
            if self._changed.is_set() or (missing and self._clock.running_s() >= again_s):
                again_s, missing = self._clock.running_s() + AGAIN_AFTER_S, False
                scan = self._scan(consumer)
            came = scan.fetch(WAIT_S)
            if self._changed.is_set():
                # The fetch belongs to positions that are no longer valid; the records are read again from the valid
                # ones.
                continue
            absent = self._take_in(scan)
            missing |= bool(absent)
            ended = {place for at in scan.at_end for place in self._at(at)}
            if came < AT_ONCE:
                self._judge(consumer)
            if ended:
                self._trouble.is_over()
            self._looked |= ended | {place for place in list(self._places) if place.backfill in absent}

    def _scan(self, consumer: Consumer) -> PartitionScan:
        with self._lock:
            self._changed.clear()
            ranges = {(at.backfill, at.partition): range(offset, NO_END) for at, offset in self._places.items()}
        for topic in {topic for topic, _ in ranges} - self._met:
            learn_leaders(consumer, topic)
            self._met.add(topic)
        return PartitionScan(consumer, ranges)

    def _take_in(self, scan: PartitionScan) -> set[str]:
        """Note the records that were fetched; return the topics that do not exist."""
        absent: set[str] = set()
        while True:
            try:
                for message in scan.taken():
                    with self._lock:
                        for place in self._at(place_of(message)):
                            self._places[place] = (message.offset() or 0) + 1
                            self._note(place, message.key() or b"", message.offset() or 0, message.value())
            except ScanError as error:
                if error_of(error).code() not in MISSING:
                    raise
                absent.add(error.place[0])
            else:
                return absent

    def _at(self, at: Place) -> set[StagedAt]:
        return {place for place in list(self._places) if (place.backfill, place.partition) == at}

    def _note(self, place: StagedAt, key: bytes, offset: int, value: bytes | None) -> None:
        if not key.startswith(STAGED_PREFIX):
            return
        if value is None:
            self._raw[place].pop(key, None)
        else:
            self._raw[place][key] = offset, value

    def _judge(self, consumer: Consumer) -> None:
        """Decode the records that have come and were not withdrawn since."""
        with self._lock:
            found = {place: dict(raw) for place, raw in self._raw.items()}
        for place, raw in found.items():
            before = self._waiting.get(place, {})
            if {key: offset for key, (offset, _) in raw.items()} == {key: each.offset for key, each in before.items()}:
                continue
            now = {
                key: before[key]
                if key in before and before[key].offset == offset
                else BackfillRecord(offset, self._decoded(consumer, place, key, value))
                for key, (offset, value) in raw.items()
            }
            with self._lock:
                if place in self._waiting:
                    self._waiting[place] = now

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

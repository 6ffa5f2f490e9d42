"""Writes of one delay partition, inside the transactions of its producer."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from index.bucket import Manifest
from index.pending import Entry
from index.progress import Progress
from index.released_headers import ReleasedHeaders, rejected_headers
from index.rule_history import RuleHistory
from index.rules import Rules
from index.schedule import KEEP_KEY
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.payload.records import Refused, Scheduled
from sidecar.release.chores import Chores
from snapshots.inventory import InventoryKeeper
from snapshots.manifest import encode_manifest, manifest_key
from snapshots.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress

OnDelivery = Callable[[KafkaError | None, Message], None]
_QUEUE_WAIT_S = 0.05

POLL_EVERY = 1_000
"""Delivery reports are served after so many records: they overlap with what is on its way, and come in one go."""

TIMESTAMP_NOW = 0
"""librdkafka's way of saying: when it is produced."""


class PartitionWriter:
    """Produces to targets, to the rejected topic and to the state topic; knows nothing of when or whether."""

    def __init__(
        self,
        producer: Producer,
        topic: DelayTopicConfig,
        partition: int,
        rules: Rules,
        delay_topic_id: str,
        inventory: InventoryKeeper,
    ) -> None:
        self.producer = producer
        self.rejected_topic = topic.rejected
        self._topic = topic
        self._mode: str = topic.timestamp
        self._own_modes: Mapping[str, str] = {}
        self._partition = partition
        self._delay_topic_id = delay_topic_id
        self._inventory = inventory
        self._source = f"{topic.name}/{partition}/"
        self._released = ReleasedHeaders(rules.stripped, self._source)

    def begin(self) -> None:
        """Begin a transaction; ``committed`` ends it, and the next one is begun without where it was aborted."""
        self._inventory.begin()
        self.producer.begin_transaction()

    def committed(self) -> None:
        """The transaction was committed."""
        self._inventory.committed()

    def release(self, entries: Iterable[Entry[Scheduled]], on_delivery: OnDelivery | None = None) -> None:
        """Produce each record to each of its targets; the hottest loop of the router."""
        produce, headers_of, own_modes = self.producer.produce, self._released.of, self._own_modes
        timestamp, left, stamped = TIMESTAMP_NOW, POLL_EVERY, self._mode != "release"
        for due_ms, offset, (schedule, _, record) in entries:
            assert record is not None, f"offset {offset} was not re-read"
            key, value, headers, timestamp_ms = record
            _, targets, partition, own_key, deliver_id, _, _ = schedule
            if own_key is not KEEP_KEY:
                key = own_key
            released: Any = headers_of(headers, due_ms, offset, timestamp_ms, deliver_id)
            if stamped:
                timestamp = self._timestamp(self._mode, due_ms, timestamp_ms)
            for target in targets:
                own = target in own_modes
                at_ms = self._timestamp(own_modes[target], due_ms, timestamp_ms) if own else timestamp
                try:
                    produce(target, value, key, partition, on_delivery, None, at_ms, released)
                except BufferError:
                    self._produce(target, value, key, partition, released, at_ms, on_delivery)
            left -= 1
            if not left:
                self.producer.poll(0)
                left = POLL_EVERY

    def reject(self, offset: int, refused: Refused, on_delivery: OnDelivery | None = None) -> None:
        """Produce one record to the rejected topic, as it came, with its reason."""
        key, value, headers, _ = refused.record
        marked = rejected_headers(headers, refused.rejection, f"{self._source}{offset}")
        self._produce(self._topic.rejected, value, key, -1, marked, TIMESTAMP_NOW, on_delivery)

    def write_held(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Produce records that are held, and tombstones of those that no longer are."""
        for key, value in records:
            self._write_state(key, value)

    def write_progress(self, progress: Progress) -> None:
        """Produce the progress record, the last of a transaction: it says what the state holds after that."""
        self._write_state(PROGRESS_KEY, encode_progress(progress, self._delay_topic_id, self._inventory.current))

    def write_history(self, history: RuleHistory) -> None:
        """Produce the record of the rules in force."""
        self._write_state(RULES_KEY, encode_history(history))

    def write_chores(self, chores: Chores) -> dict[int, int]:
        """Produce segments, a manifest and tombstones; the offsets of the segments are there once it is committed."""
        record_offsets: dict[int, int] = {}
        if chores.history is not None:
            self.write_history(chores.history)
        for number, (key, value) in enumerate(chores.segments):
            self._produce_snapshot(key, value, partial(_note_offset, record_offsets, number))
        # Of an adopted range nothing may be pending.
        if chores.installs is not None and chores.installs.manifest.segments:
            self.write_manifest(chores.installs.manifest)
        for key in chores.removed:
            self._write_state(key, None)
        for key in chores.reclaimed:
            self._produce_snapshot(key, None, None)
        for key in chores.withdrawn:
            self._produce(self._topic.backfill, None, key, self._partition, [], TIMESTAMP_NOW, None)
        return record_offsets

    def write_manifest(self, manifest: Manifest) -> None:
        """Produce the manifest of a bucket."""
        self._write_state(manifest_key(manifest.bucket_id), encode_manifest(manifest))

    def _produce_snapshot(self, key: bytes, value: bytes | None, on_delivery: OnDelivery | None) -> None:
        self._produce(self._topic.snapshots, value, key, self._partition, [], TIMESTAMP_NOW, on_delivery)

    def _write_state(self, key: bytes, value: bytes | None) -> None:
        self._inventory.note(key, value)
        self._produce(self._topic.state, value, key, self._partition, [], TIMESTAMP_NOW, None)

    def use_timestamps(self, mode: str, own_modes: Mapping[str, str]) -> None:
        """From now on give released records these timestamps: a mode, and those of targets that have their own."""
        self._mode, self._own_modes = mode, own_modes

    def _timestamp(self, mode: str, due_ms: int, source_ms: int) -> int:
        if mode == "release":
            return TIMESTAMP_NOW
        if mode == "due" and due_ms:
            return due_ms
        return max(source_ms, TIMESTAMP_NOW)

    def _produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: list[tuple[str, bytes | None]],
        timestamp: int,
        on_delivery: OnDelivery | None,
    ) -> None:
        # The stubs want a list that may also hold str values; lists are invariant, so a narrower one does not fit.
        given: Any = headers
        while True:
            try:
                # The fifth is `callback`: where it is given, even as None, `on_delivery` behind it is not looked at.
                self.producer.produce(topic, value, key, partition, on_delivery, None, timestamp, given)
            except BufferError:
                # The transaction is larger than the client's queue: let some of it reach the broker first.
                self.producer.poll(_QUEUE_WAIT_S)
            else:
                return


def _note_offset(record_offsets: dict[int, int], number: int, error: KafkaError | None, message: Message) -> None:
    offset = message.offset()
    if error is None and offset is not None:
        record_offsets[number] = offset

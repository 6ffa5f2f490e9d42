"""Writes transactions that the brokers have forgotten, with the producer id of a router: they stay open for ever.

A killed broker loses markers only sometimes; this module makes each kind on purpose. The writer has the producer id and
epoch of the router that last owned the partition, and writes without telling the coordinator, which a broker with
``transaction.partition.verification.enable=false`` accepts.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import index.protocol.record
from index.named.receipts import receipt_of, receipt_record
from index.pending.progress import BEFORE_ALL, Position
from index.protocol.headers import Headers
from index.protocol.occurrences import record_of
from index.protocol.recurring import Occurrence
from index.protocol.released_headers import series_headers
from index.protocol.schedule import Action, Control
from sidecar.dev.audit import AuditedRecord
from snapshots.state.ending import Ending
from snapshots.state.lane import LaneName
from snapshots.state.state import PROGRESS_KEY, StoredState, encode_progress, fold_state
from tests.integration.scenario import Header, Stage, now_ms, wait_until
from tests.wire import Broker, WireBatch, WireRecord
from tests.wire.batch import TRANSACTIONAL

UNVERIFIED: Final = {"transaction.partition.verification.enable": "false"}

DUE_IN_MS: Final = 5_000
PERIOD_MS: Final = 2_000
RECURS: Final[tuple[Header, ...]] = (("deliver-every", b"%d" % PERIOD_MS), ("deliver-times", b"2"))
CANCELS: Final[Header] = ("deliver-cancel", b"nobody")


def source_headers(record: AuditedRecord) -> list[tuple[bytes, bytes | None]]:
    """Return the headers with the origin of a released record that has no headers of its own."""
    due_ms = record.timestamp_ms + DUE_IN_MS
    return [
        (b"delay-due", b"%d" % due_ms),
        (b"delay-source", record.place.encode()),
        (b"delay-source-timestamp", b"%d" % record.timestamp_ms),
    ]


def _as_bytes(headers: Headers) -> list[tuple[bytes, bytes | None]]:
    return [(name.encode(), content) for name, content in headers]


class ForgottenProducer:
    """The producer of a delay partition whose router is gone."""

    def __init__(self, broker: Broker, transactional_id: str) -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        self.producer = broker.init_producer_id(transactional_id)
        self._sequences: Counter[tuple[str, int]] = Counter()

    def write(self, topic: str, records: Sequence[WireRecord], partition: int = 0) -> int:
        """Write a batch of an open transaction, and return its first offset."""
        producer_id, epoch = self.producer
        batch = WireBatch(
            records,
            flags=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences[topic, partition],
        )
        self._sequences[topic, partition] += len(records)
        return self.broker.produce(topic, partition, batch.encode(), transactional_id=self.transactional_id)

    def decide(self, topics: Sequence[str], *, commit: bool) -> None:
        """Let the coordinator end a transaction on these topics, with its markers there and its decision in its log."""
        self.broker.add_partitions_to_txn(self.transactional_id, self.producer, [(topic, 0) for topic in topics])
        self.broker.end_txn(self.transactional_id, self.producer, commit=commit)
        # The coordinator answers once its markers are written; a late marker would end the next transaction, too.
        self.producer = self.broker.init_producer_id(self.transactional_id)
        self._sequences.clear()


@dataclass
class Scene:
    """A delay topic with targets ``outs``: one record waits, and the router is gone before it is due."""

    stage: Stage
    delay: str
    outs: list[str]
    headers: tuple[Header, ...] = (("deliver-after", b"%d" % DUE_IN_MS),)

    @classmethod
    def make(cls, stage: Stage, name: str, outs: int = 1, **options: Any) -> "Scene":
        """Create the topics of a scene; a record goes to each target."""
        return cls._over(stage, name, [stage.target(f"{name}.out{number}") for number in range(outs)], **options)

    def beside(self, name: str) -> "Scene":
        """Create another scene that releases to the same targets."""
        return self._over(self.stage, name, self.outs)

    @classmethod
    def _over(cls, stage: Stage, name: str, targets: list[str], **options: Any) -> "Scene":
        delay = stage.delay(name, default_target=targets[0], allowed_targets=targets, **options)
        to_each: tuple[Header, ...] = tuple(("deliver-to", target.encode()) for target in targets)
        recurs = RECURS if options.get("recurring") else ()
        return cls(stage, delay, targets, (*cls.headers, *recurs, *(to_each if len(targets) > 1 else ())))

    @property
    def state_topic(self) -> str:
        """The state topic of the delay topic."""
        return f"{self.delay}.delay-state"

    def prepare(self) -> None:
        """Send the waiting record, and one that is released at once, which moves C past both."""
        self.stage.send(self.delay, *self.headers, value=b"waits")
        self.stage.send(self.delay, value=b"at once")

    def is_prepared(self) -> bool:
        """Say whether the state has C behind both records."""
        state = self.state()
        return state is not None and state.progress.cursor >= 2

    def state(self) -> StoredState | None:
        """Return the committed state."""
        return fold_state((record.key, record.value) for record in self.stage.records(self.state_topic))

    @property
    def lane(self) -> str:
        """The transactional id of the lane that the state names, or an empty text."""
        state = self.state()
        return "" if state is None or state.lane is None else state.lane.transactional_id

    def ending(self) -> Ending | None:
        """Return the note of an unfinished command, if the state has one."""
        state = self.state()
        return None if state is None else state.ending

    @property
    def waiting(self) -> AuditedRecord:
        """The waiting record."""
        return self.stage.records(self.delay)[0]

    def wait_due(self) -> None:
        """Wait until the record is due. Fail if a router has run long enough to release the record itself."""
        due_ms = self.waiting.timestamp_ms + DUE_IN_MS
        state = self.state()
        assert state is not None
        assert state.progress.watermark < Position(due_ms, 0), "the machine is too busy: the record has left already"
        wait_until(lambda: now_ms() > due_ms, "the due time")

    def released(self) -> WireRecord:
        """Return the record as the router releases it."""
        record = self.waiting
        return WireRecord(record.key, record.value, source_headers(record))

    def moved(self) -> WireRecord:
        """Return the progress of a transaction that has released the record."""
        due_ms = self.waiting.timestamp_ms + DUE_IN_MS
        return self._progress(watermark=Position(due_ms, 0))

    def first_occurrence(self) -> WireRecord:
        """Return the record as the router releases it if it recurs."""
        record, released = self.waiting, self.released()
        headers = series_headers(Occurrence(record.offset, 1, 0), f"{self.delay}/0/")
        return WireRecord(record.key, record.value, [*released.headers, *_as_bytes(headers)])

    def next_occurrence(self) -> WireRecord:
        """Return the record that the router appends to the delay partition at the release."""
        record, state = self.waiting, self.state()
        assert state is not None
        came = index.protocol.record.Record(record.key, record.value, list(record.headers), record.timestamp_ms)
        occurrence = Occurrence(record.offset, 2, record.timestamp_ms + DUE_IN_MS + PERIOD_MS)
        appended = record_of(came, occurrence, record.place, state.progress.series_key, 0)
        return WireRecord(appended.key, appended.value, _as_bytes(appended.headers))

    def control(self) -> None:
        """Send a control that no router has read yet, for an id without a schedule."""
        self.stage.send(self.delay, CANCELS, value=None)

    def answered(self) -> tuple[WireRecord, WireRecord]:
        """Return the receipt of that control, and the progress of the transaction that writes it."""
        offset = self.stage.records(self.delay)[-1].offset
        control = index.protocol.record.Record(b"k", None, [CANCELS], 0)
        key, value, headers, _ = receipt_record(
            receipt_of(offset, Control(Action.CANCEL, b"nobody"), (), None, control)
        )
        named = _as_bytes(headers)
        source = f"{self.delay}/0/{offset}".encode()
        return WireRecord(key, value, [*named, (b"delay-source", source)]), self._progress(cursor=offset + 1)

    def _progress(self, *, watermark: Position = BEFORE_ALL, cursor: int = 0) -> WireRecord:
        state = self.state()
        assert state is not None
        last = state.progress
        progress = last._replace(
            watermark=max(last.watermark, watermark), cursor=max(last.cursor, cursor), number=last.number + 1
        )
        return WireRecord(PROGRESS_KEY, encode_progress(progress, state.delay_topic_id, lane=state.lane))

    def owned_by(self, lane: LaneName) -> WireRecord:
        """Return the progress by which an owner names its lane."""
        state = self.state()
        assert state is not None
        progress = state.progress._replace(number=state.progress.number + 1)
        return WireRecord(PROGRESS_KEY, encode_progress(progress, state.delay_topic_id, lane=lane))

    def forgotten(self, broker: Broker) -> ForgottenProducer:
        """Return the producer of the partition; this fences the former router."""
        return ForgottenProducer(broker, f"{self.stage.group_id}.{self.delay}.0")

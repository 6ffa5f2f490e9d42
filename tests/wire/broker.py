"""Requests to one broker, each in a version whose layout is fixed (not the compact one, where there is a choice)."""

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Self

from tests.wire.batch import StoredBatch, WireHeader, WireRecord, decode_batches
from tests.wire.layout import Reading, array, compact_array, compact_text, text, unsigned

PRODUCE: Final = (0, 8)
FETCH: Final = (1, 10)
LIST_OFFSETS: Final = (2, 1)
FIND_COORDINATOR: Final = (10, 1)
INIT_PRODUCER_ID: Final = (22, 1)
ADD_PARTITIONS_TO_TXN: Final = (24, 1)
END_TXN: Final = (26, 1)
WRITE_TXN_MARKERS: Final = (27, 1)

_COMPACT: Final = frozenset({WRITE_TXN_MARKERS})
_TIMEOUT_S: Final = 60.0
_CLIENT_ID: Final = "wire"
_FETCH_BYTES: Final = 64 << 20
_TRIES: Final = 500
_NOT_LEADER: Final = 6
_CONCURRENT_TRANSACTIONS: Final = 51
_NOT_YET: Final = frozenset({14, 15, 16, _CONCURRENT_TRANSACTIONS})
"""Codes to try again: the end of another transaction, or a coordinator that is loading, missing, or elsewhere."""
_TRANSACTION: Final = 1
_COMMIT: Final = 1


class RefusedByBroker(Exception):
    """An error code of the protocol, in the answer to a request."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"error {code} {what}".rstrip())
        self.code = code


class Stored(NamedTuple):
    """A record as the log holds it; ``raw_headers`` are the bytes of count and headers."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[WireHeader, ...]
    timestamp_ms: int
    raw_headers: bytes


def stored(offset: int, record: WireRecord, timestamp_ms: int) -> Stored:
    """Return a record of a batch that was read."""
    return Stored(offset, record.key, record.value, tuple(record.headers), timestamp_ms, record.raw_headers or b"")


class Fetched(NamedTuple):
    """The result of one fetch of a partition; ``aborted`` are pairs of producer id and first offset."""

    high_watermark: int
    last_stable_offset: int
    aborted: tuple[tuple[int, int], ...]
    batches: tuple[StoredBatch, ...]


class Broker:
    """A connection to one broker; may be used as a context."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), _TIMEOUT_S)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def produce(
        self, topic: str, partition: int, batches: bytes, *, transactional_id: str | None = None, acks: int = -1
    ) -> int:
        """Write encoded batches; return the offset of the first record, or raise RefusedByBroker.

        Wait for a broker that does not know yet that it leads the partition of a new topic.
        """
        body = produce_body(topic, partition, batches, transactional_id, acks)
        tries = 1
        while (code := (answer := self.request(PRODUCE, body)).skip_to_partition().i16()) == _NOT_LEADER:
            if tries == _TRIES:
                break
            tries += 1
            time.sleep(0.02)
        offset, why = answer.i64(), ""
        if code:
            answer.i64(), answer.i64()
            each = [(answer.i32(), answer.text()) for _ in range(answer.i32())]
            why = f"{answer.text() or ''} {each or ''}".strip()
        self._check(code, why)
        return offset

    def fetch(self, topic: str, partition: int, offset: int, *, committed: bool = False) -> Fetched:
        """Return whole batches from the one that holds ``offset`` on."""
        wanted = struct.pack(">iiqqi", partition, -1, offset, -1, _FETCH_BYTES)
        body = struct.pack(">iiiibii", -1, 0, 1, _FETCH_BYTES, committed, 0, -1)
        answer = self.request(FETCH, body + array([text(topic) + array([wanted])]) + array([]))
        answer.i32()
        self._check(answer.i16())
        answer.i32()
        self._check(answer.skip_to_partition().i16())
        high_watermark, last_stable_offset, _ = answer.i64(), answer.i64(), answer.i64()
        aborted = tuple((answer.i64(), answer.i64()) for _ in range(max(answer.i32(), 0)))
        return Fetched(high_watermark, last_stable_offset, aborted, tuple(decode_batches(answer.blob())))

    def batches(self, topic: str, partition: int, from_offset: int = 0) -> Iterator[StoredBatch]:
        """Yield every batch of a log up to its end, aborted transactions and ends of transactions included."""
        while True:
            found = self.fetch(topic, partition, from_offset)
            if not found.batches:
                return
            for batch in found.batches:
                if batch.last_offset >= from_offset:
                    yield batch
            from_offset = found.batches[-1].last_offset + 1

    def records(self, topic: str, partition: int = 0, *, committed: bool = False) -> list[Stored]:
        """Return every record of a log, without ends of transactions; with ``committed``, only committed records."""
        batches = list(self.batches(topic, partition, self.log_start(topic, partition)))
        kept = [batch for batch in batches if not batch.is_control]
        if committed:
            ends = [batch for batch in batches if batch.is_control]
            kept = [batch for batch in kept if not batch.is_transactional or _is_committed(batch, ends)]
        return [stored(*found) for batch in kept for found in batch.records()]

    def log_start(self, topic: str, partition: int) -> int:
        """Return the first offset that the log still has."""
        body = struct.pack(">i", -1) + array([text(topic) + array([struct.pack(">iq", partition, -2)])])
        answer = self.request(LIST_OFFSETS, body)
        self._check(answer.skip_to_partition().i16())
        answer.i64()
        return answer.i64()

    def init_producer_id(self, transactional_id: str | None, timeout_ms: int = 60_000) -> tuple[int, int]:
        """Return producer id and epoch; ask again while a transaction of that id is being ended."""
        if transactional_id is not None:
            # The first such request makes the broker create the topic of transactions.
            self.request(FIND_COORDINATOR, text(transactional_id) + struct.pack(">b", _TRANSACTION))
        body = text(transactional_id) + struct.pack(">i", timeout_ms)
        answer = self._settled(INIT_PRODUCER_ID, body)
        return answer.i64(), answer.i16()

    def add_partitions_to_txn(
        self, transactional_id: str, producer: tuple[int, int], partitions: Sequence[tuple[str, int]]
    ) -> None:
        """Tell the coordinator the partitions that a transaction will write to."""
        topics = array([text(topic) + array([struct.pack(">i", partition)]) for topic, partition in partitions])
        codes: list[int] = []
        for _ in range(_TRIES):
            answer = self.request(
                ADD_PARTITIONS_TO_TXN, text(transactional_id) + struct.pack(">qh", *producer) + topics
            )
            answer.i32()
            codes.clear()
            for _ in range(answer.i32()):
                answer.text()
                codes += [(answer.i32(), answer.i16())[1] for _ in range(answer.i32())]
            if _NOT_YET.isdisjoint(codes):
                break
            time.sleep(0.02)
        for code in codes:
            self._check(code)

    def end_txn(self, transactional_id: str, producer: tuple[int, int], *, commit: bool) -> None:
        self._settled(END_TXN, text(transactional_id) + struct.pack(">qh?", *producer, commit))

    def write_txn_markers(
        self,
        producer: tuple[int, int],
        partitions: Sequence[tuple[str, int]],
        *,
        commit: bool,
        coordinator_epoch: int = 0,
    ) -> None:
        """End the open transaction of a producer on these partitions, as a coordinator does, without asking the
        coordinator.
        """
        topics = [
            compact_text(topic) + compact_array([struct.pack(">i", partition)]) + unsigned(0)
            for topic, partition in partitions
        ]
        marker = struct.pack(">qh?", *producer, commit) + compact_array(topics)
        marker += struct.pack(">i", coordinator_epoch) + unsigned(0)
        answer = self.request(WRITE_TXN_MARKERS, compact_array([marker]) + unsigned(0))
        for _ in range(answer.unsigned() - 1):
            answer.i64()
            for _ in range(answer.unsigned() - 1):
                topic = answer.compact_text()
                for _ in range(answer.unsigned() - 1):
                    partition, code = answer.i32(), answer.i16()
                    self._check(code, f"for {topic}/{partition}")
                    answer.unsigned()
                answer.unsigned()
            answer.unsigned()

    def request(self, api: tuple[int, int], body: bytes) -> "Reading":
        """Send one request and wait for its answer; return it from behind its header on."""
        self.send(api, body)
        answer = self.receive()
        correlation_id = answer.i32()
        assert correlation_id == self._correlation_id, f"answer {correlation_id} to request {self._correlation_id}"
        if api in _COMPACT:
            answer.unsigned()
        return answer

    def send(self, api: tuple[int, int], body: bytes) -> None:
        """Send one request without waiting for its answer."""
        self._correlation_id += 1
        head = struct.pack(">hhi", *api, self._correlation_id) + text(_CLIENT_ID)
        content = head + (unsigned(0) if api in _COMPACT else b"") + body
        self._socket.sendall(struct.pack(">i", len(content)) + content)

    def receive(self) -> "Reading":
        """Return the next answer, correlation id included."""
        return Reading(self._exactly(struct.unpack(">i", self._exactly(4))[0]))

    def _settled(self, api: tuple[int, int], body: bytes) -> "Reading":
        """Send a request, again while an earlier transaction is being ended, or there is no coordinator yet."""
        for tries in range(_TRIES):
            answer = self.request(api, body)
            answer.i32()
            code = answer.i16()
            if code in _NOT_YET and tries < _TRIES - 1:
                time.sleep(0.02)
                continue
            self._check(code)
            return answer
        raise AssertionError("not reached")

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionError(f"the broker closed the connection after {len(parts)} of {size} bytes")
            parts += part
        return bytes(parts)

    @staticmethod
    def _check(code: int, what: str = "") -> None:
        if code:
            raise RefusedByBroker(code, what)


def _is_committed(batch: StoredBatch, ends: Sequence[StoredBatch]) -> bool:
    """Say whether the next end of a transaction of its producer is a commit."""
    behind = (end for end in ends if end.producer_id == batch.producer_id and end.base_offset > batch.last_offset)
    end = next(behind, None)
    if end is None:
        return False
    [(_, marker, _)] = end.records()
    # The key is a version, and then the kind of end.
    return marker.key is not None and struct.unpack_from(">hh", marker.key)[1] == _COMMIT


def produce_body(topic: str, partition: int, batches: bytes, transactional_id: str | None, acks: int) -> bytes:
    """Encode the body of a Produce request of one partition."""
    data = struct.pack(">ii", partition, len(batches)) + batches
    head = text(transactional_id) + struct.pack(">hi", acks, int(_TIMEOUT_S * 1_000))
    return head + array([text(topic) + array([data])])

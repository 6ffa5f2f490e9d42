"""Reads records again by offset: segments, and records of a delay topic that are not in memory."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from index.protocol.record import Record
from sidecar.engine.payload.records import size_of
from sidecar.engine.ports import Place, ReadEach
from sidecar.kafka.client.errors import cluster_errors, error_of, is_unreadable, with_cluster_errors
from sidecar.kafka.reading.handed_over import headers_of
from sidecar.kafka.reading.scan import learn_leaders
from sidecar.kernel.librdkafka import watch_of

SCAN_GAP_RECORDS = 300
"""Largest gap that is scanned instead of seeked over: a seek costs 0.6 ms, a scanned record 2 us (measured)."""

DENSE_RECORDS = 1_000
"""A read of at least this many records, at most DENSE_GAP apart on average, is a scan, for which large fetches pay."""

DENSE_GAP = 4

FETCHED_RECORDS = 16
"""Records taken from the client at once during a scan. The client then unpacks their headers, at 72 bytes each and up
to 100,000 a record, even if the record was rejected for them."""

READ_TIMEOUT_S = 10.0

STEP_BYTES = 4 * 1_048_576
"""Memory of records at which they are handed over before the next one is read."""

_NOWHERE = -SCAN_GAP_RECORDS - 1

Connect = Callable[[], Consumer]

LogEnd = Callable[[str, int], int]
"""Asks the leader of a partition for the offset behind its last record, open transactions included."""

_NO_PLACE: Place = ("", -1)

_NOTHING_THERE = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET})

_MAYBE_BEHIND_END = frozenset({KafkaError._TIMED_OUT, KafkaError._AUTO_OFFSET_RESET})
"""Errors of a read at the end of the log or behind it."""

_NO_END = 1 << 63


def unknown_end(_topic: str, _partition: int) -> int:
    """Know nothing of the end of a log, so that no record is taken for lost."""
    return _NO_END


class OffsetReader:
    """Owns assign-only consumers, made when first needed; not to be shared between threads.

    ``connect`` makes a consumer with small fetches, for records that lie apart. ``connect_bulk`` makes one with large
    fetches, for records that lie together or are large. ``log_end`` tells whether a record that a router has written
    was lost with the end of its log, as after an unclean change of leader, or when the topic is created again.
    """

    def __init__(self, connect: Connect, connect_bulk: Connect | None = None, log_end: LogEnd = unknown_end) -> None:
        self._log_end = log_end
        self._scattered = _OpenConsumer(connect)
        self._bulk = _OpenConsumer(connect_bulk or connect)

    def read(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Return the records at ascending ``offsets``; None for a record that the topic no longer holds.

        Raise ClusterError on timeout or any other error: then the caller may conclude nothing.
        """
        return dict(self.read_each(topic, partition, offsets))

    def read_each(self, topic: str, partition: int, offsets: Sequence[int]) -> ReadEach:
        """Yield the records that ``read`` returns, where they may be too many to hold at once; to be closed.

        The reader holds at most ``STEP_BYTES`` of them, and one record more.
        """
        dense = len(offsets) >= DENSE_RECORDS and offsets[-1] - offsets[0] < DENSE_GAP * len(offsets)
        return with_cluster_errors((self._bulk if dense else self._scattered).read((topic, partition), offsets))

    def read_large(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Read records of hundreds of kB that a router has written.

        None also for a record whose batch is damaged, or which lies behind the end of the log: the caller restores it
        from the records it was made of. Raises ClusterError as ``read`` does.
        """
        with cluster_errors():
            return self._bulk.read_written((topic, partition), offsets, self._log_end)

    def read_apart(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Read small records that a router has written and that lie apart, as ``read_large`` does."""
        with cluster_errors():
            return self._scattered.read_written((topic, partition), offsets, self._log_end)

    def scan(self, topic: str, partition: int, from_offset: int, to_offset: int) -> Iterator[tuple[int, Record]]:
        """Yield every record of [from_offset, to_offset) with its offset; none at all when the first ones are gone."""
        return with_cluster_errors(self._bulk.scan((topic, partition), from_offset, to_offset))

    def scan_left(self, topic: str, partition: int, from_offset: int, to_offset: int) -> Iterator[tuple[int, Record]]:
        """Yield every record of [from_offset, to_offset) that the topic still holds, with its offset."""
        return self.scan(topic, partition, max(from_offset, self.log_start(topic, partition)), to_offset)

    def first_timestamp_ms(self, topic: str, partition: int, from_offset: int) -> int | None:
        """Return the timestamp of the first record from an offset on; None without one, or where it is gone."""
        with cluster_errors():
            return self._scattered.first_timestamp_ms((topic, partition), from_offset)

    def log_start(self, topic: str, partition: int) -> int:
        """Return the first offset that the topic still has."""
        with cluster_errors():
            return self._bulk.log_start((topic, partition))

    def close(self) -> None:
        """Give the consumers back to librdkafka."""
        self._scattered.close()
        self._bulk.close()


class _OpenConsumer:
    """One consumer and its position."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._consumer: Consumer | None = None
        self._place = _NO_PLACE
        self._next_offset = _NOWHERE
        self._log_starts: dict[Place, int] = {}
        self._topics: set[str] = set()

    def read(self, place: Place, offsets: Sequence[int]) -> ReadEach:
        try:
            found: dict[int, Record | None] = {}
            held_bytes = 0
            for offset in offsets:
                record = found[offset] = self._read_one(place, offset)
                held_bytes += 0 if record is None else size_of(record)
                if held_bytes >= STEP_BYTES:
                    yield from found.items()
                    found, held_bytes = {}, 0
        finally:
            self._rest()
        yield from found.items()

    def read_written(self, place: Place, offsets: Sequence[int], log_end: LogEnd) -> dict[int, Record | None]:
        """Read records whose headers do not matter; None for one that is lost, or whose batch is damaged."""
        found: dict[int, Record | None] = {}
        end = _NO_END
        try:
            for offset in offsets:
                try:
                    found[offset] = self._read_undamaged(place, offset) if offset < end else None
                except KafkaException as exception:
                    if error_of(exception).code() not in _MAYBE_BEHIND_END:
                        raise
                    self._end_fetches(place)
                    # A consumer that is used again after such an error may not answer at all.
                    self.close()
                    # Each record was committed before this question, so the log once went beyond it.
                    end = log_end(*place)
                    if offset < end:
                        raise
                    found[offset] = None
        finally:
            self._rest()
        return found

    def scan(self, place: Place, from_offset: int, to_offset: int) -> Generator[tuple[int, Record], None, None]:
        try:
            while from_offset < to_offset:
                found = self._next(place, from_offset)
                if found is None:
                    return
                for at, record in self._from(found, to_offset):
                    if at >= to_offset:
                        return
                    yield at, record
                    from_offset = at + 1
        finally:
            self._rest()

    def first_timestamp_ms(self, place: Place, from_offset: int) -> int | None:
        self._rest()
        message = self._at(place, from_offset).poll(READ_TIMEOUT_S)
        self._rest()
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"offset {from_offset} was not read in time"))
        error = message.error()
        if error is None:
            return message.timestamp()[1]
        # A consumer that is used again after such an error may not answer at all.
        self.close()
        if error.code() not in _NOTHING_THERE:
            raise KafkaException(error)
        return None

    def log_start(self, place: Place) -> int:
        return self._connected().get_watermark_offsets(TopicPartition(*place), READ_TIMEOUT_S)[0]

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
            self._topics.clear()

    def _end_fetches(self, place: Place) -> None:
        """Wait until no fetch is under way.

        A client that is closed while a broker answers that an offset is behind the end waits for ever: the callback of
        that answer takes the lock of the partition a second time (librdkafka 2.16.0, ``rd_kafka_offset_reset_op_cb``).
        A broker answers the requests of a connection in order, so the answer to this question follows the fetch.
        """
        consumer = self._connected()
        consumer.unassign()
        with suppress(KafkaException):
            consumer.get_watermark_offsets(TopicPartition(*place), READ_TIMEOUT_S)

    def _rest(self) -> None:
        """Stop fetching until the next read: otherwise records ahead would be fetched and dropped again and again."""
        self._place, self._next_offset = _NO_PLACE, _NOWHERE
        if self._consumer is not None:
            self._consumer.unassign()

    def _read_one(self, place: Place, offset: int) -> Record | None:
        while (found := self._next(place, offset)) is not None:
            at, record = found
            if at == offset:
                return record
            if at > offset:
                # The scan passed the offset without meeting it: retention removed the record, or there never was one.
                self._next_offset = _NOWHERE
                return None
        return None

    def _read_undamaged(self, place: Place, offset: int) -> Record | None:
        try:
            return self._read_one(place, offset)
        except KafkaException as exception:
            if not is_unreadable(error_of(exception)):
                raise
            return None

    def _next(self, place: Place, offset: int) -> tuple[int, Record] | None:
        """Return the next record at or behind the position; None when there is none.

        The read begins at ``offset``, or scans on to it where that is near.
        """
        if offset < self._log_starts.get(place, 0):
            return None
        consumer = self._at(place, offset)
        scans = self._next_offset < offset
        while True:
            message = consumer.poll(READ_TIMEOUT_S)
            if message is None:
                self._next_offset = _NOWHERE
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"offset {offset} was not read in time"))
            at = message.offset()
            assert at is not None
            error = message.error()
            if error is None:
                self._next_offset = at + 1
                return self._records([message])[0]
            if error.code() == KafkaError._PARTITION_EOF and at <= offset:
                # This event is of an earlier read and was queued when the log ended there; the record was appended
                # since.
                continue
            self._next_offset = _NOWHERE
            if scans and is_unreadable(error):
                # The unreadable batch lies on the way, and nobody has asked for it.
                return self._next(place, offset)
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._learn_log_start(consumer, place, offset, error)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            return None

    def _from(self, found: tuple[int, Record], to_offset: int) -> Iterator[tuple[int, Record]]:
        """Yield this record and the fetched ones behind it, as far as the caller goes on."""
        fetched = [found]
        while fetched:
            yield from fetched
            fetched = self._fetched() if _NOWHERE < self._next_offset < to_offset else []

    def _fetched(self) -> list[tuple[int, Record]]:
        """Return the records fetched behind the position, up to the first error.

        Taking them together costs a third of taking them one by one.
        """
        messages = self._connected().consume(FETCHED_RECORDS, 0)
        good = list(takewhile(lambda message: message.error() is None, messages))
        if len(good) < len(messages):
            # The error comes again where the next read begins anew.
            self._next_offset = _NOWHERE
        if not good:
            return []
        found = self._records(good)
        if len(good) == len(messages):
            self._next_offset = found[-1][0] + 1
        return found

    def _records(self, messages: Sequence[Message]) -> list[tuple[int, Record]]:
        assert self._consumer is not None, "there are messages of no consumer"
        return [
            (message.offset() or 0, Record(message.key(), message.value(), headers, message.timestamp()[1]))
            for message, headers in zip(messages, headers_of(messages, watch_of(self._consumer)), strict=True)
        ]

    def _learn_log_start(self, consumer: Consumer, place: Place, offset: int, error: KafkaError) -> None:
        """Remember the start of a log that begins behind ``offset``, so that nothing below it is requested again."""
        log_start, _ = consumer.get_watermark_offsets(TopicPartition(*place), READ_TIMEOUT_S)
        if offset >= log_start:
            raise KafkaException(error)
        self._log_starts[place] = log_start
        # A consumer that is used again after such an error may not answer at all (observed).
        self.close()

    def _at(self, place: Place, offset: int) -> Consumer:
        consumer = self._connected()
        if place != self._place or not self._next_offset <= offset <= self._next_offset + SCAN_GAP_RECORDS:
            if place[0] not in self._topics:
                # If the topic were assigned beside a known one, the client would look up its leader only within a
                # second.
                learn_leaders(consumer, place[0])
                self._topics.add(place[0])
            watch = watch_of(consumer)
            if watch is not None:
                # This also forgets the odd records of the place before.
                watch.begin()
            consumer.assign([TopicPartition(*place, offset)])
            self._place, self._next_offset = place, offset
        return consumer

    def _connected(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self._connect()
        return self._consumer

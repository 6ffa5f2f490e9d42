"""Where the messages of a delay partition come from: a consumer at its tail, looked at by the kernel or by Python.

Both give whole fetches, in which every record has the headers that it has in the log, up to the first message that says
that a batch cannot be read.

* :class:`PythonTail` takes the client's own messages. What that may have altered is read once more
  (:mod:`sidecar.intake.raw_headers`): single records, and all that have no headers, since it hands over more than
  100,000 as none.
* :class:`NativeTail` takes them from the queue of the partition, with the headers as they came, and leaves them where
  they are: only what is to be looked at by Python is made an object. The main queue stays the client's own.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from index.headers import Headers
from index.unreadable import UnreadableHeaders, examined
from sidecar.intake.bad_batches import too_large
from sidecar.intake.decided import BadBatch
from sidecar.intake.handed_over import handed_over, headers_as_handed_over
from sidecar.intake.raw_headers import RawHeaders
from sidecar.kafka.errors import is_unreadable, require_end
from sidecar.kafka.librdkafka import PartitionQueue, serialized_sizes
from sidecar.kernel.choice import Kernel

if TYPE_CHECKING:
    from sidecar.kernel._fetching import Handed, Messages, Reader

STEP_RECORDS = 16
"""Messages taken from the client at once. It unpacks their headers then, at 72 bytes each and up to 100,000 a message,
whether they are asked for or not; so many at once take 115 MB at most."""

MOST_HEADER_BYTES = 1 << 20
"""Headers of a fetch in the log, after which it is large enough: in memory each takes 120 bytes, and 3 there."""


class Fetch(NamedTuple):
    """Messages and the headers of each, errors among them; or a batch that cannot be read."""

    messages: Sequence[Message]
    headers: Sequence[Headers]
    bad: BadBatch | None = None

    def some(self, start: int, stop: int) -> Iterator[tuple[Message, Headers]]:
        """Messages with their headers, from one place up to another."""
        return zip(self.messages[start:stop], self.headers[start:stop], strict=True)

    def require_end(self, error: KafkaError) -> None:
        """Raise a ClusterError unless the error of a message says that the partition ends there."""
        require_end(error)


class RawFetch(NamedTuple):
    """Messages that nobody has made objects of; of use until the next ones are read."""

    messages: "Messages"
    headers: Sequence[Headers] = ()
    bad: BadBatch | None = None

    def some(self, start: int, stop: int) -> Iterator[tuple[Message, Headers]]:
        """As that of a Fetch."""
        for message in self.messages.handed(start, stop, KafkaError):
            yield cast("Message", message), _headers_of(message.raw_headers)

    def require_end(self, error: KafkaError) -> None:
        """Raise a ClusterError unless the error of a message says that the partition ends there."""
        require_end(error)


class Read(NamedTuple):
    """What was read, and where to go on; ``stumbled`` is what lies behind it and cannot be read, or its error."""

    fetch: Fetch | RawFetch
    next_offset: int | None
    stumbled: KafkaError | BadBatch | None


class Tail(Protocol):
    """Reads on from an offset; used by one thread, closed by any."""

    def read(self, wait_s: float, most_records: int) -> Read | None:
        """What has arrived, waiting for the first of it; KafkaException when it cannot be read once more."""

    def log_end(self) -> int:
        """Where the log ended at the last fetch; no request is made."""

    def close(self) -> None:
        """Give everything back to librdkafka."""


class PythonTail:
    """By a consumer that this owns; ``again`` makes one that reads what is doubtful once more."""

    def __init__(self, consumer: Consumer, again: Callable[[], Consumer], at: TopicPartition, most_bytes: int) -> None:
        """A record with more than ``most_bytes`` is not read."""
        self._most_bytes = most_bytes
        self._consumer = consumer
        self._raw = RawHeaders(again)
        self._at = at
        consumer.assign([at])

    def read(self, wait_s: float, most_records: int) -> Read | None:
        """As that of a Tail."""
        messages, sizes = self._messages(wait_s, most_records)
        if not messages:
            return None
        # Errors have no headers, so that they are looked for among few.
        bad = next((at for at, size in enumerate(sizes) if not size and _is_bad(messages[at])), None)
        stumbled: KafkaError | BadBatch | None = None if bad is None else messages[bad].error()
        messages, sizes = messages[:bad], sizes[:bad]
        large = next((at for at, message in enumerate(messages) if len(message) > self._most_bytes), None)
        if large is not None:
            stumbled = too_large(messages[large].offset() or 0, len(messages[large]), self._most_bytes)
            messages, sizes = messages[:large], sizes[:large]
        found = handed_over(messages, sizes)
        if found.doubtful:
            self._examine(messages, found.headers, found.doubtful)
        return Read(Fetch(messages, cast("Sequence[Headers]", found.headers)), _end_of(messages), stumbled)

    def _messages(self, wait_s: float, most_records: int) -> tuple[list[Message], list[int]]:
        """Messages, and the sizes of their headers in the log."""
        first = self._consumer.poll(wait_s)
        if first is None:
            return [], []
        messages, sizes = [first], serialized_sizes([first])
        header_bytes = sizes[0]
        while len(messages) < most_records and header_bytes < MOST_HEADER_BYTES:
            # consume(n, t) returns early only when it has n, so it must not wait here.
            more = self._consumer.consume(min(STEP_RECORDS, most_records - len(messages)), 0)
            if not more:
                break
            more_sizes = serialized_sizes(more)
            messages += more
            sizes += more_sizes
            header_bytes += sum(more_sizes)
        return messages, sizes

    def _examine(self, messages: Sequence[Message], headers: list[Headers | None], doubtful: Sequence[int]) -> None:
        """Put in place what the log holds of the doubtful ones, errors left out."""
        offsets = {at: messages[at].offset() or 0 for at in doubtful if messages[at].error() is None}
        if not offsets:
            return
        found = self._raw.read(self._at.topic, self._at.partition, list(offsets.values()))
        for at, offset in offsets.items():
            headers[at] = examined(found[offset], headers[at] or None)

    def log_end(self) -> int:
        """As that of a Tail."""
        _, end = self._consumer.get_watermark_offsets(self._at, cached=True)
        return end

    def close(self) -> None:
        """As that of a Tail."""
        self._consumer.close()
        self._raw.close()


class NativeTail:
    """By a consumer that this owns, and the kernel."""

    def __init__(self, consumer: Consumer, kernel: Kernel, at: TopicPartition, most_bytes: int) -> None:
        """A record with more than ``most_bytes`` is not read."""
        self._most_bytes = most_bytes
        self._consumer = consumer
        self._at = at
        # Taken before there is anything in it.
        self._queue = PartitionQueue(consumer, at)
        self._reader: Reader = kernel.reader(self._queue)
        self._read: Messages | None = None
        consumer.assign([at])

    def read(self, wait_s: float, most_records: int) -> Read | None:
        """As that of a Tail."""
        self._release()
        # Whatever is not of the partition: the client's callbacks run here, and what is wrong with itself comes out.
        event = self._consumer.poll(0)
        if event is not None:
            error = event.error()
            assert error is not None, "a record came by the main queue, though its partition has a queue of its own"
            raise KafkaException(error)
        messages = self._read = self._reader.read(int(wait_s * 1_000), most_records, MOST_HEADER_BYTES)
        if not len(messages):
            return None
        stumbled: KafkaError | BadBatch | None = None
        large = messages.too_large(self._most_bytes)
        if large is not None:
            place, offset, size_bytes = large
            stumbled = too_large(offset, size_bytes, self._most_bytes)
            messages.cut(place)
        for at in messages.errors():
            [message] = messages.handed(at, at + 1, KafkaError)
            if _is_bad(message):
                stumbled = message.error()
                messages.cut(at)
                break
        return Read(RawFetch(messages), messages.next_offset(), stumbled)

    def log_end(self) -> int:
        """As that of a Tail."""
        _, end = self._consumer.get_watermark_offsets(self._at, cached=True)
        return end

    def close(self) -> None:
        """As that of a Tail."""
        self._release()
        self._reader.close()
        self._queue.close()
        self._consumer.close()

    def _release(self) -> None:
        """A client that is closed must have everything back."""
        if self._read is not None:
            self._read.release()
            self._read = None


def _is_bad(message: "Message | Handed") -> bool:
    error = message.error()
    return error is not None and is_unreadable(error)


def _end_of(messages: Sequence[Message]) -> int | None:
    if not messages:
        return None
    # The event of the end has the offset of the next record.
    return (messages[-1].offset() or 0) + (messages[-1].error() is None)


def _headers_of(raw: bytes) -> Headers:
    """Headers as the log holds them, which may be such that no client hands them over."""
    headers = examined(raw, None)
    return examined(raw, headers_as_handed_over(raw)) if isinstance(headers, UnreadableHeaders) else headers

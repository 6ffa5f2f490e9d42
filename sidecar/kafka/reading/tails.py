"""Tails of a delay partition: a consumer gives the messages, and the kernel or Python reads their headers.

Both tails give whole fetches, in which every record has the headers that the log holds, or UnreadableHeaders. A fetch
ends at the first message that reports an unreadable batch.

* :class:`PythonTail` takes the client's own messages. Some headers it cannot see: see
  :mod:`sidecar.kafka.reading.handed_over`.
* :class:`NativeTail` takes the messages from the queue of the partition, and leaves them there: only the messages that
  Python has to look at become objects. It shares its consumer (:mod:`sidecar.kafka.reading.tail_clients`).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from index.protocol.headers import Headers
from sidecar.engine.intake.decided import BadBatch
from sidecar.kafka.client.errors import is_unreadable, require_end
from sidecar.kafka.reading.bad_batches import too_large
from sidecar.kafka.reading.handed_over import as_read, headers_of
from sidecar.kafka.reading.tail_clients import TailClient
from sidecar.kernel.choice import Kernel
from sidecar.kernel.librdkafka import watch_of

if TYPE_CHECKING:
    from sidecar.kernel._fetching import Handed, Messages, Reader

STEP_RECORDS = 16
"""Messages taken from the client at once. The client then unpacks their headers even if nobody reads them, at 72 bytes
each and up to 100,000 a message; this many messages at once take 115 MB at most."""

MOST_HEADER_BYTES = 1 << 20
"""Bytes of headers in the log after which a fetch is large enough: a header takes 3 bytes in the log and 120 in memory.
"""


class Fetch(NamedTuple):
    """Messages and the headers of each, errors among them; or a batch that cannot be read."""

    messages: Sequence[Message]
    headers: Sequence[Headers]
    bad: BadBatch | None = None

    def some(self, start: int, stop: int) -> Iterator[tuple[Message, Headers]]:
        """Yield messages with their headers, from one place up to another."""
        return zip(self.messages[start:stop], self.headers[start:stop], strict=True)

    def require_end(self, error: KafkaError) -> None:
        """Raise a ClusterError unless the error of a message says that the partition ends there."""
        require_end(error)


class RawFetch(NamedTuple):
    """Messages that are no objects yet; valid until the next read."""

    messages: "Messages"
    headers: Sequence[Headers] = ()
    bad: BadBatch | None = None

    def some(self, start: int, stop: int) -> Iterator[tuple[Message, Headers]]:
        """Yield messages with their headers, from one place up to another."""
        for message in self.messages.handed(start, stop, KafkaError):
            yield cast("Message", message), as_read(message.raw_headers, is_hidden=message.is_hidden)

    def require_end(self, error: KafkaError) -> None:
        """Raise a ClusterError unless the error of a message says that the partition ends there."""
        require_end(error)


class Read(NamedTuple):
    """A fetch and the offset behind it; ``stumbled`` is the unreadable batch there, or its error."""

    fetch: Fetch | RawFetch
    next_offset: int | None
    stumbled: KafkaError | BadBatch | None


class Tail(Protocol):
    """Reads on from an offset; used by one thread, closed by any."""

    def read(self, wait_s: float, most_records: int) -> Read | None:
        """Return the messages that have arrived, and wait for the first.

        Raise KafkaException on an error of the client itself.
        """

    def log_end(self) -> int:
        """Return the end of the log at the last fetch; no request is made."""

    def close(self) -> None:
        """Give everything back to librdkafka."""


class PythonTail:
    """Reads by a consumer that it owns."""

    def __init__(self, consumer: Consumer, at: TopicPartition, most_bytes: int) -> None:
        """Assign the consumer; a record with more than ``most_bytes`` is not read."""
        self._most_bytes = most_bytes
        self._consumer = consumer
        self._watch = watch_of(consumer)
        self._at = at
        if self._watch is not None:
            self._watch.begin()
        consumer.assign([at])

    def read(self, wait_s: float, most_records: int) -> Read | None:
        """Read as :class:`Tail` says."""
        messages, headers = self._messages(wait_s, most_records)
        if not messages:
            return None
        # Errors have no headers, so the search covers only the few messages without headers.
        bad = next((at for at, each in enumerate(headers) if not each and _is_bad(messages[at])), None)
        stumbled: KafkaError | BadBatch | None = None if bad is None else messages[bad].error()
        messages = messages[:bad]
        large = next((at for at, message in enumerate(messages) if len(message) > self._most_bytes), None)
        if large is not None:
            stumbled = too_large(messages[large].offset() or 0, len(messages[large]), self._most_bytes)
            messages = messages[:large]
        return Read(Fetch(messages, headers[: len(messages)]), _end_of(messages), stumbled)

    def _messages(self, wait_s: float, most_records: int) -> tuple[list[Message], list[Headers]]:
        first = self._consumer.poll(wait_s)
        if first is None:
            return [], []
        messages, headers = [first], headers_of([first], self._watch)
        header_bytes = _size_of(headers)
        while len(messages) < most_records and header_bytes < MOST_HEADER_BYTES:
            # consume(n, t) returns early only when it has n, so it must not wait here.
            more = self._consumer.consume(min(STEP_RECORDS, most_records - len(messages)), 0)
            if not more:
                break
            more_headers = headers_of(more, self._watch)
            messages += more
            headers += more_headers
            header_bytes += _size_of(more_headers)
        return messages, headers

    def log_end(self) -> int:
        """Return the end of the log at the last fetch; no request is made."""
        _, end = self._consumer.get_watermark_offsets(self._at, cached=True)
        return end

    def close(self) -> None:
        """Give the consumer back to librdkafka."""
        self._consumer.close()


class NativeTail:
    """Reads by a client that it shares, and the kernel."""

    def __init__(self, client: TailClient, kernel: Kernel, at: TopicPartition, most_bytes: int) -> None:
        """Begin to read; the client has admitted the partition. A record with more than ``most_bytes`` is not read."""
        self._most_bytes = most_bytes
        self._client = client
        self._at = at
        self._queue = client.begin(at)
        self._reader: Reader = kernel.reader(self._queue)
        self._read: Messages | None = None

    def read(self, wait_s: float, most_records: int) -> Read | None:
        """Read as :class:`Tail` says."""
        self._release()
        self._client.serve()
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
        """Return the end of the log at the last fetch; no request is made."""
        return self._client.log_end(self._at)

    def close(self) -> None:
        """Give everything back to librdkafka."""
        self._release()
        self._client.stop(self._at)
        # The consumer may live on, and would keep these messages.
        while len(left := self._reader.read(0, STEP_RECORDS, MOST_HEADER_BYTES)):
            left.release()
        self._reader.close()
        self._queue.close()
        self._client.leave()

    def _release(self) -> None:
        """Give the messages of the last read back, since a client that is closed must have everything back."""
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


def _size_of(headers: Sequence[Headers]) -> int:
    """Return about how many bytes headers take in the log."""
    return sum([len(name) + len(content or b"") + 2 for each in headers for name, content in each])

# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
"""Takes messages of one partition without the lock of the interpreter and without making objects of them.

confluent-kafka makes a dozen objects of each message, but a packed record needs none. The messages taken here stay in
the memory of librdkafka until they are released, and ``_deciding.pyx`` reads them there. Python may ask for single
messages, which become objects like those of confluent-kafka. Headers are the raw bytes of the log.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.stdlib cimport free, malloc

# Revision of the arguments and results of this module; choice.py has the same number.
REVISION = 9

ctypedef Py_ssize_t (*ConsumeFunction)(void *queue, int timeout_ms, Message **messages, size_t count) noexcept nogil
ctypedef int64_t (*TimestampFunction)(const Message *message, int *kind) noexcept nogil
ctypedef void (*DestroyFunction)(Message *message) noexcept nogil
ctypedef const char *(*ErrorTextFunction)(const Message *message) noexcept nogil

cdef enum:
    # Messages taken out of the queue at once; after each step the reader compares the bytes of headers with the limit.
    STEP = 64
    MAX_AT_ONCE = 65536


cdef object _bytes_or_none(const void *place, size_t size):
    return PyBytes_FromStringAndSize(<const char *>place, <Py_ssize_t>size) if place != NULL else None


cdef class Handed:
    """One message with the methods of confluent-kafka that intake calls; ``raw_headers`` are those of the log."""

    cdef object _offset, _error, _key, _value, _timestamp
    cdef readonly object raw_headers

    def offset(self):
        return self._offset

    def error(self):
        return self._error

    def key(self):
        return self._key

    def value(self):
        return self._value

    def timestamp(self):
        return self._timestamp


cdef class Messages:
    """Messages that were read at once, including errors; one thread uses it. It is empty after its release."""

    def __cinit__(self):
        self.taken = NULL
        self.room = self.held = self.count = 0

    def __dealloc__(self):
        self.release()
        free(self.taken)

    def __len__(self):
        return self.count

    def release(self):
        """Return all messages to librdkafka."""
        cdef Py_ssize_t place
        for place in range(self.held):
            (<DestroyFunction>self.destroy)(self.taken[place].message)
        self.held = self.count = 0

    def cut(self, Py_ssize_t count):
        """Hide all but the first ``count`` messages."""
        self.count = max(min(self.count, count), 0)

    def next_offset(self):
        """Return the offset behind the last message, or None without one.

        The end-of-partition event has the offset of the next record itself.
        """
        cdef Message *last
        if self.count == 0:
            return None
        last = self.taken[self.count - 1].message
        return last.offset + (last.code == 0)

    def errors(self):
        """Return the places of messages that are no records."""
        cdef Py_ssize_t place
        return [place for place in range(self.count) if self.taken[place].message.code]

    def too_large(self, int64_t most_bytes):
        """Return place, offset and bytes of the first record with more bytes of key and value; None without one."""
        cdef Py_ssize_t place
        cdef Message *message
        for place in range(self.count):
            message = self.taken[place].message
            if not message.code and <int64_t>(message.key_size + message.value_size) > most_bytes:
                return place, message.offset, message.key_size + message.value_size
        return None

    def handed(self, Py_ssize_t start, Py_ssize_t stop, make_error):
        """Return the messages from ``start`` to ``stop`` as objects; ``make_error`` makes an error of code and text."""
        return [_handed(self, place, make_error) for place in range(max(start, 0), min(stop, self.count))]


cdef Handed _handed(Messages messages, Py_ssize_t place, make_error):
    cdef Taken *taken = &messages.taken[place]
    cdef Message *message = taken.message
    cdef Handed made = Handed()
    cdef const char *text
    made._offset, made._timestamp = message.offset, (1, taken.timestamp_ms)
    made.raw_headers = b"\0"
    if message.code:
        # An error has its text in place of a value, so the value stays None for callers that expect records.
        text = (<ErrorTextFunction>messages.error_text)(message)
        made._error = make_error(message.code, text.decode("utf-8", "replace") if text != NULL else "")
        return made
    made._key = _bytes_or_none(message.key, message.key_size)
    made._value = _bytes_or_none(message.value, message.value_size)
    if taken.headers != NULL and taken.headers_size > 0:
        made.raw_headers = PyBytes_FromStringAndSize(taken.headers, taken.headers_size)
    return made


cdef class Reader:
    """Takes messages out of the queue of a partition, which has no other reader; one thread uses it.

    ``queue`` belongs to librdkafka, whose functions are at ``addresses``. ``headers_at`` gives the positions in its
    message of the length of the headers and of the pointer to them. The caller must guarantee these, and keep the queue
    alive until the last read.
    """

    cdef void *queue
    cdef ConsumeFunction consume
    cdef TimestampFunction timestamp
    cdef void *destroy
    cdef void *error_text
    cdef Py_ssize_t size_at
    cdef Py_ssize_t headers_at
    cdef Message **messages

    def __cinit__(self, uintptr_t queue, addresses, tuple headers_at not None):
        self.queue = <void *>queue
        self.consume = <ConsumeFunction><uintptr_t>addresses["rd_kafka_consume_batch_queue"]
        self.timestamp = <TimestampFunction><uintptr_t>addresses["rd_kafka_message_timestamp"]
        self.destroy = <void *><uintptr_t>addresses["rd_kafka_message_destroy"]
        self.error_text = <void *><uintptr_t>addresses["rd_kafka_message_errstr"]
        self.size_at, self.headers_at = headers_at
        self.messages = <Message **>malloc(STEP * sizeof(Message *))
        if self.messages == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.messages)

    def close(self):
        """Detach from the queue; later reads return no message."""
        self.queue = NULL

    def read(self, int wait_ms, Py_ssize_t most, int64_t most_header_bytes):
        """Wait for the first message, and return it with those that have arrived.

        These are ``most`` messages at most; the read ends early once their headers have ``most_header_bytes``.
        """
        cdef Messages found = Messages()
        most = max(min(most, MAX_AT_ONCE), 0)
        found.taken = <Taken *>malloc(max(most, 1) * sizeof(Taken))
        if found.taken == NULL:
            raise MemoryError
        found.room, found.destroy, found.error_text = most, self.destroy, self.error_text
        if self.queue == NULL:
            return found
        with nogil:
            self.take(found.taken, &found.held, wait_ms, most, most_header_bytes)
        found.count = found.held
        return found

    cdef void take(
        self, Taken *taken, Py_ssize_t *held, int wait_ms, Py_ssize_t most, int64_t most_header_bytes
    ) noexcept nogil:
        cdef Py_ssize_t step = min(1, most), got, place
        cdef int64_t header_bytes = 0
        while step > 0:
            # The call returns early only when it has all messages, so it may wait only for the first one.
            got = self.consume(self.queue, 0 if held[0] else wait_ms, self.messages, <size_t>step)
            for place in range(got):
                header_bytes += self.note(&taken[held[0]], self.messages[place])
                held[0] += 1
            if got < step or header_bytes >= most_header_bytes:
                return
            step = min(STEP, most - held[0])

    cdef int32_t note(self, Taken *taken, Message *message) noexcept nogil:
        cdef int kind = 0
        taken.message, taken.timestamp_ms, taken.headers, taken.headers_size = message, -1, NULL, 0
        if message.code:
            return 0
        taken.timestamp_ms = self.timestamp(message, &kind)
        taken.headers_size = (<int32_t *>(<char *>message + self.size_at))[0]
        taken.headers = (<const char **>(<char *>message + self.headers_at))[0]
        if taken.headers == NULL or taken.headers_size < 0:
            taken.headers, taken.headers_size = NULL, 0
        return taken.headers_size

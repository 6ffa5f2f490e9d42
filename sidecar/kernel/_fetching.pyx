# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
"""Takes messages of one partition without the lock of the interpreter and without making objects of them.

confluent-kafka makes a dozen objects of each message, but a packed record needs none. The messages taken here stay in
the memory of librdkafka until they are released, and ``_deciding.pyx`` reads them there. Python may ask for single
messages, which become objects like those of confluent-kafka. Headers are in the encoding of the log (``_headers.pxd``).

This module is also a plugin of librdkafka, which loads it by the public setting ``plugin.library.paths`` and calls
``conf_init``. The interceptors that ``conf_init`` registers learn the handle of each client, and see each message
before confluent-kafka takes it apart. A :class:`Watch` hands both to Python.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc

from sidecar.kernel._headers cimport (
    Encoded,
    HeaderAtFunction,
    HeaderCountFunction,
    HeaderNamedFunction,
    HeadersFreeFunction,
    HeadersFunction,
    Library,
    examine,
)

# Revision of the arguments and results of this module; choice.py has the same number.
REVISION = 13

ctypedef Py_ssize_t (*ConsumeFunction)(void *queue, int timeout_ms, Message **messages, size_t count) noexcept nogil
ctypedef int64_t (*TimestampFunction)(const Message *message, int *kind) noexcept nogil
ctypedef void (*DestroyFunction)(Message *message) noexcept nogil
ctypedef const char *(*ErrorTextFunction)(const Message *message) noexcept nogil
ctypedef int (*OnNewFunction)(void *client, const void *conf, void *opaque, char *text, size_t size) noexcept nogil
ctypedef int (*OnConsumeFunction)(void *client, void *message, void *opaque) noexcept nogil
ctypedef int (*OnDestroyFunction)(void *client, void *opaque) noexcept nogil
ctypedef int (*AddOnNewFunction)(void *conf, const char *name, OnNewFunction call, void *opaque) noexcept nogil
ctypedef int (*AddOnConsumeFunction)(
    void *client, const char *name, OnConsumeFunction call, void *opaque
) noexcept nogil
ctypedef int (*AddOnDestroyFunction)(
    void *client, const char *name, OnDestroyFunction call, void *opaque
) noexcept nogil

cdef enum:
    # Messages taken out of the queue at once; after each step the reader compares the bytes of headers with the limit.
    STEP = 64
    MAX_AT_ONCE = 65536


cdef object _bytes_or_none(const void *place, size_t size):
    return PyBytes_FromStringAndSize(<const char *>place, <Py_ssize_t>size) if place != NULL else None


cdef class Handed:
    """One message with the methods of confluent-kafka that intake calls.

    ``raw_headers`` are those of the log, unless they are hidden: then they are those that librdkafka shows.
    """

    cdef object _offset, _error, _key, _value, _timestamp
    cdef readonly object raw_headers
    cdef readonly bint is_hidden

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
            free(self.taken[place].headers)
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
    made.raw_headers, made.is_hidden = b"\0", taken.is_hidden
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


cdef Library _library(addresses, int memory):
    cdef Library library
    library.headers = <HeadersFunction><uintptr_t>addresses["rd_kafka_message_headers"]
    library.detach = <HeadersFunction><uintptr_t>addresses["rd_kafka_message_detach_headers"]
    library.count = <HeaderCountFunction><uintptr_t>addresses["rd_kafka_header_cnt"]
    library.at = <HeaderAtFunction><uintptr_t>addresses["rd_kafka_header_get_all"]
    library.named = <HeaderNamedFunction><uintptr_t>addresses["rd_kafka_header_get"]
    library.free = <HeadersFreeFunction><uintptr_t>addresses["rd_kafka_headers_destroy"]
    library.memory = memory
    return library


cdef class Reader:
    """Takes messages out of the queue of a partition, which has no other reader; one thread uses it.

    ``queue`` belongs to librdkafka, whose functions are at ``addresses``. The caller must keep the queue alive until
    the last read. ``memory`` is a file with the memory of the process, or -1.
    """

    cdef void *queue
    cdef ConsumeFunction consume
    cdef TimestampFunction timestamp
    cdef void *destroy
    cdef void *error_text
    cdef Library library
    cdef Message **messages

    def __cinit__(self, uintptr_t queue, addresses, int memory):
        self.queue = <void *>queue
        self.consume = <ConsumeFunction><uintptr_t>addresses["rd_kafka_consume_batch_queue"]
        self.timestamp = <TimestampFunction><uintptr_t>addresses["rd_kafka_message_timestamp"]
        self.destroy = <void *><uintptr_t>addresses["rd_kafka_message_destroy"]
        self.error_text = <void *><uintptr_t>addresses["rd_kafka_message_errstr"]
        self.library = _library(addresses, memory)
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
        cdef bint is_complete
        most = max(min(most, MAX_AT_ONCE), 0)
        found.taken = <Taken *>malloc(max(most, 1) * sizeof(Taken))
        if found.taken == NULL:
            raise MemoryError
        found.room, found.destroy, found.error_text = most, self.destroy, self.error_text
        if self.queue == NULL:
            return found
        with nogil:
            is_complete = self.take(found.taken, &found.held, wait_ms, most, most_header_bytes)
        if not is_complete:
            raise MemoryError
        found.count = found.held
        return found

    cdef bint take(
        self, Taken *taken, Py_ssize_t *held, int wait_ms, Py_ssize_t most, int64_t most_header_bytes
    ) noexcept nogil:
        """Take messages; return False without memory for the headers of one."""
        cdef Py_ssize_t step = min(1, most), got, place
        cdef int64_t header_bytes = 0
        cdef bint is_complete = True
        while step > 0:
            # The call returns early only when it has all messages, so it may wait only for the first one.
            got = self.consume(self.queue, 0 if held[0] else wait_ms, self.messages, <size_t>step)
            for place in range(got):
                is_complete &= self.note(&taken[held[0]], self.messages[place])
                header_bytes += taken[held[0]].headers_size
                held[0] += 1
            if got < step or header_bytes >= most_header_bytes or not is_complete:
                break
            step = min(STEP, most - held[0])
        return is_complete

    cdef bint note(self, Taken *taken, Message *message) noexcept nogil:
        cdef int kind = 0
        cdef Encoded found
        taken.message, taken.timestamp_ms, taken.headers, taken.headers_size = message, -1, NULL, 0
        taken.is_hidden = False
        if message.code:
            return True
        taken.timestamp_ms = self.timestamp(message, &kind)
        if not examine(&self.library, message, False, &found):
            return False
        taken.headers, taken.headers_size, taken.is_hidden = found.place, found.size, found.is_hidden
        return True


# Plugin of librdkafka.

cdef extern from *:
    """
    static __thread void *kernel_newest = NULL;
    #define KERNEL_LEAVE(owners) __atomic_sub_fetch(owners, 1, __ATOMIC_ACQ_REL)
    """
    void *kernel_newest
    int KERNEL_LEAVE(int *owners) nogil

cdef Library plugged
cdef AddOnNewFunction add_on_new = NULL
cdef AddOnConsumeFunction add_on_consume = NULL
cdef AddOnDestroyFunction add_on_destroy = NULL


def plug(addresses, int memory):
    """Set the functions and the memory of the process, before the first client is made with the plugin."""
    global plugged, add_on_new, add_on_consume, add_on_destroy
    plugged = _library(addresses, memory)
    add_on_new = <AddOnNewFunction><uintptr_t>addresses["rd_kafka_conf_interceptor_add_on_new"]
    add_on_consume = <AddOnConsumeFunction><uintptr_t>addresses["rd_kafka_interceptor_add_on_consume"]
    add_on_destroy = <AddOnDestroyFunction><uintptr_t>addresses["rd_kafka_interceptor_add_on_destroy"]


cdef public int conf_init(void *conf, void **opaque, char *text, size_t size) noexcept nogil:
    """Prepare a client; librdkafka calls this function for the settings of each."""
    if add_on_new == NULL:
        return -1
    return add_on_new(conf, b"delay-router", _on_new, NULL)


cdef int _on_new(void *client, const void *conf, void *opaque, char *text, size_t size) noexcept nogil:
    global kernel_newest
    cdef Watched *watched = <Watched *>calloc(1, sizeof(Watched))
    if watched == NULL:
        return -1
    watched.client, watched.owners = client, 2
    add_on_destroy(client, b"delay-router", _on_destroy, watched)
    add_on_consume(client, b"delay-router", _on_consume, watched)
    kernel_newest = watched
    return 0


cdef int _on_destroy(void *client, void *opaque) noexcept nogil:
    (<Watched *>opaque).client = NULL
    _leave(<Watched *>opaque)
    return 0


cdef int _on_consume(void *client, void *message, void *opaque) noexcept nogil:
    cdef Watched *watched = <Watched *>opaque
    cdef Doubt *larger
    cdef Encoded found
    if not watched.is_on or (<Message *>message).code:
        return 0
    watched.seen += 1
    if not examine(&plugged, message, True, &found):
        watched.lacks_memory = True
        return 0
    if not found.is_odd:
        return 0
    if watched.count == watched.room:
        larger = <Doubt *>realloc(watched.doubts, (2 * watched.room + 16) * sizeof(Doubt))
        if larger == NULL:
            free(found.place)
            watched.lacks_memory = True
            return 0
        watched.doubts, watched.room = larger, 2 * watched.room + 16
    watched.doubts[watched.count].offset = (<Message *>message).offset
    watched.doubts[watched.count].headers = found
    watched.count += 1
    return 0


cdef void _clear(Watched *watched) noexcept nogil:
    cdef Py_ssize_t place
    for place in range(watched.count):
        free(watched.doubts[place].headers.place)
    watched.count = watched.seen = 0
    watched.lacks_memory = False


cdef void _leave(Watched *watched) noexcept nogil:
    if KERNEL_LEAVE(&watched.owners) == 0:
        _clear(watched)
        free(watched.doubts)
        free(watched)


cdef class Watch:
    """The handle of a client, and the messages that confluent-kafka may hand over altered; see ``newest``."""

    def __dealloc__(self):
        if self.watched != NULL:
            _leave(self.watched)

    @property
    def client(self):
        """Handle of the client in librdkafka; 0 once it is closed."""
        return <uintptr_t>self.watched.client

    def begin(self):
        """Begin to look at the headers of messages, anew; from now on ``doubts`` must be called after each read."""
        _clear(self.watched)
        self.watched.is_on = True

    def doubts(self, Py_ssize_t records):
        """Return the encoded headers of odd records by offset, each with whether they are hidden.

        They belong to the ``records`` that the client has handed over since the last call. Raise RuntimeError if the
        plugin has not seen all of these.
        """
        cdef Doubt *doubt
        cdef Py_ssize_t place
        try:
            if self.watched.lacks_memory:
                raise MemoryError
            if self.watched.seen < records:
                raise RuntimeError(f"librdkafka showed {self.watched.seen} of {records} records to its plugin")
            found = {}
            for place in range(self.watched.count):
                doubt = &self.watched.doubts[place]
                raw = b"\0"
                if doubt.headers.place != NULL:
                    raw = PyBytes_FromStringAndSize(doubt.headers.place, doubt.headers.size)
                found[doubt.offset] = raw, bool(doubt.headers.is_hidden)
            return found
        finally:
            _clear(self.watched)


def newest():
    """Return the Watch of the client that this thread has made last with the plugin, or None; only once for each."""
    global kernel_newest
    cdef Watch made
    if kernel_newest == NULL:
        return None
    made = Watch.__new__(Watch)
    made.watched = <Watched *>kernel_newest
    kernel_newest = NULL
    return made

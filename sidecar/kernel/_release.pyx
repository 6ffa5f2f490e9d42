# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
"""Writes released records, and many of them without the lock of the interpreter: the compiled half of ``sidecar.kafka.writing.writer``.

It makes two passes over a few hundred records at a time. The first pass holds the lock: it takes each record apart and
notes the place of its bytes, or stops at the first record that is not of the common form. The second pass does not hold
the lock: it builds the headers and passes the records to librdkafka, which copies everything. In between, references
keep the noted bytes alive.

The public function of librdkafka that takes a record is variadic: each argument is preceded by a number that names it.
This module is not linked with librdkafka; it calls the function by its address.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcpy

from sidecar.kernel._fetching cimport Watch
from sidecar.kernel._given cimport content_of, number_of, text_of
from sidecar.kernel._notations cimport Bytes

# Revision of the arguments and results of this module; choice.py has the same number.
REVISION = 13

ctypedef int (*ProduceFunction)(void *client, ...) noexcept nogil
ctypedef void *(*HeadersNewFunction)(size_t count) noexcept nogil
ctypedef int (*HeaderAddFunction)(
    void *headers, const char *name, Py_ssize_t name_size, const void *content, Py_ssize_t size
) noexcept nogil
ctypedef void (*HeadersDestroyFunction)(void *headers) noexcept nogil

# rd_kafka_vtype_t and RD_KAFKA_MSG_F_COPY of rdkafka.h.
cdef enum:
    V_END = 0
    V_TOPIC = 1
    V_PARTITION = 3
    V_VALUE = 4
    V_KEY = 5
    V_MSGFLAGS = 7
    V_TIMESTAMP = 8
    V_HEADERS = 10
    F_COPY = 2

cdef enum:
    # Most characters of an int64_t in decimal, with its sign.
    MAX_DIGITS = 20
    # Most bytes of topic and partition; the name of a topic has 249 bytes at most.
    MAX_SOURCE = 300
    MAX_AT_ONCE = 4096
    # Records that are produced without a release of the interpreter lock: other threads would take it, and the wait for
    # it takes longer than the records do.
    FEW = 64
    # Headers that release adds to a record.
    OWN_HEADERS = 6
    # As in index.protocol.schedule.
    AT_ONCE = 0
    BY_KEY = -1
    MAX_PARTITION = 0x7FFFFFFF
    # Origin of the timestamp of a released record; any other mode keeps its own timestamp.
    MODE_RELEASE = 0
    MODE_DUE = 1

cdef struct Header:
    Bytes name
    Bytes content

cdef struct Leaving:
    int64_t due_ms
    int64_t offset
    int64_t source_ms
    int64_t timestamp_ms
    # The number of the attempt; 0 where none are counted.
    int64_t attempt
    int32_t partition
    Bytes target
    Bytes key
    Bytes value
    Bytes deliver_id
    Py_ssize_t first_header
    Py_ssize_t header_count


cdef bint _text(object given, Bytes *text) except -1:
    """Take text without a NUL byte; Python handles one with it, because confluent-kafka refuses it or cuts it off."""
    return text_of(given, text) and memchr(text.place, 0, text.size) == NULL


cdef Py_ssize_t _decimal(char *place, int64_t number) noexcept nogil:
    """Write a number as Python's b"%d" does, and return the number of bytes."""
    cdef char[MAX_DIGITS] backwards
    cdef uint64_t left = <uint64_t>number
    cdef Py_ssize_t count = 0, size = 0
    if number < 0:
        left = 0 - left
        place[0] = b"-"
        size = 1
    while True:
        backwards[count] = <char>(c"0" + left % 10)
        count += 1
        left //= 10
        if left == 0:
            break
    while count:
        count -= 1
        place[size] = backwards[count]
        size += 1
    return size


cdef int64_t _timestamp(int mode, int64_t due_ms, int64_t source_ms) noexcept:
    """Return the timestamp of a released record, as ``sidecar.kafka.writing.writer`` does; 0 means the time of writing."""
    if mode == MODE_RELEASE:
        return 0
    if mode == MODE_DUE and due_ms:
        return due_ms
    return max(source_ms, 0)


cdef bint _is_stripped(object stripped, object name) except -1:
    cdef PyObject *known = PyDict_GetItemWithError(stripped, name)
    # The class of the dictionary judges a new name.
    return <object>known if known != NULL else stripped[name]


cdef class Writer:
    """Produces records of one partition to their targets, as ``PartitionWriter`` does; used by one thread.

    ``watch`` has the handle of the producer in librdkafka, whose functions are at ``addresses``.
    ``stripped`` says for each header name whether to omit it, and ``counted`` says the same for records whose attempts
    are counted. ``keep_key`` stands for the record's own key, and ``source`` is the part of ``delay-source`` that all
    records of the partition share.
    """

    cdef Watch watch
    cdef ProduceFunction produce
    cdef HeadersNewFunction headers_new
    cdef HeaderAddFunction header_add
    cdef HeadersDestroyFunction headers_destroy
    cdef object stripped
    cdef object counted
    cdef object keep_key
    cdef char[MAX_SOURCE + MAX_DIGITS] source
    cdef Py_ssize_t source_size
    cdef bint busy
    cdef Leaving *records
    cdef Header *headers
    cdef Py_ssize_t header_count
    cdef Py_ssize_t header_room

    def __cinit__(
        self, Watch watch not None, addresses, stripped, counted, keep_key, bytes source not None
    ):
        if len(source) > MAX_SOURCE:
            raise ValueError(f"{len(source)} bytes of source, which is longer than any topic name")
        for names in (stripped, counted):
            if not isinstance(names, dict):
                raise TypeError(f"names to be stripped are looked up in a dictionary, and not in {type(names)}")
        self.watch = watch
        self.produce = <ProduceFunction><uintptr_t>addresses["rd_kafka_producev"]
        self.headers_new = <HeadersNewFunction><uintptr_t>addresses["rd_kafka_headers_new"]
        self.header_add = <HeaderAddFunction><uintptr_t>addresses["rd_kafka_header_add"]
        self.headers_destroy = <HeadersDestroyFunction><uintptr_t>addresses["rd_kafka_headers_destroy"]
        self.stripped, self.counted = stripped, counted
        self.keep_key = keep_key
        self.source_size = len(source)
        memcpy(self.source, PyBytes_AS_STRING(source), self.source_size)
        self.header_room = 4 * MAX_AT_ONCE
        self.records = <Leaving *>malloc(MAX_AT_ONCE * sizeof(Leaving))
        self.headers = <Header *>malloc(self.header_room * sizeof(Header))
        if self.records == NULL or self.headers == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.records)
        free(self.headers)

    def release(self, list entries not None, Py_ssize_t start, Py_ssize_t most, dict modes not None):
        """Produce entries from ``start`` on, ``most`` at most; return the next place, and the error of librdkafka or 0.

        The writer stops in front of the first entry that it leaves to Python: one with several targets, one that is
        passed on without a time, one with a value of an unknown type, or one that librdkafka refuses; it has written no
        part of that entry. ``modes`` maps a target, or None for all other targets, to the origin of the timestamp: 0
        the time of release, 1 the due time, 2 the record's own timestamp.
        """
        # References keep the bytes alive until librdkafka has copied them: ``chunk`` holds the entries, which are
        # tuples, and ``held`` the headers, because the list around them can change.
        cdef list chunk, held
        cdef Py_ssize_t count, done = 0
        cdef int code = 0
        cdef void *client = self.watch.watched.client
        if self.busy or client == NULL or most <= 0 or not 0 <= start < len(entries):
            return start, 0
        self.busy = True
        try:
            chunk, held = entries[start:start + min(most, MAX_AT_ONCE)], []
            count = self.gather(chunk, held, modes)
            if count <= FEW:
                done = self.write_all(client, count, &code)
            else:
                with nogil:
                    done = self.write_all(client, count, &code)
        finally:
            self.busy = False
        return start + done, code

    cdef Py_ssize_t write_all(self, void *client, Py_ssize_t count, int *code) noexcept nogil:
        """Produce the first ``count`` gathered records up to the first that fails, and return their number."""
        cdef Py_ssize_t done = 0
        while done < count:
            code[0] = self.write(client, &self.records[done])
            if code[0]:
                break
            done += 1
        return done

    cdef Py_ssize_t gather(self, list chunk, list held, dict modes) except -1:
        """Take entries up to the first that is not of the common form, and return their number."""
        cdef Py_ssize_t count = 0
        self.header_count = 0
        for entry in chunk:
            if not self.take(&self.records[count], entry, held, modes):
                break
            count += 1
        return count

    cdef bint take(self, Leaving *leaving, object entry, list held, dict modes) except -1:
        """Take an entry, ``(due, offset, (schedule, size, record))``; say whether it can be released here."""
        cdef int64_t partition = 0
        cdef tuple payload, schedule, record
        cdef object stripped = self.stripped
        if not isinstance(entry, tuple) or len(<tuple>entry) != 3:
            return False
        due, offset, payload_given = (<tuple>entry)[0], (<tuple>entry)[1], (<tuple>entry)[2]
        if not isinstance(payload_given, tuple) or len(<tuple>payload_given) != 3:
            return False
        payload = <tuple>payload_given
        if not isinstance(payload[0], tuple) or not isinstance(payload[2], tuple):
            return False
        schedule, record = <tuple>payload[0], <tuple>payload[2]
        # A record with a spread has another header and another due time; Python computes them.
        if len(schedule) != 9 or schedule[7] != 0 or len(record) != 4:
            return False
        leaving.attempt = 0
        if schedule[8] is not None:
            if not self.take_attempt(leaving, schedule[8]):
                return False
            stripped = self.counted
        key = record[0] if schedule[3] is self.keep_key else schedule[3]
        if not (
            number_of(due, &leaving.due_ms)
            and number_of(offset, &leaving.offset)
            and number_of(record[3], &leaving.source_ms)
            and number_of(schedule[2], &partition)
            and BY_KEY <= partition <= MAX_PARTITION
            and content_of(key, &leaving.key)
            and content_of(record[1], &leaving.value)
            and content_of(schedule[4], &leaving.deliver_id)
            and self.take_target(leaving, schedule[1], modes)
        ):
            return False
        leaving.partition = <int32_t>partition
        return self.take_headers(leaving, record[2], held, stripped)

    cdef bint take_attempt(self, Leaving *leaving, object attempt) except -1:
        """Take the number of an attempt; Python writes a record without an attempt left."""
        return (
            isinstance(attempt, tuple) and len(<tuple>attempt) == 3 and (<tuple>attempt)[1] is False
            and number_of((<tuple>attempt)[0], &leaving.attempt)
        )

    cdef bint take_target(self, Leaving *leaving, object targets, dict modes) except -1:
        """Take the target, if there is exactly one.

        If librdkafka refused the second of several, the first would be written already, and the caller could not know.
        """
        if not isinstance(targets, tuple) or len(<tuple>targets) != 1:
            return False
        target = (<tuple>targets)[0]
        if not _text(target, &leaving.target):
            return False
        mode = modes.get(target, modes[None])
        leaving.timestamp_ms = _timestamp(mode, leaving.due_ms, leaving.source_ms)
        return True

    cdef bint take_headers(self, Leaving *leaving, object given, list held, object stripped) except -1:
        cdef Header *header
        cdef bint at_once = leaving.due_ms == AT_ONCE
        leaving.first_header = self.header_count
        if type(given) is not list and type(given) is not tuple:
            return False
        for pair in given:
            if type(pair) is not tuple or len(<tuple>pair) != 2:
                return False
            name, content = (<tuple>pair)[0], (<tuple>pair)[1]
            # Python counts the hops of a record that was passed on without a time, which is rare.
            if type(name) is not str or (at_once and name == "delay-source"):
                return False
            if _is_stripped(stripped, name):
                continue
            header = self.next_header()
            if not _text(name, &header.name) or not content_of(content, &header.content):
                return False
            held.append(pair)
        leaving.header_count = self.header_count - leaving.first_header
        if at_once:
            leaving.due_ms = max(leaving.source_ms, 0)
        return True

    cdef Header *next_header(self) except NULL:
        cdef Header *larger
        if self.header_count == self.header_room:
            larger = <Header *>realloc(self.headers, 2 * self.header_room * sizeof(Header))
            if larger == NULL:
                raise MemoryError
            self.headers = larger
            self.header_room *= 2
        self.header_count += 1
        return &self.headers[self.header_count - 1]

    cdef int write(self, void *client, const Leaving *leaving) noexcept nogil:
        """Pass one record to librdkafka; return 0, or the error for which it was refused."""
        cdef char[MAX_DIGITS] number
        cdef char[MAX_SOURCE + MAX_DIGITS] source
        cdef void *headers = self.headers_new(leaving.header_count + OWN_HEADERS)
        cdef const Header *header
        cdef Py_ssize_t place
        cdef int code
        for place in range(leaving.first_header, leaving.first_header + leaving.header_count):
            header = &self.headers[place]
            self.header_add(headers, header.name.place, header.name.size, header.content.place, header.content.size)
        self.header_add(headers, b"delay-due", 9, number, _decimal(number, leaving.due_ms))
        memcpy(source, self.source, self.source_size)
        place = self.source_size + _decimal(source + self.source_size, leaving.offset)
        self.header_add(headers, b"delay-source", 12, source, place)
        self.header_add(headers, b"delay-source-timestamp", 22, number, _decimal(number, leaving.source_ms))
        if leaving.deliver_id.place != NULL:
            self.header_add(headers, b"delay-id", 8, leaving.deliver_id.place, leaving.deliver_id.size)
        if leaving.attempt:
            self.header_add(headers, b"delay-attempt", 13, number, _decimal(number, leaving.attempt))
            self.header_add(headers, b"delay-target", 12, leaving.target.place, leaving.target.size)
        code = self.produce(
            client,
            <int>V_TOPIC, leaving.target.place,
            <int>V_PARTITION, leaving.partition,
            <int>V_VALUE, leaving.value.place, <size_t>leaving.value.size,
            <int>V_KEY, leaving.key.place, <size_t>leaving.key.size,
            <int>V_MSGFLAGS, <int>F_COPY,
            <int>V_TIMESTAMP, leaving.timestamp_ms,
            <int>V_HEADERS, headers,
            <int>V_END,
        )
        if code:
            # librdkafka takes ownership of the headers only with the record.
            self.headers_destroy(headers)
        return code

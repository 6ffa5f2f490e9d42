# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False, cdivision=True
"""Decides and packs records of the common form: the compiled half of ``sidecar.engine.intake.deciding``.

A record of the common form has a timestamp, at most one header of each control role, times in one of the notations
below, at most one target, an attempt left where attempts are counted (:mod:`index.rules.retrying`), and no header that
cancels, moves or recurs. The kernel asks Python for the meaning of each header name and target once, when it first
meets it. It stops in front of a record of any other form, and of a record that must be rejected: Python decides that
record.

==================  ===================================================================================
``deliver-at``      up to 18 digits that can be nothing but milliseconds; RFC 3339 from 1970 on
``deliver-after``   up to 18 digits; a number and its unit, ``10s``; one amount of ISO 8601, ``PT15M``, ``P1D``
==================  ===================================================================================
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int16_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from sidecar.kernel._fetching cimport Message, Messages, Taken
from sidecar.kernel._given cimport PyUnicode_AsUTF8AndSize, content_of, number_of, text_of
from sidecar.kernel._headers cimport length_of
from sidecar.kernel._notations cimport INT64_MAX, digits_of, duration_of, instant_of
from sidecar.kernel._written cimport Written, column_size, put_bytes, put_column

cdef extern from *:
    ctypedef unsigned long long uint128_t "unsigned __int128"

cdef extern from "Python.h":
    ctypedef object (*allocfunc)(type, Py_ssize_t)
    ctypedef struct PyTypeObject:
        allocfunc tp_alloc

# Revision of the arguments and results of this module; choice.py has the same number.
REVISION = 13

cdef enum:
    MAX_NAME_BYTES = 256
    MAX_ROUTES = 4096
    MAX_SHAPES = 4096
    MAX_ID_BYTES = 256
    # As in index.rules.retrying.
    MAX_ATTEMPTS = 1000
    MAX_PARTITION = 0x7FFFFFFF
    # As in index.protocol.schedule.
    AT_ONCE = 0
    BY_KEY = -1
    NO_EXPIRY = -1
    # As in sidecar.engine.payload.records and sidecar.engine.intake.deciding.
    RESIDENT_OVERHEAD_BYTES = 500
    HEADER_OVERHEAD_BYTES = 120
    PACKED_OVERHEAD_BYTES = 300
    PACKED_BYTES = 65536
    # Number of fields of the namedtuples.
    RECORD_FIELDS = 4
    SCHEDULE_FIELDS = 9
    SCHEDULED_FIELDS = 3
    PACKED_FIELDS = 5

# Tags of segment.proto; each is one byte.
cdef enum:
    INLINE_KEYS = 0x2A
    INLINE_VALUES = 0x32
    INLINE_HEADER_VALUES = 0x52

# As in index.protocol.readers: a number below the first limit, or between the other two, can only be milliseconds.
cdef int64_t FIRST_SECONDS = 1_000_000_000
cdef int64_t FIRST_MILLIS = 100_000_000_000
cdef int64_t FIRST_MICROS = 100_000_000_000_000

# As in index.rules.retrying.
cdef uint64_t PLASTIC = 0xC13F_A9A9_02A6_328F


cdef bint _time(Bytes *raw, int means, int64_t *time_ms) noexcept nogil:
    """Parse an instant or a duration; refuse a number whose unit is in doubt."""
    cdef bint is_instant = means & ROLE_BITS == AT
    if digits_of(raw.place, raw.size, time_ms):
        return means & DIGITS and (not is_instant or _is_certain(time_ms[0]))
    if not means & TEXT:
        return False
    return instant_of(raw, time_ms) if is_instant else duration_of(raw, time_ms)


cdef bint _is_certain(int64_t due_ms) noexcept nogil:
    return due_ms < FIRST_SECONDS or FIRST_MILLIS <= due_ms < FIRST_MICROS


cdef bint _piece(const char **at, const char *end, Bytes *piece) noexcept nogil:
    """Parse a length and the bytes behind it; a length of -1 means null."""
    cdef int64_t size = 0
    if not length_of(at, end, &size) or size > end - at[0]:
        return False
    piece.place, piece.size = NULL, 0
    if size >= 0:
        piece.place, piece.size = at[0], <Py_ssize_t>size
        at[0] += size
    return size >= -1


cdef bint _parse_headers(Taken *taken, Header *headers, int *found) noexcept nogil:
    """Parse headers in the encoding of the log; return False for more than MAX_HEADERS, and for invalid bytes."""
    cdef const char *at = taken.headers
    cdef const char *end = at + taken.headers_size
    cdef int64_t count = 0
    cdef int place
    if taken.headers_size == 0:
        found[0] = 0
        return True
    if not length_of(&at, end, &count) or not 0 <= count <= MAX_HEADERS:
        return False
    for place in range(<int>count):
        if not _piece(&at, end, &headers[place].name) or headers[place].name.place == NULL:
            return False
        if not _piece(&at, end, &headers[place].content):
            return False
    found[0] = <int>count
    return at == end


cdef object _bytes_of(Bytes *content):
    return PyBytes_FromStringAndSize(content.place, content.size) if content.place != NULL else None


cdef inline tuple _made(type kind, Py_ssize_t fields):
    """Return a namedtuple without fields, as ``tuple.__new__`` allocates it."""
    return <tuple>(<PyTypeObject *>kind).tp_alloc(kind, fields)


cdef inline void _set(tuple made, Py_ssize_t place, object field):
    Py_INCREF(field)
    PyTuple_SET_ITEM(made, place, field)


cdef class Routes:
    """The targets of records by the content of a header; ``route_of`` is asked once for each content."""

    def __cinit__(self, route_of):
        self.route_of, self.known = route_of, {}

    cdef tuple find(self, Bytes *name):
        """Return the targets, or None if Python must decide the record."""
        if (
            self.last is not None and PyBytes_GET_SIZE(self.last) == name.size
            and memcmp(PyBytes_AS_STRING(self.last), name.place, name.size) == 0
        ):
            return self.last_targets
        raw = _bytes_of(name)
        found = self.known.get(raw)
        if found is None:
            found = self.route_of(raw)
            if found is None:
                return None
            if len(self.known) >= MAX_ROUTES:
                self.known.clear()
            self.known[raw] = found
        self.last, self.last_targets = raw, found
        return found


cdef class Judge:
    """Decides records by one set of rules; each subclass reads records of another layout. One thread uses it.

    ``form`` is the ``CommonForm`` of the rules; ``packer`` packs rows.
    """

    def __cinit__(self, form, packer, *_):
        self.means, self.packer = form.means, packer
        self.routes, self.retry_routes = Routes(form.route), Routes(form.retry_route)
        self.default_targets = form.default_targets
        self.max_ahead_ms, self.delay_ms = form.max_ahead_ms, form.delay_ms
        self.requires_time = form.requires_time
        self.attempts, self.waits_ms, self.jitters_ms = form.attempts, form.waits_ms, form.jitters_ms
        self.shapes = {}
        self.last_count = -1
        self.forget_names()

    cdef bint judge(self, Seen *seen) except -1:
        """Say whether a record is of the common form and accepted, apart from its target; compute its due time."""
        cdef int place, number, means, role
        cdef int64_t at_ms = 0, after_ms = self.delay_ms, made = 0, most = self.attempts
        cdef Header *header
        seen.partition, seen.expire_ms, seen.roles = BY_KEY, NO_EXPIRY, 0
        seen.packable, seen.content_bytes = seen.value.place != NULL, 0
        seen.attempt = seen.jitter_ms = 0
        if self.name_count + seen.header_count > MAX_NAMES:
            self.forget_names()
        for place in range(seen.header_count):
            header = &self.headers[place]
            number = self.number_of(&header.name)
            if number < 0:
                return False
            self.numbers[place] = <int16_t>number
            if header.content.place == NULL:
                seen.packable = False
            seen.content_bytes += header.content.size
            means = self.names[number].means
            if means == NOTHING:
                continue
            role = means & ROLE_BITS
            # Null is a valid key; null in any other control header is invalid or has no meaning.
            if means == NOT_COMMON or seen.roles & 1 << role or (header.content.place == NULL and role != KEY):
                return False
            seen.roles |= 1 << role
            if role == AT:
                if not _time(&header.content, means, &at_ms):
                    return False
            elif role == AFTER:
                if not _time(&header.content, means, &after_ms):
                    return False
            elif role == EXPIRE:
                if not _time(&header.content, means, &seen.expire_ms):
                    return False
            elif role == PARTITION:
                if not digits_of(header.content.place, header.content.size, &seen.partition):
                    return False
                if seen.partition > MAX_PARTITION:
                    return False
            elif role == TO:
                seen.to = header.content
            elif role == KEY:
                seen.own_key = header.content
            elif role == ID:
                if header.content.size > MAX_ID_BYTES:
                    return False
                seen.deliver_id = header.content
            elif role == ATTEMPT:
                if not digits_of(header.content.place, header.content.size, &made):
                    return False
            elif role == ATTEMPTS_MAX:
                if not digits_of(header.content.place, header.content.size, &most) or not 1 <= most <= MAX_ATTEMPTS:
                    return False
            elif role == RETRY_TARGET:
                seen.retry_target = header.content
            else:
                return False
        if self.attempts and not self.take_attempt(seen, made, most, &after_ms):
            return False
        return self.take_due(seen, at_ms, after_ms)

    cdef bint take_attempt(self, Seen *seen, int64_t made, int64_t most, int64_t *after_ms) noexcept:
        """Take the next attempt and its wait; return False for a record without an attempt left."""
        cdef Py_ssize_t place
        if made >= most or made >= MAX_ATTEMPTS:
            return False
        seen.attempt = made + 1
        if not seen.roles & (1 << AT | 1 << AFTER):
            place = min(<Py_ssize_t>made, self.waits_ms.shape[0] - 1)
            after_ms[0], seen.jitter_ms = self.waits_ms[place], self.jitters_ms[place]
            seen.roles |= 1 << AFTER
        return True

    cdef bint take_due(self, Seen *seen, int64_t at_ms, int64_t after_ms) noexcept:
        if seen.timestamp_ms < 0:
            return False
        if seen.roles & 1 << AT:
            if seen.roles & 1 << AFTER:
                return False
            seen.due_ms = at_ms
        elif seen.roles & 1 << AFTER or self.delay_ms:
            if after_ms > INT64_MAX - seen.timestamp_ms:
                return False
            seen.due_ms = seen.timestamp_ms + after_ms
        else:
            seen.due_ms = AT_ONCE
            return not self.requires_time
        # Python decides a record whose headers give the time AT_ONCE, because it does not count as one without a time.
        if seen.due_ms <= AT_ONCE or seen.due_ms - seen.timestamp_ms > self.max_ahead_ms:
            return False
        if seen.jitter_ms:
            seen.due_ms -= <int64_t>(<uint128_t>(<uint64_t>seen.offset * PLASTIC) * <uint64_t>seen.jitter_ms >> 64)
        return True

    cdef tuple route(self, Seen *seen):
        """Return the targets of a record, or None if it may not have them."""
        if seen.roles & 1 << TO:
            return self.routes.find(&seen.to)
        return self.retry_routes.find(&seen.retry_target) if seen.roles & 1 << RETRY_TARGET else self.default_targets

    cdef int number_of(self, Bytes *name) except -2:
        """Return the number of a header name, and remember the name; -1 for a name that cannot be remembered."""
        cdef uint32_t mixed = 2166136261
        cdef Py_ssize_t at
        cdef int number
        if name.size > MAX_NAME_BYTES:
            return -1
        for at in range(name.size):
            mixed = (mixed ^ <uint8_t>name.place[at]) * 16777619
        mixed = (mixed ^ mixed >> 15) % SLOTS
        while self.slots[mixed]:
            number = self.slots[mixed] - 1
            if self.names[number].text.size == name.size and not memcmp(
                self.names[number].text.place, name.place, name.size
            ):
                return number
            mixed = (mixed + 1) % SLOTS
        return self.learn(name, mixed)

    cdef int learn(self, Bytes *name, uint32_t slot) except -2:
        cdef int number = self.name_count
        try:
            text = PyBytes_FromStringAndSize(name.place, name.size).decode()
        except UnicodeDecodeError:
            return -1
        self.names[number].means = self.means(text)
        self.names[number].text.place = PyUnicode_AsUTF8AndSize(text, &self.names[number].text.size)
        self.texts.append(text)
        self.slots[slot] = <int16_t>(number + 1)
        self.name_count += 1
        return number

    cdef void forget_names(self):
        """Forget all names; producers choose names, so their number must be bounded."""
        memset(self.slots, 0, sizeof(self.slots))
        self.texts, self.name_count = [], 0
        self.shapes.clear()
        self.last_count = -1

    cdef bytes pack(self, Seen *seen):
        """Return the row of a record, as ``RowPacker.pack`` makes it, or None if the record is too large for one."""
        cdef bytes shape, row
        cdef Written into
        cdef int place
        cdef Py_ssize_t size = column_size(seen.value.size)
        if seen.key.place != NULL:
            size += column_size(seen.key.size)
        for place in range(seen.header_count):
            size += column_size(self.headers[place].content.size)
        # Python decides whether a record near the limit still fits.
        if size > PACKED_BYTES:
            return None
        shape = self.shape(seen.header_count)
        if shape is None or size + PyBytes_GET_SIZE(shape) > PACKED_BYTES:
            return None
        row = PyBytes_FromStringAndSize(NULL, size + PyBytes_GET_SIZE(shape))
        into.place, into.size = <uint8_t *>PyBytes_AS_STRING(row), 0
        if seen.key.place != NULL:
            put_column(&into, INLINE_KEYS, seen.key.place, seen.key.size)
        put_column(&into, INLINE_VALUES, seen.value.place, seen.value.size)
        for place in range(seen.header_count):
            put_column(
                &into, INLINE_HEADER_VALUES, self.headers[place].content.place, self.headers[place].content.size
            )
        put_bytes(&into, PyBytes_AS_STRING(shape), PyBytes_GET_SIZE(shape))
        return row

    cdef bytes shape(self, int count):
        """Return the end of a row, which tells its headers, or None if the table of header names is full."""
        cdef Py_ssize_t size = count * sizeof(int16_t)
        cdef int place
        if self.last_count == count and memcmp(self.last_numbers, self.numbers, size) == 0:
            return self.last_shape
        numbers = PyBytes_FromStringAndSize(<char *>self.numbers, size)
        found = self.shapes.get(numbers)
        if found is None:
            found = self.packer.shape(tuple([self.texts[self.numbers[place]] for place in range(count)]))
            if found is None:
                return None
            if len(self.shapes) >= MAX_SHAPES:
                self.shapes.clear()
            self.shapes[numbers] = found
        memcpy(self.last_numbers, self.numbers, size)
        self.last_count, self.last_shape = count, found
        return found


cdef class Decider(Judge):
    """Decides messages.

    ``hash_of`` returns the hash of an id. ``kinds`` are the types Record, Schedule, Scheduled and Packed. ``keep_key``
    stands for the record's own key.
    """

    cdef object hash_of, keep_key, attempt_of
    cdef dict attempted
    cdef type record, schedule, scheduled, packed

    def __cinit__(self, form, packer, hash_of, tuple kinds not None, keep_key):
        self.hash_of, self.keep_key, self.attempt_of, self.attempted = hash_of, keep_key, form.attempt, {}
        self.record, self.schedule, self.scheduled, self.packed = kinds
        for kind in kinds:
            if not issubclass(kind, tuple):
                raise TypeError(f"what is made here are tuples, and {kind} is none")

    def decide(
        self, messages, headers, Py_ssize_t start, int64_t below, int64_t far_ms, int64_t room_bytes,
        list run not None, dict names not None,
    ):
        """Add the entries of messages from ``start`` on to a run, and the hashes of their ids to ``names``.

        Return ``(next, taken_bytes, without_time)``: the place of the first message left to Python, the memory that the
        decided records take, and the number of records without a time. The messages are those of ``_fetching.pyx``,
        which bring their headers, or objects with the methods of confluent-kafka's messages, with ``headers`` for each.
        The kernel stops at the offset ``below``, and in front of a record with which the memory would reach
        ``room_bytes``. It packs records that are due after ``far_ms``.
        """
        cdef Seen seen
        cdef Messages raw = <Messages>messages if type(messages) is Messages else None
        cdef Py_ssize_t place = start, count
        cdef int64_t taken_bytes = 0, size_bytes, without_time = 0
        cdef object key = None, value = None, given = None
        if start < 0:
            return start, 0, 0
        count = raw.count if raw is not None else min(len(messages), len(headers))
        while place < count:
            if raw is not None:
                if not self.take_raw(&raw.taken[place], &seen):
                    break
            else:
                message, given = messages[place], headers[place]
                if message.error() is not None:
                    break
                key, value = message.key(), message.value()
                if not self.take(message.offset(), key, value, given, message.timestamp(), &seen):
                    break
            if seen.offset >= below or not self.judge(&seen):
                break
            targets = self.route(&seen)
            if targets is None:
                break
            if seen.due_ms > far_ms and seen.packable:
                row = self.pack(&seen)
                if row is None:
                    break
                size_bytes = PACKED_OVERHEAD_BYTES + PyBytes_GET_SIZE(row)
                if taken_bytes + size_bytes >= room_bytes:
                    break
                payload = self.packed_of(&seen, size_bytes, row, targets)
            else:
                size_bytes = (
                    RESIDENT_OVERHEAD_BYTES + HEADER_OVERHEAD_BYTES * seen.header_count + seen.content_bytes
                    + seen.value.size + seen.key.size
                )
                if taken_bytes + size_bytes >= room_bytes:
                    break
                if raw is not None:
                    key, value, given = _bytes_of(&seen.key), _bytes_of(&seen.value), self.headers_of(&seen)
                payload = self.scheduled_of(&seen, size_bytes, targets, key, value, given)
            taken_bytes += size_bytes
            without_time += seen.due_ms == AT_ONCE
            if seen.roles & 1 << ID:
                names[seen.offset] = self.hash_of(_bytes_of(&seen.deliver_id))
            run.append((seen.due_ms, seen.offset, payload))
            place += 1
        return place, taken_bytes, without_time

    cdef bint take_raw(self, Taken *taken, Seen *seen) noexcept:
        cdef Message *message = taken.message
        # Python rejects a record whose headers librdkafka does not show.
        if message.code or taken.is_hidden:
            return False
        seen.offset, seen.timestamp_ms = message.offset, taken.timestamp_ms
        seen.key.place = <const char *>message.key
        seen.key.size = <Py_ssize_t>message.key_size if message.key != NULL else 0
        seen.value.place = <const char *>message.value
        seen.value.size = <Py_ssize_t>message.value_size if message.value != NULL else 0
        return _parse_headers(taken, self.headers, &seen.header_count)

    cdef bint take(self, object offset, object key, object value, object given, object timestamp, Seen *seen) except -1:
        return (
            type(timestamp) is tuple and len(<tuple>timestamp) == 2
            and number_of((<tuple>timestamp)[1], &seen.timestamp_ms)
            and number_of(offset, &seen.offset)
            and content_of(key, &seen.key) and content_of(value, &seen.value)
            and self.take_headers(given, seen)
        )

    cdef bint take_headers(self, object given, Seen *seen) except -1:
        cdef Py_ssize_t place, count
        cdef object pair
        if type(given) is not list and type(given) is not tuple:
            return False
        count = len(given)
        if count > MAX_HEADERS:
            return False
        for place in range(count):
            pair = given[place]
            if type(pair) is not tuple or len(<tuple>pair) != 2:
                return False
            if not text_of((<tuple>pair)[0], &self.headers[place].name):
                return False
            if not content_of((<tuple>pair)[1], &self.headers[place].content):
                return False
        seen.header_count = <int>count
        return True

    cdef list headers_of(self, Seen *seen):
        """Return the headers of a record in the form of confluent-kafka; all names are known by now."""
        cdef list found = PyList_New(seen.header_count)
        cdef int place
        cdef tuple header
        for place in range(seen.header_count):
            header = PyTuple_New(2)
            _set(header, 0, self.texts[self.numbers[place]])
            _set(header, 1, _bytes_of(&self.headers[place].content))
            Py_INCREF(header)
            PyList_SET_ITEM(found, place, header)
        return found

    cdef tuple packed_of(self, Seen *seen, int64_t size_bytes, bytes row, tuple targets):
        cdef tuple made = _made(self.packed, PACKED_FIELDS)
        _set(made, 0, seen.timestamp_ms)
        _set(made, 1, size_bytes)
        _set(made, 2, row)
        _set(made, 3, self.packer)
        _set(made, 4, targets[0])
        return made

    cdef object attempt(self, Seen *seen):
        """Return the attempt of a record; there are two for each number, since only a wait of the router has jitter."""
        number = -seen.attempt if seen.jitter_ms else seen.attempt
        found = self.attempted.get(number)
        if found is None:
            found = self.attempted[number] = self.attempt_of(seen.attempt, seen.jitter_ms)
        return found

    cdef tuple scheduled_of(self, Seen *seen, int64_t size_bytes, tuple targets, object key, object value, object given):
        cdef tuple made = _made(self.scheduled, SCHEDULED_FIELDS)
        cdef tuple schedule = _made(self.schedule, SCHEDULE_FIELDS), record = _made(self.record, RECORD_FIELDS)
        _set(schedule, 0, seen.due_ms)
        _set(schedule, 1, targets)
        _set(schedule, 2, seen.partition)
        _set(schedule, 3, _bytes_of(&seen.own_key) if seen.roles & 1 << KEY else self.keep_key)
        _set(schedule, 4, _bytes_of(&seen.deliver_id) if seen.roles & 1 << ID else None)
        _set(schedule, 5, False)
        _set(schedule, 6, seen.expire_ms)
        # Rules with a spread are left to Python, so the spread is 0.
        _set(schedule, 7, 0)
        _set(schedule, 8, self.attempt(seen) if seen.attempt else None)
        _set(record, 0, key)
        _set(record, 1, value)
        _set(record, 2, given)
        _set(record, 3, seen.timestamp_ms)
        _set(made, 0, schedule)
        _set(made, 1, size_bytes)
        _set(made, 2, record)
        return made

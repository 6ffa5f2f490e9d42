# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
"""Rows joined into an inline segment: the compiled half of ``snapshots.rows``.

Two passes. The first holds the lock of the interpreter: it takes numbers and rows apart and checks them. The second does
not: it writes deltas and rows into the body. What is not in order is not known here: nothing is returned, and Python
says what is wrong with it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

# Of what is given and returned here; choice.py has the same number.
REVISION = 5

cdef enum:
    # As in snapshots.segment.
    MAX_ENTRIES = 65536
    MAX_VARINT = 10
    COLUMNS = 4

# Tags of segment.proto; each is one byte.
cdef enum:
    SEGMENT_COUNT = 0x08
    SEGMENT_INLINE = 0x12
    INLINE_DUES = 0x0A
    INLINE_OFFSETS = 0x12
    INLINE_TIMESTAMPS = 0x22
    INLINE_KEYS = 0x2A
    INLINE_HEADER_NAMES = 0x42
    COLUMN_RUNS = 0x12


cdef struct Row:
    int64_t due_ms
    int64_t offset
    int64_t timestamp_ms
    const char *place
    Py_ssize_t size


cdef struct Written:
    uint8_t *place
    Py_ssize_t size


cdef void _varint(Written *into, uint64_t number) noexcept nogil:
    while number >= 0x80:
        into.place[into.size] = <uint8_t>(number & 0x7F | 0x80)
        into.size += 1
        number >>= 7
    into.place[into.size] = <uint8_t>number
    into.size += 1


cdef Py_ssize_t _varint_size(uint64_t number) noexcept nogil:
    cdef Py_ssize_t size = 1
    while number >= 0x80:
        number >>= 7
        size += 1
    return size


cdef void _zigzag(Written *into, int64_t number) noexcept nogil:
    """As any number that is written so; the difference of two that are not negative never overflows."""
    _varint(into, (<uint64_t>number << 1) ^ <uint64_t>(number >> 63))


cdef void _copy(Written *into, const void *place, Py_ssize_t size) noexcept nogil:
    memcpy(into.place + into.size, place, size)
    into.size += size


cdef void _field(Written *into, uint8_t tag, Written *content) noexcept nogil:
    """A field of bytes."""
    into.place[into.size] = tag
    into.size += 1
    _varint(into, <uint64_t>content.size)
    _copy(into, content.place, content.size)


cdef Py_ssize_t _field_size(Py_ssize_t content) noexcept nogil:
    return 1 + _varint_size(<uint64_t>content) + content


cdef bint _number(object given, int64_t *number) except -1:
    cdef int overflow = 0
    if not PyLong_CheckExact(given):
        return False
    number[0] = PyLong_AsLongLongAndOverflow(given, &overflow)
    return overflow == 0 and number[0] >= 0


cdef bint _follows(Row *row, Row *before) noexcept nogil:
    return row.due_ms > before.due_ms or (row.due_ms == before.due_ms and row.offset > before.offset)


cdef bint _take(Row *rows, Py_ssize_t count, tuple dues_ms, tuple offsets, tuple timestamps_ms, tuple given) except -1:
    """Whether all are rows in order."""
    cdef Py_ssize_t place
    cdef object row
    for place in range(count):
        row = given[place]
        if not (
            _number(dues_ms[place], &rows[place].due_ms)
            and _number(offsets[place], &rows[place].offset)
            and _number(timestamps_ms[place], &rows[place].timestamp_ms)
            and PyBytes_CheckExact(row)
        ):
            return False
        rows[place].place, rows[place].size = PyBytes_AS_STRING(row), PyBytes_GET_SIZE(row)
        if rows[place].size == 0:
            return False
        if place and not _follows(&rows[place], &rows[place - 1]):
            return False
    return True


cdef void _write_columns(Row *rows, Py_ssize_t count, Written *columns) noexcept nogil:
    """Deltas of due times, offsets and timestamps, and the runs of rows that have a key and that have none."""
    cdef Row before = Row(0, 0, 0, NULL, 0)
    cdef Py_ssize_t place, run = 0
    cdef bint is_keyed, in_keyed = True, has_null = False
    for place in range(count):
        _varint(&columns[0], <uint64_t>(rows[place].due_ms - before.due_ms))
        _zigzag(&columns[1], rows[place].offset - before.offset)
        _zigzag(&columns[2], rows[place].timestamp_ms - before.timestamp_ms)
        before = rows[place]
        is_keyed = <uint8_t>rows[place].place[0] == INLINE_KEYS
        has_null = has_null or not is_keyed
        if is_keyed != in_keyed:
            _varint(&columns[3], <uint64_t>run)
            run, in_keyed = 0, is_keyed
        run += 1
    if has_null:
        _varint(&columns[3], <uint64_t>run)
    else:
        columns[3].size = 0


cdef Py_ssize_t _inline_size(Row *rows, Py_ssize_t count, Written *columns, Py_ssize_t names) noexcept nogil:
    cdef Py_ssize_t size = names, place
    for place in range(3):
        size += _field_size(columns[place].size)
    size += _field_size(_field_size(columns[3].size) if columns[3].size else 0)
    for place in range(count):
        size += rows[place].size
    return size


cdef void _write(
    Written *into, Py_ssize_t inline_size, Row *rows, Py_ssize_t count, Written *columns, const char *names,
    Py_ssize_t names_size,
) noexcept nogil:
    cdef Py_ssize_t place
    into.place[0] = SEGMENT_COUNT
    into.size = 1
    _varint(into, <uint64_t>count)
    into.place[into.size] = SEGMENT_INLINE
    into.size += 1
    _varint(into, <uint64_t>inline_size)
    _field(into, INLINE_DUES, &columns[0])
    _field(into, INLINE_OFFSETS, &columns[1])
    _field(into, INLINE_TIMESTAMPS, &columns[2])
    into.place[into.size] = INLINE_KEYS
    into.size += 1
    _varint(into, <uint64_t>(_field_size(columns[3].size) if columns[3].size else 0))
    if columns[3].size:
        _field(into, COLUMN_RUNS, &columns[3])
    _copy(into, names, names_size)
    for place in range(count):
        _copy(into, rows[place].place, rows[place].size)


cdef bytes _table(names):
    """The table of header names, each a field."""
    cdef list fields = []
    cdef uint8_t[MAX_VARINT + 1] head
    cdef Written before
    before.place = head
    for name in names:
        encoded = name.encode()
        head[0], before.size = INLINE_HEADER_NAMES, 1
        _varint(&before, <uint64_t>len(encoded))
        fields.append(PyBytes_FromStringAndSize(<const char *>head, before.size))
        fields.append(encoded)
    return b"".join(fields)


def join(dues_ms, offsets, timestamps_ms, rows, names):
    """The body of a segment of rows that share the header ``names``, in due order; None: ask Python."""
    cdef tuple own = tuple(rows)
    cdef Py_ssize_t count = len(own)
    cdef bytes table
    cdef Row *taken
    cdef uint8_t *room
    if not 0 < count <= MAX_ENTRIES or not len(dues_ms) == len(offsets) == len(timestamps_ms) == count:
        return None
    try:
        table = _table(names)
    except UnicodeEncodeError:
        return None
    taken = <Row *>malloc(count * sizeof(Row))
    room = <uint8_t *>malloc(COLUMNS * count * MAX_VARINT)
    try:
        if taken == NULL or room == NULL:
            raise MemoryError
        if not _take(taken, count, tuple(dues_ms), tuple(offsets), tuple(timestamps_ms), own):
            return None
        # Not before all are known to be numbers.
        if len(set(offsets)) != count:
            return None
        return _joined(taken, count, room, table)
    finally:
        free(taken)
        free(room)


cdef bytes _joined(Row *rows, Py_ssize_t count, uint8_t *room, bytes table):
    cdef Written[COLUMNS] columns
    cdef Written into
    cdef Py_ssize_t place, inline_size, names_size = PyBytes_GET_SIZE(table)
    cdef const char *names = PyBytes_AS_STRING(table)
    cdef bytes body
    for place in range(COLUMNS):
        columns[place].place, columns[place].size = room + place * count * MAX_VARINT, 0
    with nogil:
        _write_columns(rows, count, columns)
        inline_size = _inline_size(rows, count, columns, names_size)
    body = PyBytes_FromStringAndSize(
        NULL, 1 + _varint_size(<uint64_t>count) + 1 + _varint_size(<uint64_t>inline_size) + inline_size
    )
    into.place, into.size = <uint8_t *>PyBytes_AS_STRING(body), 0
    with nogil:
        _write(&into, inline_size, rows, count, columns, names, names_size)
    return body

# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
"""Joins rows into an inline segment: the compiled half of ``snapshots.segments.rows``.

Numbers are read in place, in arrays of 64 bits (sizes: 32), and the rows are copied as a whole. For rows out of order,
and for other types, the functions return None; Python then joins the rows or reports the error.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from sidecar.kernel._written cimport Written, are_distinct, places_for, put_byte, put_bytes, put_varint, varint_size

# Revision of the arguments and results of this module; choice.py has the same number.
REVISION = 13

cdef enum:
    # As in snapshots.segments.segment.
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


cdef struct Rows:
    const int64_t *dues_ms
    const int64_t *offsets
    const int64_t *timestamps_ms
    const int32_t *sizes
    const uint8_t *body
    Py_ssize_t count
    Py_ssize_t body_size


cdef void _zigzag(Written *into, int64_t number) noexcept nogil:
    """Write a number as a zigzag varint; the difference of two numbers that are not negative never overflows."""
    put_varint(into, (<uint64_t>number << 1) ^ <uint64_t>(number >> 63))


cdef void _field(Written *into, uint8_t tag, Written *content) noexcept nogil:
    """Write a field of bytes."""
    put_byte(into, tag)
    put_varint(into, <uint64_t>content.size)
    put_bytes(into, content.place, content.size)


cdef Py_ssize_t _field_size(Py_ssize_t content) noexcept nogil:
    return 1 + varint_size(<uint64_t>content) + content


cdef bint _are_in_order(Rows *rows) noexcept nogil:
    """Say whether all numbers are possible, the entries are in due order, and the sizes add up to the body."""
    cdef Py_ssize_t place, size = 0
    for place in range(rows.count):
        if rows.dues_ms[place] < 0 or rows.offsets[place] < 0 or rows.timestamps_ms[place] < 0 or rows.sizes[place] < 1:
            return False
        size += rows.sizes[place]
        if place and not _follows(rows, place):
            return False
    return size == rows.body_size


cdef bint _follows(Rows *rows, Py_ssize_t place) noexcept nogil:
    cdef int64_t due_ms = rows.dues_ms[place], before_ms = rows.dues_ms[place - 1]
    return due_ms > before_ms or (due_ms == before_ms and rows.offsets[place] > rows.offsets[place - 1])


cdef void _write_columns(Rows *rows, Written *columns) noexcept nogil:
    """Write the deltas of due times, offsets and timestamps, and the lengths of the runs with and without key."""
    cdef int64_t due_ms = 0, offset = 0, timestamp_ms = 0
    cdef Py_ssize_t number, run = 0
    cdef const uint8_t *row = rows.body
    cdef bint is_keyed, in_keyed = True, has_null = False
    for number in range(rows.count):
        put_varint(&columns[0], <uint64_t>(rows.dues_ms[number] - due_ms))
        _zigzag(&columns[1], rows.offsets[number] - offset)
        _zigzag(&columns[2], rows.timestamps_ms[number] - timestamp_ms)
        due_ms, offset, timestamp_ms = rows.dues_ms[number], rows.offsets[number], rows.timestamps_ms[number]
        is_keyed = row[0] == INLINE_KEYS
        row += rows.sizes[number]
        has_null = has_null or not is_keyed
        if is_keyed != in_keyed:
            put_varint(&columns[3], <uint64_t>run)
            run, in_keyed = 0, is_keyed
        run += 1
    if has_null:
        put_varint(&columns[3], <uint64_t>run)
    else:
        columns[3].size = 0


cdef Py_ssize_t _inline_size(Rows *rows, Written *columns, Py_ssize_t names) noexcept nogil:
    cdef Py_ssize_t size = names + rows.body_size, place
    for place in range(3):
        size += _field_size(columns[place].size)
    return size + _field_size(_field_size(columns[3].size) if columns[3].size else 0)


cdef void _write(
    Written *into, Py_ssize_t inline_size, Rows *rows, Written *columns, const char *names, Py_ssize_t names_size
) noexcept nogil:
    into.place[0] = SEGMENT_COUNT
    into.size = 1
    put_varint(into, <uint64_t>rows.count)
    put_byte(into, SEGMENT_INLINE)
    put_varint(into, <uint64_t>inline_size)
    _field(into, INLINE_DUES, &columns[0])
    _field(into, INLINE_OFFSETS, &columns[1])
    _field(into, INLINE_TIMESTAMPS, &columns[2])
    put_byte(into, INLINE_KEYS)
    put_varint(into, <uint64_t>(_field_size(columns[3].size) if columns[3].size else 0))
    if columns[3].size:
        _field(into, COLUMN_RUNS, &columns[3])
    put_bytes(into, names, names_size)
    put_bytes(into, rows.body, rows.body_size)


cdef bytes _table(names):
    """Return the table of header names, each as a field."""
    cdef list fields = []
    cdef uint8_t[MAX_VARINT + 1] head
    cdef Written before
    before.place = head
    for name in names:
        encoded = name.encode()
        head[0], before.size = INLINE_HEADER_NAMES, 1
        put_varint(&before, <uint64_t>len(encoded))
        fields.append(PyBytes_FromStringAndSize(<const char *>head, before.size))
        fields.append(encoded)
    return b"".join(fields)


cdef _signed(offsets):
    """View unsigned offsets as signed; an offset beyond the signed range becomes negative."""
    view = memoryview(offsets)
    return view.cast("B").cast("q") if view.format in ("Q", "L") else view


def join(dues_ms, offsets, timestamps_ms, sizes, body, names):
    """Return the body of a segment of rows in due order that share the header ``names``, or None to ask Python."""
    cdef const int64_t[::1] due, at, written
    cdef const int32_t[::1] long_
    cdef Rows rows
    cdef bytes table
    cdef uint64_t *seen
    cdef uint8_t *room
    cdef uint64_t places
    cdef bint is_known
    if not PyBytes_CheckExact(body):
        return None
    try:
        due, at, written, long_ = dues_ms, _signed(offsets), timestamps_ms, sizes
        table = _table(names)
    except (TypeError, ValueError):
        return None
    rows.count, rows.body_size = due.shape[0], PyBytes_GET_SIZE(body)
    if not 0 < rows.count <= MAX_ENTRIES or not at.shape[0] == written.shape[0] == long_.shape[0] == rows.count:
        return None
    rows.dues_ms, rows.offsets, rows.timestamps_ms, rows.sizes = &due[0], &at[0], &written[0], &long_[0]
    rows.body = <const uint8_t *>PyBytes_AS_STRING(body)
    places = places_for(rows.count)
    seen = <uint64_t *>calloc(places, sizeof(uint64_t))
    room = <uint8_t *>malloc(COLUMNS * rows.count * MAX_VARINT)
    try:
        if seen == NULL or room == NULL:
            raise MemoryError
        with nogil:
            is_known = _are_in_order(&rows) and are_distinct(
                <const uint64_t *>rows.offsets, rows.count, seen, places
            )
        return _joined(&rows, room, table) if is_known else None
    finally:
        free(seen)
        free(room)


cdef bytes _joined(Rows *rows, uint8_t *room, bytes table):
    cdef Written[COLUMNS] columns
    cdef Written into
    cdef Py_ssize_t place, inline_size, names_size = PyBytes_GET_SIZE(table)
    cdef const char *names = PyBytes_AS_STRING(table)
    cdef bytes body
    for place in range(COLUMNS):
        columns[place].place, columns[place].size = room + place * rows.count * MAX_VARINT, 0
    with nogil:
        _write_columns(rows, columns)
        inline_size = _inline_size(rows, columns, names_size)
    body = PyBytes_FromStringAndSize(
        NULL, 1 + varint_size(<uint64_t>rows.count) + 1 + varint_size(<uint64_t>inline_size) + inline_size
    )
    into.place, into.size = <uint8_t *>PyBytes_AS_STRING(body), 0
    with nogil:
        _write(&into, inline_size, rows, columns, names, names_size)
    return body

# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
"""Inline segments, decoded: the compiled half of ``snapshots.segment``.

Two passes. The first does not hold the lock of the interpreter: it walks the bytes of the message, notes the numbers of
each column and where contents lie, and checks all that needs no object. The second makes the objects. Whatever is not
as the router writes it, is damaged or is rare is not known here: nothing is returned, and Python decides what it is.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef extern from "Python.h":
    ctypedef object (*allocfunc)(type, Py_ssize_t)
    ctypedef struct PyTypeObject:
        allocfunc tp_alloc

# Of what is given and returned here; choice.py has the same number.
REVISION = 7

cdef enum:
    # As in snapshots.segment.
    MAX_ENTRIES = 65536
    RECORD_FIELDS = 4
    MAX_VARINT = 10

cdef enum:
    WIRE_VARINT = 0
    WIRE_BYTES = 2

# As in segment.proto; all are below 16, so that a tag is one byte.
cdef enum:
    SEGMENT_COUNT = 1
    SEGMENT_INLINE = 2
    INLINE_DUES = 1
    INLINE_OFFSETS = 2
    INLINE_TIMESTAMPS = 4
    INLINE_KEYS = 5
    INLINE_VALUES = 6
    INLINE_HEADER_COUNTS = 7
    INLINE_HEADER_NAMES = 8
    INLINE_HEADER_INDEXES = 9
    INLINE_HEADER_VALUES = 10
    COLUMN_PRESENT = 1
    COLUMN_RUNS = 2

cdef uint64_t MAX_NUMBER = 0x7FFFFFFFFFFFFFFF
cdef uint64_t MAX_32_BITS = 0xFFFFFFFF


cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end


cdef struct Numbers:
    uint64_t *items
    Py_ssize_t count
    Py_ssize_t room


cdef struct Contents:
    Cursor *items
    Py_ssize_t count
    Py_ssize_t room


cdef struct Column:
    Contents present
    # Their sum is checked against what they name, so none is larger than there are bytes.
    Numbers runs


cdef struct Segment:
    uint64_t count
    Numbers dues
    Numbers offsets
    Numbers timestamps
    Numbers header_counts
    Numbers header_indexes
    Contents names
    Column keys
    Column values
    Column header_values


cdef bint _varint(Cursor *cursor, uint64_t *number) noexcept nogil:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.at < cursor.end and shift < 7 * MAX_VARINT:
        byte = cursor.at[0]
        cursor.at += 1
        if shift == 63 and byte > 1:
            return False
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            number[0] = value
            return True
        shift += 7
    return False


cdef bint _inner(Cursor *cursor, Cursor *inner) noexcept nogil:
    """What a field of bytes holds, which the cursor then is behind."""
    cdef uint64_t size = 0
    if not _varint(cursor, &size) or size > <uint64_t>(cursor.end - cursor.at):
        return False
    inner.at = cursor.at
    cursor.at += size
    inner.end = cursor.at
    return True


cdef bint _add_number(Numbers *numbers, uint64_t number) noexcept nogil:
    cdef uint64_t *items
    if numbers.count == numbers.room:
        numbers.room = max(2 * numbers.room, 1024)
        items = <uint64_t *>realloc(numbers.items, numbers.room * sizeof(uint64_t))
        if items == NULL:
            return False
        numbers.items = items
    numbers.items[numbers.count] = number
    numbers.count += 1
    return True


cdef bint _add_content(Contents *contents, Cursor content) noexcept nogil:
    cdef Cursor *items
    if contents.count == contents.room:
        contents.room = max(2 * contents.room, 1024)
        items = <Cursor *>realloc(contents.items, contents.room * sizeof(Cursor))
        if items == NULL:
            return False
        contents.items = items
    contents.items[contents.count] = content
    contents.count += 1
    return True


cdef bint _take_numbers(Cursor *cursor, int wire_type, Numbers *numbers, uint64_t most) noexcept nogil:
    """A repeated number, one of it or several in one field."""
    cdef Cursor inner
    cdef uint64_t number = 0
    if wire_type == WIRE_VARINT:
        return _varint(cursor, &number) and number <= most and _add_number(numbers, number)
    if wire_type != WIRE_BYTES or not _inner(cursor, &inner):
        return False
    while inner.at < inner.end:
        if not (_varint(&inner, &number) and number <= most and _add_number(numbers, number)):
            return False
    return True


cdef bint _take_column(Cursor *cursor, int wire_type, Column *column) noexcept nogil:
    """A column, or a piece of one: a field that comes several times is one."""
    cdef Cursor inner, content
    cdef uint8_t tag
    if wire_type != WIRE_BYTES or not _inner(cursor, &inner):
        return False
    while inner.at < inner.end:
        tag = inner.at[0]
        inner.at += 1
        if tag == COLUMN_PRESENT << 3 | WIRE_BYTES:
            if not (_inner(&inner, &content) and _add_content(&column.present, content)):
                return False
        elif tag >> 3 != COLUMN_RUNS or not _take_numbers(&inner, tag & 7, &column.runs, MAX_32_BITS):
            return False
    return True


cdef bint _take_inline(Cursor cursor, Segment *segment) noexcept nogil:
    cdef Cursor content
    cdef uint8_t tag, field, wire_type
    cdef bint taken
    while cursor.at < cursor.end:
        tag = cursor.at[0]
        cursor.at += 1
        field, wire_type = tag >> 3, tag & 7
        if field == INLINE_KEYS:
            taken = _take_column(&cursor, wire_type, &segment.keys)
        elif field == INLINE_VALUES:
            taken = _take_column(&cursor, wire_type, &segment.values)
        elif field == INLINE_HEADER_VALUES:
            taken = _take_column(&cursor, wire_type, &segment.header_values)
        elif field == INLINE_HEADER_COUNTS:
            taken = _take_numbers(&cursor, wire_type, &segment.header_counts, MAX_32_BITS)
        elif field == INLINE_HEADER_INDEXES:
            taken = _take_numbers(&cursor, wire_type, &segment.header_indexes, MAX_32_BITS)
        elif field == INLINE_DUES:
            taken = _take_numbers(&cursor, wire_type, &segment.dues, MAX_NUMBER)
        elif field == INLINE_OFFSETS:
            taken = _take_numbers(&cursor, wire_type, &segment.offsets, ~<uint64_t>0)
        elif field == INLINE_TIMESTAMPS:
            taken = _take_numbers(&cursor, wire_type, &segment.timestamps, ~<uint64_t>0)
        elif field == INLINE_HEADER_NAMES and wire_type == WIRE_BYTES:
            taken = _inner(&cursor, &content) and _add_content(&segment.names, content)
        else:
            # Records that are absent, or what is of a later version.
            return False
        if not taken:
            return False
    return True


cdef bint _take_segment(Cursor cursor, Segment *segment) noexcept nogil:
    cdef Cursor inner
    cdef uint8_t tag
    cdef bint has_inline = False
    while cursor.at < cursor.end:
        tag = cursor.at[0]
        cursor.at += 1
        if tag == SEGMENT_COUNT << 3 | WIRE_VARINT and segment.count == 0:
            if not _varint(&cursor, &segment.count):
                return False
        elif tag == SEGMENT_INLINE << 3 | WIRE_BYTES and not has_inline:
            has_inline = True
            if not (_inner(&cursor, &inner) and _take_inline(inner, segment)):
                return False
        else:
            return False
    return has_inline and 0 < segment.count <= MAX_ENTRIES


cdef bint _is_whole(Column *column, uint64_t count) noexcept nogil:
    """Whether a column has so many values, as ``_joined`` of snapshots.segment finds out."""
    cdef uint64_t named = 0, present = 0, run
    cdef Py_ssize_t place
    if column.runs.count == 0:
        return <uint64_t>column.present.count == count
    for place in range(column.runs.count):
        # No sum of 2^20 numbers of 32 bits is beyond 64.
        run = column.runs.items[place]
        named += run
        if place % 2 == 0:
            present += run
    return named == count and present == <uint64_t>column.present.count


cdef int64_t _signed(uint64_t zigzag) noexcept nogil:
    return <int64_t>(zigzag >> 1) ^ -<int64_t>(zigzag & 1)


cdef bint _sum_up(Segment *segment) noexcept nogil:
    """Make deltas what they are deltas of; False where one is impossible or out of order."""
    cdef uint64_t due = 0, due_delta, timestamp = 0
    cdef int64_t offset = 0, offset_delta
    cdef Py_ssize_t place
    for place in range(<Py_ssize_t>segment.count):
        due_delta = segment.dues.items[place]
        if due_delta > MAX_NUMBER - due:
            return False
        due += due_delta
        segment.dues.items[place] = due
        offset_delta = _signed(segment.offsets.items[place])
        if place and due_delta == 0 and offset_delta <= 0:
            return False
        # An offset is not negative, so that only a delta that is not can be too large.
        if offset_delta > <int64_t>(MAX_NUMBER - <uint64_t>offset):
            return False
        offset += offset_delta
        if offset < 0:
            return False
        segment.offsets.items[place] = <uint64_t>offset
        timestamp += <uint64_t>_signed(segment.timestamps.items[place])
        segment.timestamps.items[place] = timestamp
    return True


cdef bint _is_sound(Segment *segment, bint *alike) noexcept nogil:
    """Whether all columns have as many values as they should; and whether all records have the same header names."""
    cdef Py_ssize_t count = <Py_ssize_t>segment.count, place
    cdef uint64_t total = 0, each
    if not (segment.dues.count == segment.offsets.count == segment.timestamps.count == count):
        return False
    if segment.header_counts.count != count:
        return False
    each = segment.header_counts.items[0]
    alike[0] = True
    for place in range(count):
        total += segment.header_counts.items[place]
        if segment.header_counts.items[place] != each:
            alike[0] = False
    if <uint64_t>segment.header_indexes.count != total:
        return False
    for place in range(segment.header_indexes.count):
        if segment.header_indexes.items[place] >= <uint64_t>segment.names.count:
            return False
        if alike[0] and place >= <Py_ssize_t>each:
            alike[0] = segment.header_indexes.items[place] == segment.header_indexes.items[place - <Py_ssize_t>each]
    return (
        _is_whole(&segment.keys, segment.count)
        and _is_whole(&segment.values, segment.count)
        and _is_whole(&segment.header_values, total)
        and _sum_up(segment)
    )


cdef void _release(Segment *segment) noexcept nogil:
    free(segment.dues.items)
    free(segment.offsets.items)
    free(segment.timestamps.items)
    free(segment.header_counts.items)
    free(segment.header_indexes.items)
    free(segment.names.items)
    free(segment.keys.present.items)
    free(segment.keys.runs.items)
    free(segment.values.present.items)
    free(segment.values.runs.items)
    free(segment.header_values.present.items)
    free(segment.header_values.runs.items)


cdef list _contents(Column *column, Py_ssize_t count):
    """The values of a column that is whole, None where it has none."""
    cdef list found = PyList_New(count)
    cdef Py_ssize_t place = 0, number, taken = 0, left
    cdef Cursor *content
    cdef object value
    if column.runs.count == 0:
        for place in range(count):
            content = &column.present.items[place]
            value = PyBytes_FromStringAndSize(<const char *>content.at, content.end - content.at)
            Py_INCREF(value)
            PyList_SET_ITEM(found, place, value)
        return found
    for number in range(column.runs.count):
        left = <Py_ssize_t>column.runs.items[number]
        while left:
            value = None
            if number % 2 == 0:
                content = &column.present.items[taken]
                value = PyBytes_FromStringAndSize(<const char *>content.at, content.end - content.at)
                taken += 1
            Py_INCREF(value)
            PyList_SET_ITEM(found, place, value)
            place += 1
            left -= 1
    return found


cdef list _names(Contents *names):
    cdef Py_ssize_t place
    cdef list found = []
    for place in range(names.count):
        found.append(PyUnicode_DecodeUTF8(
            <const char *>names.items[place].at, names.items[place].end - names.items[place].at, NULL
        ))
    return found


cdef list _numbers(Numbers *numbers):
    """All of them fit into 63 bits."""
    cdef list found = PyList_New(numbers.count)
    cdef Py_ssize_t place
    cdef object number
    for place in range(numbers.count):
        number = <int64_t>numbers.items[place]
        Py_INCREF(number)
        PyList_SET_ITEM(found, place, number)
    return found


cdef list _headers(Segment *segment, list names, list contents):
    """The list of headers of each record."""
    cdef list found = PyList_New(<Py_ssize_t>segment.count), own
    cdef Py_ssize_t place, number, at = 0, count
    cdef tuple header
    cdef object name, content
    for place in range(<Py_ssize_t>segment.count):
        count = <Py_ssize_t>segment.header_counts.items[place]
        own = PyList_New(count)
        for number in range(count):
            name, content = names[<Py_ssize_t>segment.header_indexes.items[at]], contents[at]
            header = PyTuple_New(2)
            Py_INCREF(name)
            PyTuple_SET_ITEM(header, 0, name)
            Py_INCREF(content)
            PyTuple_SET_ITEM(header, 1, content)
            Py_INCREF(header)
            PyList_SET_ITEM(own, number, header)
            at += 1
        Py_INCREF(own)
        PyList_SET_ITEM(found, place, own)
    return found


cdef list _records(Segment *segment, type record, list headers):
    """Records are tuples of a type of their own, made as ``tuple.__new__`` makes them."""
    cdef Py_ssize_t count = <Py_ssize_t>segment.count, place
    cdef list keys = _contents(&segment.keys, count), values = _contents(&segment.values, count)
    cdef list found = PyList_New(count)
    cdef tuple made
    cdef object field
    for place in range(count):
        made = <tuple>(<PyTypeObject *>record).tp_alloc(record, RECORD_FIELDS)
        field = keys[place]
        Py_INCREF(field)
        PyTuple_SET_ITEM(made, 0, field)
        field = values[place]
        Py_INCREF(field)
        PyTuple_SET_ITEM(made, 1, field)
        field = headers[place]
        Py_INCREF(field)
        PyTuple_SET_ITEM(made, 2, field)
        field = <int64_t>segment.timestamps.items[place]
        Py_INCREF(field)
        PyTuple_SET_ITEM(made, 3, field)
        Py_INCREF(made)
        PyList_SET_ITEM(found, place, made)
    return found


def decode(bytes body not None, type record not None):
    """Due times, offsets, records, names and header values of a segment, as those of ``Columns``; None: ask Python.

    ``body`` is what its envelope holds, ``record`` the type of records, a tuple of key, value, headers and timestamp.
    """
    cdef Segment segment
    cdef Cursor cursor
    cdef bint taken, alike = False
    if not issubclass(record, tuple):
        raise TypeError(f"records are tuples, and {record} is not one")
    cursor.at = <const uint8_t *>PyBytes_AS_STRING(body)
    cursor.end = cursor.at + PyBytes_GET_SIZE(body)
    memset(&segment, 0, sizeof(Segment))
    try:
        with nogil:
            taken = _take_segment(cursor, &segment) and _is_sound(&segment, &alike)
        return _decoded(&segment, record, alike) if taken else None
    finally:
        _release(&segment)


cdef object _decoded(Segment *segment, type record, bint alike):
    cdef list offsets = _numbers(&segment.offsets), names, contents
    if len(set(offsets)) != len(offsets):
        return None
    try:
        names = _names(&segment.names)
    except UnicodeDecodeError:
        return None
    contents = _contents(&segment.header_values, segment.header_indexes.count)
    records = _records(segment, record, _headers(segment, names, contents))
    shared = None
    if alike:
        shared = [names[<Py_ssize_t>segment.header_indexes.items[place]] for place in range(
            <Py_ssize_t>segment.header_counts.items[0])]
    return _numbers(&segment.dues), offsets, records, shared, contents

# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
"""Decodes inline segments, or splits them into rows: the compiled half of ``snapshots.segments.segment`` and ``snapshots.segments.rows``.

It makes two passes. The first does not hold the lock of the interpreter: it walks the bytes of the message, notes the
numbers of each column and the places of contents, and makes all checks that need no object. The second makes the
objects; for rows it makes none, and needs no lock either. For a segment that is damaged, rare, or not in the form that
the router writes, the functions return None, and Python judges it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from sidecar.kernel._written cimport Written, are_distinct, column_size, places_for, put_byte, put_column

cdef extern from "Python.h":
    ctypedef object (*allocfunc)(type, Py_ssize_t)
    ctypedef struct PyTypeObject:
        allocfunc tp_alloc

# Revision of the arguments and results of this module; choice.py has the same number.
REVISION = 13

cdef enum:
    # As in snapshots.segments.segment.
    MAX_ENTRIES = 65536
    RECORD_FIELDS = 4
    MAX_VARINT = 10
    # As in snapshots.segments.rows; a count or an index in a row takes one byte.
    MAX_NAMES = 100
    MAX_HEADERS = 100
    # No Kafka record is longer, so the size of a row fits into 32 bits.
    MAX_BODY = 0x3FFFFFFF

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
    # The sum of the runs is checked against the number of values, so no run is larger than the number of bytes.
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
    """Take the content of a field of bytes, and move the cursor behind it."""
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
    """Take a repeated number: one, or several packed in one field."""
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
    """Take a column or a part of it: repeated fields form one column."""
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
            # The field of absent records, or a field of a later version.
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
    """Say whether a column has ``count`` values, as ``_joined`` of snapshots.segments.segment determines it."""
    cdef uint64_t named = 0, present = 0, run
    cdef Py_ssize_t place
    if column.runs.count == 0:
        return <uint64_t>column.present.count == count
    for place in range(column.runs.count):
        # The sum of 2^20 numbers of 32 bits fits into 64 bits.
        run = column.runs.items[place]
        named += run
        if place % 2 == 0:
            present += run
    return named == count and present == <uint64_t>column.present.count


cdef int64_t _signed(uint64_t zigzag) noexcept nogil:
    return <int64_t>(zigzag >> 1) ^ -<int64_t>(zigzag & 1)


cdef bint _sum_up(Segment *segment) noexcept nogil:
    """Replace deltas by the numbers themselves; return False if a number is impossible or out of order."""
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
        # The offset so far is not negative, so only a positive delta can overflow.
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
    """Say whether all columns have the right number of values; ``alike`` tells if all records have the same names."""
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
    """Return the values of a whole column, with None for each absent value."""
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
    """Return the numbers as Python objects; all of them fit into 63 bits."""
    cdef list found = PyList_New(numbers.count)
    cdef Py_ssize_t place
    cdef object number
    for place in range(numbers.count):
        number = <int64_t>numbers.items[place]
        Py_INCREF(number)
        PyList_SET_ITEM(found, place, number)
    return found


cdef list _headers(Segment *segment, list names, list contents):
    """Return the list of headers of each record."""
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
    """Return the records, which are tuples of the type ``record``, allocated as ``tuple.__new__`` does."""
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
    """Return due times, offsets, records, names and header values of a segment, as in ``Columns``; None to ask Python.

    ``body`` is the content of its envelope; ``record`` is the type of records, a tuple of key, value, headers and
    timestamp.
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


cdef bint _can_be_rows(Segment *segment) noexcept nogil:
    """Say whether a row can hold every record of a sound segment."""
    cdef Py_ssize_t place
    if segment.names.count > MAX_NAMES or segment.values.runs.count or segment.header_values.runs.count:
        return False
    for place in range(<Py_ssize_t>segment.count):
        if segment.header_counts.items[place] > MAX_HEADERS or segment.timestamps.items[place] > MAX_NUMBER:
            return False
    return True


cdef Py_ssize_t _used_names(Segment *segment, uint8_t *used) noexcept nogil:
    """Write the indexes of the used header names into ``used``, by first use, and return their number."""
    cdef bint[MAX_NAMES] is_used
    cdef Py_ssize_t place, count = 0
    cdef uint64_t index
    memset(is_used, 0, sizeof(is_used))
    for place in range(segment.header_indexes.count):
        index = segment.header_indexes.items[place]
        if not is_used[index]:
            is_used[index] = True
            used[count] = <uint8_t>index
            count += 1
    return count


cdef void _spread(Column *column, Cursor *into) noexcept nogil:
    """Write the place of each value of a whole column into ``into``; an absent value has none."""
    cdef Py_ssize_t place = 0, number, taken = 0
    cdef uint64_t left
    if column.runs.count == 0:
        memcpy(into, column.present.items, column.present.count * sizeof(Cursor))
        return
    for number in range(column.runs.count):
        left = column.runs.items[number]
        while left:
            if number % 2 == 0:
                into[place] = column.present.items[taken]
                taken += 1
            else:
                into[place].at = into[place].end = NULL
            place += 1
            left -= 1


cdef inline Py_ssize_t _value_size(const Cursor *content) noexcept nogil:
    return column_size(content.end - content.at)


cdef inline void _put_value(Written *into, uint8_t field, const Cursor *content) noexcept nogil:
    put_column(into, field << 3 | WIRE_BYTES, content.at, content.end - content.at)


cdef Py_ssize_t _measure(Segment *segment, const Cursor *keys, int32_t *sizes) noexcept nogil:
    """Write the size of each row into ``sizes``, and return their sum."""
    cdef Py_ssize_t place, header = 0, number, count, size, total = 0
    for place in range(<Py_ssize_t>segment.count):
        count = <Py_ssize_t>segment.header_counts.items[place]
        # The count takes a tag and a byte; the indexes take a tag, a length and a byte each.
        size = _value_size(&segment.values.present.items[place]) + 2 + (2 + count if count else 0)
        if keys[place].at != NULL:
            size += _value_size(&keys[place])
        for number in range(header, header + count):
            size += _value_size(&segment.header_values.present.items[number])
        header += count
        sizes[place] = <int32_t>size
        total += size
    return total


cdef void _put_rows(Segment *segment, const Cursor *keys, const uint8_t *index_of, Written *into) noexcept nogil:
    """Write the rows, as ``RowPacker`` of snapshots.segments.rows makes them."""
    cdef Py_ssize_t place, header = 0, number, count
    for place in range(<Py_ssize_t>segment.count):
        count = <Py_ssize_t>segment.header_counts.items[place]
        if keys[place].at != NULL:
            _put_value(into, INLINE_KEYS, &keys[place])
        _put_value(into, INLINE_VALUES, &segment.values.present.items[place])
        for number in range(count):
            _put_value(into, INLINE_HEADER_VALUES, &segment.header_values.present.items[header + number])
        put_byte(into, INLINE_HEADER_COUNTS << 3 | WIRE_VARINT)
        put_byte(into, <uint8_t>count)
        if count:
            put_byte(into, INLINE_HEADER_INDEXES << 3 | WIRE_BYTES)
            put_byte(into, <uint8_t>count)
        for number in range(count):
            put_byte(into, index_of[segment.header_indexes.items[header + number]])
        header += count


def rows(bytes body not None, packer):
    """Return due times, offsets, timestamps, sizes as bytes of arrays, and rows of this packer; None to ask Python."""
    cdef Segment segment
    cdef Cursor cursor
    cdef bint taken, alike = False
    cdef uint64_t *seen = NULL
    cdef uint64_t places
    if PyBytes_GET_SIZE(body) > MAX_BODY:
        return None
    cursor.at = <const uint8_t *>PyBytes_AS_STRING(body)
    cursor.end = cursor.at + PyBytes_GET_SIZE(body)
    memset(&segment, 0, sizeof(Segment))
    try:
        with nogil:
            taken = _take_segment(cursor, &segment) and _is_sound(&segment, &alike) and _can_be_rows(&segment)
        if not taken:
            return None
        places = places_for(<Py_ssize_t>segment.count)
        seen = <uint64_t *>calloc(places, sizeof(uint64_t))
        if seen == NULL:
            raise MemoryError
        with nogil:
            taken = are_distinct(segment.offsets.items, segment.offsets.count, seen, places)
        return _rows(&segment, packer) if taken else None
    finally:
        free(seen)
        _release(&segment)


cdef object _rows(Segment *segment, packer):
    cdef uint8_t[MAX_NAMES] used, index_of
    cdef Py_ssize_t number, count = _used_names(segment, used), numbers_size = segment.offsets.count * sizeof(uint64_t)
    cdef list names
    cdef bytes indexes, sizes, body
    cdef Written into
    cdef Cursor *keys
    cdef int32_t *lengths
    try:
        names = _names(&segment.names)
    except UnicodeDecodeError:
        return None
    indexes = packer.indexes([names[used[number]] for number in range(count)])
    if indexes is None:
        return None
    for number in range(count):
        index_of[used[number]] = indexes[number]
    sizes = PyBytes_FromStringAndSize(NULL, segment.offsets.count * sizeof(int32_t))
    lengths = <int32_t *>PyBytes_AS_STRING(sizes)
    keys = <Cursor *>malloc(segment.offsets.count * sizeof(Cursor))
    try:
        if keys == NULL:
            raise MemoryError
        with nogil:
            _spread(&segment.keys, keys)
            number = _measure(segment, keys, lengths)
        body = PyBytes_FromStringAndSize(NULL, number)
        into.place, into.size = <uint8_t *>PyBytes_AS_STRING(body), 0
        with nogil:
            _put_rows(segment, keys, index_of, &into)
    finally:
        free(keys)
    return (
        PyBytes_FromStringAndSize(<const char *>segment.dues.items, numbers_size),
        PyBytes_FromStringAndSize(<const char *>segment.offsets.items, numbers_size),
        PyBytes_FromStringAndSize(<const char *>segment.timestamps.items, numbers_size),
        sizes,
        body,
    )

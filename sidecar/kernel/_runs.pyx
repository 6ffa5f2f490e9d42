# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
"""Puts columns of records in release order: the compiled half of ``snapshots.segments.row_columns``.

The columns hold runs in release order, one after another. The runs are merged, two at a time, until there is one. The
merge moves only numbers; each row is copied once, to its final place, without the lock of the interpreter.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

# Revision of the arguments and results of this module; choice.py has the same number.
REVISION = 13


cdef struct Entry:
    int64_t due_ms
    uint64_t offset
    Py_ssize_t number
    Py_ssize_t start


cdef bint _is_before(const Entry *one, const Entry *other) noexcept nogil:
    return one.due_ms < other.due_ms or (one.due_ms == other.due_ms and one.offset < other.offset)


cdef Py_ssize_t _end_of_run(const Entry *entries, Py_ssize_t start, Py_ssize_t count) noexcept nogil:
    """Return the end of the run that begins at ``start``; ``count`` if no entry is left."""
    if start == count:
        return count
    start += 1
    while start < count and _is_before(&entries[start - 1], &entries[start]):
        start += 1
    return start


cdef void _merge(
    const Entry *entries, Py_ssize_t start, Py_ssize_t middle, Py_ssize_t stop, Entry *into
) noexcept nogil:
    cdef Py_ssize_t one = start, other = middle, place
    for place in range(start, stop):
        if other == stop or (one < middle and not _is_before(&entries[other], &entries[one])):
            into[place] = entries[one]
            one += 1
        else:
            into[place] = entries[other]
            other += 1


cdef Entry *_merged(Entry *entries, Entry *room, Py_ssize_t count) noexcept nogil:
    """Merge all runs, and return the array, one of the two, that then holds the entries in order."""
    cdef Py_ssize_t start, middle, stop
    while _end_of_run(entries, 0, count) < count:
        start = 0
        while start < count:
            middle = _end_of_run(entries, start, count)
            stop = _end_of_run(entries, middle, count)
            _merge(entries, start, middle, stop, room)
            start = stop
        entries, room = room, entries
    return entries


cdef bint _take(
    Entry *entries, Py_ssize_t count, const int64_t *dues_ms, const uint64_t *offsets, const int32_t *sizes,
    Py_ssize_t size,
) noexcept nogil:
    """Fill the entries; say whether the sizes of the rows add up to ``size`` bytes."""
    cdef Py_ssize_t place, start = 0
    for place in range(count):
        if not 0 <= sizes[place] <= size - start:
            return False
        entries[place] = Entry(dues_ms[place], offsets[place], place, start)
        start += sizes[place]
    return start == size


cdef list _routes(list given, const Entry *entries, Py_ssize_t count):
    cdef list routes = PyList_New(count)
    cdef Py_ssize_t place
    cdef object route
    for place in range(count):
        route = <object>PyList_GET_ITEM(given, entries[place].number)
        Py_INCREF(route)
        PyList_SET_ITEM(routes, place, route)
    return routes


def in_order(
    const int64_t[::1] dues_ms not None,
    const uint64_t[::1] offsets not None,
    const int64_t[::1] timestamps_ms not None,
    list routes not None,
    const int32_t[::1] sizes not None,
    bytes rows not None,
):
    """Return the same columns in order of due time and offset; columns of numbers become the bytes of an array.

    Raise ValueError if the columns have different lengths, or if ``sizes`` do not add up to the rows.
    """
    cdef Py_ssize_t count = dues_ms.shape[0], size = PyBytes_GET_SIZE(rows)
    cdef Entry *entries
    cdef Entry *room
    cdef const Entry *ordered
    cdef bytes dues_into, offsets_into, timestamps_into, sizes_into, rows_into
    if not 0 < count == offsets.shape[0] == timestamps_ms.shape[0] == len(routes) == sizes.shape[0]:
        raise ValueError("columns of different lengths, or of none")
    entries, room = <Entry *>malloc(count * sizeof(Entry)), <Entry *>malloc(count * sizeof(Entry))
    try:
        if entries == NULL or room == NULL:
            raise MemoryError
        with nogil:
            ordered = NULL
            if _take(entries, count, &dues_ms[0], &offsets[0], &sizes[0], size):
                ordered = _merged(entries, room, count)
        if ordered == NULL:
            raise ValueError(f"{size} bytes of rows, which is not what their sizes come to")
        dues_into = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
        offsets_into = PyBytes_FromStringAndSize(NULL, count * sizeof(uint64_t))
        timestamps_into = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
        sizes_into = PyBytes_FromStringAndSize(NULL, count * sizeof(int32_t))
        rows_into = PyBytes_FromStringAndSize(NULL, size)
        _put(
            ordered, count, &timestamps_ms[0], &sizes[0], rows, dues_into, offsets_into, timestamps_into, sizes_into,
            rows_into,
        )
        return dues_into, offsets_into, timestamps_into, _routes(routes, ordered, count), sizes_into, rows_into
    finally:
        free(entries)
        free(room)


cdef void _put(
    const Entry *entries, Py_ssize_t count, const int64_t *timestamps_ms, const int32_t *sizes, bytes rows,
    bytes dues_into, bytes offsets_into, bytes timestamps_into, bytes sizes_into, bytes rows_into,
):
    cdef const char *from_rows = PyBytes_AS_STRING(rows)
    cdef int64_t *dues = <int64_t *>PyBytes_AS_STRING(dues_into)
    cdef uint64_t *offsets = <uint64_t *>PyBytes_AS_STRING(offsets_into)
    cdef int64_t *timestamps = <int64_t *>PyBytes_AS_STRING(timestamps_into)
    cdef int32_t *lengths = <int32_t *>PyBytes_AS_STRING(sizes_into)
    cdef char *to_rows = PyBytes_AS_STRING(rows_into)
    cdef Py_ssize_t place, number, start = 0
    with nogil:
        for place in range(count):
            number = entries[place].number
            dues[place], offsets[place] = entries[place].due_ms, entries[place].offset
            timestamps[place], lengths[place] = timestamps_ms[number], sizes[number]
            memcpy(to_rows + start, from_rows + entries[place].start, sizes[number])
            start += sizes[number]

# cython: language_level=3
"""Writes numbers and bytes into a protobuf message, and checks its offsets, for the modules that make segments.

The caller computes the size first and provides the room.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    # Tag of field 1 of a Column, with bytes.
    COLUMN_VALUE = 0x0A


cdef struct Written:
    uint8_t *place
    Py_ssize_t size


cdef inline void put_byte(Written *into, uint8_t byte) noexcept nogil:
    into.place[into.size] = byte
    into.size += 1


cdef inline void put_varint(Written *into, uint64_t number) noexcept nogil:
    while number >= 0x80:
        put_byte(into, <uint8_t>(number & 0x7F | 0x80))
        number >>= 7
    put_byte(into, <uint8_t>number)


cdef inline Py_ssize_t varint_size(uint64_t number) noexcept nogil:
    cdef Py_ssize_t size = 1
    while number >= 0x80:
        number >>= 7
        size += 1
    return size


cdef inline void put_bytes(Written *into, const void *place, Py_ssize_t size) noexcept nogil:
    memcpy(into.place + into.size, place, size)
    into.size += size


cdef inline Py_ssize_t column_size(Py_ssize_t size) noexcept nogil:
    """Return the size of a column with one value of ``size`` bytes, as a field of a message."""
    cdef Py_ssize_t inner = 1 + varint_size(<uint64_t>size) + size
    return 1 + varint_size(<uint64_t>inner) + inner


cdef inline void put_column(Written *into, uint8_t tag, const void *place, Py_ssize_t size) noexcept nogil:
    """Write a column of one value, as a field."""
    put_byte(into, tag)
    put_varint(into, <uint64_t>(1 + varint_size(<uint64_t>size) + size))
    put_byte(into, COLUMN_VALUE)
    put_varint(into, <uint64_t>size)
    put_bytes(into, place, size)


cdef inline uint64_t places_for(Py_ssize_t count) noexcept nogil:
    """Return the size of a table for ``are_distinct``: a power of two, at least twice the count."""
    cdef uint64_t places = 2
    while places < <uint64_t>(2 * count):
        places *= 2
    return places


cdef inline bint are_distinct(
    const uint64_t *offsets, Py_ssize_t count, uint64_t *table, uint64_t places
) noexcept nogil:
    """Say whether all offsets differ; they must be below 2^63.

    ``table`` has ``places_for(count)`` places, all of them 0.
    """
    cdef Py_ssize_t number
    cdef uint64_t at, offset
    for number in range(count):
        # The multiplier spreads offsets that lie close together; 0 marks an empty place.
        offset = offsets[number]
        at = (offset * <uint64_t>0x9E3779B97F4A7C15) >> 20 & (places - 1)
        while table[at]:
            if table[at] == offset + 1:
                return False
            at = at + 1 & (places - 1)
        table[at] = offset + 1
    return True

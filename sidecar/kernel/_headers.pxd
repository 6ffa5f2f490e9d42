# cython: language_level=3, cdivision=True
"""Reads the headers of a message by the public functions of librdkafka: the compiled half of ``handed_over``.

The public functions show the name of a header up to its first NUL, and at most 100,000 headers. They tell that they do
so: a name that has a NUL is not found by the part in front of it, and for more headers the call fails. So the reader
notices each such record, whatever the version of librdkafka.

librdkafka has no public function for the bytes that such a record has in the log. ``take_raw`` looks for them where
librdkafka 2.16.0 keeps them. It asks the system to copy them, so a wrong place is an error and no crash, and it takes
only bytes that agree with everything that the public functions show. Without them the record counts as hidden, and
Python rejects it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, strcmp, strlen

from sidecar.kernel._notations cimport Bytes
from sidecar.kernel._written cimport Written, put_bytes, put_varint, varint_size

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t pread(int file, void *into, size_t size, int64_t offset)

ctypedef int (*HeadersFunction)(const void *message, void **headers) noexcept nogil
ctypedef size_t (*HeaderCountFunction)(const void *headers) noexcept nogil
ctypedef int (*HeaderAtFunction)(
    const void *headers, size_t place, const char **name, const void **content, size_t *size
) noexcept nogil
ctypedef int (*HeaderNamedFunction)(
    const void *headers, size_t place, const char *name, const void **content, size_t *size
) noexcept nogil
ctypedef void (*HeadersFreeFunction)(void *headers) noexcept nogil

cdef enum:
    NO_HEADERS = -156
    # As in index.rules.unreadable: Python looks at no more headers.
    MOST_HEADERS = 10_000
    # Most headers whose names are looked up, at a cost that grows with the square of the number.
    MOST_LOOKED_UP = 500
    # Headers of a usual record, at most.
    FEW = 32
    # librdkafka reads no more headers of a message.
    MOST_READ = 100_000
    # Position in a message of the length of its encoded headers, 8 bytes before the pointer to them.
    RAW_AT = 120
    MOST_RAW_BYTES = 1 << 27


cdef struct Library:
    HeadersFunction headers
    HeadersFunction detach
    HeaderCountFunction count
    HeaderAtFunction at
    HeaderNamedFunction named
    HeadersFreeFunction free
    # The memory of the process as a file; -1 where there is none.
    int memory


cdef struct Shown:
    const char *name
    size_t name_size
    const void *content
    size_t size


cdef struct Encoded:
    # Headers in the encoding of the log, to be freed; NULL for none.
    char *place
    int32_t size
    # Says that confluent-kafka may hand over others.
    bint is_odd
    # Says that these are not, or not certainly, the headers of the log.
    bint is_hidden


cdef inline bint length_of(const char **at, const char *end, int64_t *number) noexcept nogil:
    """Parse a zigzag varint of 32 bits, and move ``at`` behind it."""
    cdef uint64_t zigzag = 0
    cdef int shift = 0
    cdef uint8_t byte
    while at[0] < end and shift < 35:
        byte = <uint8_t>at[0][0]
        at[0] += 1
        zigzag |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            number[0] = <int64_t>(zigzag >> 1) ^ -<int64_t>(zigzag & 1)
            return True
        shift += 7
    return False


cdef inline uint64_t zigzag_of(int64_t number) noexcept nogil:
    return <uint64_t>number << 1 if number >= 0 else ~(<uint64_t>number << 1)


cdef inline bint is_ascii(const char *text) noexcept nogil:
    while text[0]:
        if <uint8_t>text[0] >= 0x80:
            return False
        text += 1
    return True


cdef inline bint are_whole(const Library *library, const void *headers, size_t count) noexcept nogil:
    """Say whether no name has a NUL: then each part that is shown is the name of as many headers as show it."""
    cdef const char *name
    cdef const char *other
    cdef const void *content
    cdef size_t size, place, before, same
    if count > MOST_LOOKED_UP:
        return False
    for place in range(count):
        if library.at(headers, place, &name, &content, &size):
            return False
        same = 0
        for before in range(place):
            if library.at(headers, before, &other, &content, &size):
                return False
            same += strcmp(name, other) == 0
        if library.named(headers, same, name, &content, &size):
            return False
    return True


cdef inline bint agrees(const Library *library, const void *headers, const char *raw, int64_t size) noexcept nogil:
    """Say whether bytes are an encoding of headers, and of those that the public functions show.

    ``headers`` is NULL where they show none; then the encoding must have what librdkafka does not read.
    """
    cdef const char *at = raw
    cdef const char *end = raw + size
    cdef const char *shown
    cdef const void *content
    cdef size_t shown_size, content_size
    cdef int64_t count = 0, number, name_size, value_size
    cdef const char *name
    if not length_of(&at, end, &count) or count <= 0:
        return False
    if headers != NULL and <size_t>count != library.count(headers):
        return False
    cdef bint is_unread = count > MOST_READ
    for number in range(count):
        if not length_of(&at, end, &name_size) or not 0 <= name_size <= end - at:
            return False
        name = at
        at += name_size
        if not length_of(&at, end, &value_size) or value_size > end - at:
            return False
        is_unread |= value_size < -1
        if headers != NULL:
            if library.at(headers, <size_t>number, &shown, &content, &content_size):
                return False
            shown_size = strlen(shown)
            if shown_size > <size_t>name_size or memcmp(shown, name, shown_size):
                return False
            if shown_size < <size_t>name_size and name[shown_size]:
                return False
            if (value_size < 0) != (content == NULL):
                return False
            if value_size >= 0 and (<size_t>value_size != content_size or memcmp(content, at, content_size)):
                return False
        at += max(value_size, 0)
    return at == end and (headers != NULL or is_unread)


cdef inline bint take_raw(
    const Library *library, const void *message, const void *headers, Encoded *found
) noexcept nogil:
    """Take the bytes of the headers in the log; say whether they were found."""
    cdef char[16] word
    cdef int64_t size
    cdef uint64_t place
    cdef char *raw
    if library.memory < 0 or pread(library.memory, word, 16, <int64_t><uintptr_t>message + RAW_AT) != 16:
        return False
    size = (<int32_t *>word)[0]
    place = (<uint64_t *>(word + 8))[0]
    if not 0 < size <= MOST_RAW_BYTES or not 0 < <int64_t>place:
        return False
    raw = <char *>malloc(<size_t>size)
    if raw == NULL:
        return False
    if pread(library.memory, raw, <size_t>size, <int64_t>place) != size or not agrees(library, headers, raw, size):
        free(raw)
        return False
    found.place, found.size = raw, <int32_t>size
    return True


cdef inline bint encode(const Library *library, const void *headers, size_t count, Encoded *found) noexcept nogil:
    """Encode the headers that are shown, as the log does; return False without memory."""
    cdef const char *name
    cdef const void *content
    cdef size_t size, place
    cdef uint64_t total = varint_size(zigzag_of(<int64_t>count))
    cdef Written into
    for place in range(count):
        library.at(headers, place, &name, &content, &size)
        total += varint_size(zigzag_of(<int64_t>strlen(name))) + strlen(name)
        total += varint_size(zigzag_of(<int64_t>size)) + size if content != NULL else 1
    into.place, into.size = <uint8_t *>malloc(total), 0
    if into.place == NULL:
        return False
    put_varint(&into, zigzag_of(<int64_t>count))
    for place in range(count):
        library.at(headers, place, &name, &content, &size)
        put_varint(&into, zigzag_of(<int64_t>strlen(name)))
        put_bytes(&into, name, <Py_ssize_t>strlen(name))
        put_varint(&into, zigzag_of(<int64_t>size if content != NULL else -1))
        if content != NULL:
            put_bytes(&into, content, <Py_ssize_t>size)
    found.place, found.size = <char *>into.place, <int32_t>into.size
    return True


cdef inline bint look_at_few(
    const Library *library, const void *message, const void *headers, size_t count, bint only_odd, Encoded *found
) noexcept nogil:
    """Encode at most ``FEW`` headers as ``look`` does, with one call for each header; this is the usual record."""
    cdef Shown[FEW] shown
    cdef Shown *each
    cdef const void *content
    cdef size_t size, place, before, same
    cdef bint whole = True
    cdef Written into
    cdef uint64_t total = varint_size(count << 1)
    for place in range(count):
        each = &shown[place]
        if library.at(headers, place, &each.name, &each.content, &each.size):
            found.is_odd = found.is_hidden = True
            return True
        each.name_size = strlen(each.name)
        found.is_odd |= not is_ascii(each.name)
        same = 0
        for before in range(place):
            same += (
                shown[before].name_size == each.name_size and memcmp(shown[before].name, each.name, each.name_size) == 0
            )
        whole &= library.named(headers, same, each.name, &content, &size) == 0
        total += varint_size(each.name_size << 1) + each.name_size
        total += varint_size(each.size << 1) + each.size if each.content != NULL else 1
    found.is_odd |= not whole
    if found.is_odd and take_raw(library, message, headers, found):
        return True
    found.is_hidden = not whole
    if only_odd and not found.is_odd:
        return True
    into.place, into.size = <uint8_t *>malloc(total), 0
    if into.place == NULL:
        return False
    put_varint(&into, count << 1)
    for place in range(count):
        each = &shown[place]
        put_varint(&into, each.name_size << 1)
        put_bytes(&into, each.name, <Py_ssize_t>each.name_size)
        put_varint(&into, each.size << 1 if each.content != NULL else 1)
        if each.content != NULL:
            put_bytes(&into, each.content, <Py_ssize_t>each.size)
    found.place, found.size = <char *>into.place, <int32_t>into.size
    return True


cdef inline bint look(
    const Library *library, const void *message, const void *headers, bint only_odd, Encoded *found
) noexcept nogil:
    """Encode headers, or only odd ones; return False without memory."""
    cdef const char *name
    cdef const void *content
    cdef size_t size, place
    cdef size_t count = library.count(headers)
    cdef bint whole
    if count <= FEW:
        return look_at_few(library, message, headers, count, only_odd, found)
    whole = are_whole(library, headers, count)
    found.is_odd = not whole or count > MOST_HEADERS
    for place in range(count if count < <size_t>MOST_HEADERS else <size_t>MOST_HEADERS):
        if library.at(headers, place, &name, &content, &size) or not is_ascii(name):
            found.is_odd = True
            break
    if found.is_odd and take_raw(library, message, headers, found):
        return True
    found.is_hidden = not whole
    return (only_odd and not found.is_odd) or encode(library, headers, count, found)


cdef inline bint examine(const Library *library, const void *message, bint only_odd, Encoded *found) noexcept nogil:
    """Encode the headers of a message, or only those that are odd; return False without memory.

    Where all are encoded, the message loses what librdkafka has allocated for them: 72 bytes for each header, and a
    fetch may have hundreds of thousands.
    """
    cdef void *headers = NULL
    cdef bint is_complete
    cdef int code = library.headers(message, &headers) if only_odd else library.detach(message, &headers)
    found.place, found.size, found.is_odd, found.is_hidden = NULL, 0, False, False
    if code == NO_HEADERS:
        return True
    if code or headers == NULL:
        found.is_odd, found.is_hidden = True, not take_raw(library, message, NULL, found)
        return True
    is_complete = look(library, message, headers, only_odd, found)
    if not only_odd:
        library.free(headers)
    return is_complete

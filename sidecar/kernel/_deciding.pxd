# cython: language_level=3
"""Declares the decider of records of the common form, for the other modules of the kernel: see ``_deciding.pyx``."""

from libc.stdint cimport int16_t, int64_t

from sidecar.kernel._notations cimport Bytes

cdef enum:
    # Most headers of a record, as in snapshots.segments.rows. Python decides a record with more.
    MAX_HEADERS = 100
    # Most names remembered at once, and the slots of their hash table, a power of two.
    MAX_NAMES = 512
    SLOTS = 2048

# Meaning of a header name, in the numbers of common_form.py: a role, and the notations of its content read here.
cdef enum:
    NOTHING = 0
    AT = 1
    AFTER = 2
    TO = 3
    KEY = 4
    PARTITION = 5
    ID = 6
    EXPIRE = 7
    # Where attempts are counted.
    ATTEMPT = 8
    RETRY_TARGET = 9
    ATTEMPTS_MAX = 10
    NOT_COMMON = 15
    ROLE_BITS = 15
    DIGITS = 16
    TEXT = 32


cdef struct Header:
    Bytes name
    # A null has no place.
    Bytes content


cdef struct Name:
    Bytes text
    int means


cdef struct Seen:
    int64_t offset
    int64_t timestamp_ms
    Bytes key
    Bytes value
    int header_count
    # Results of the judgement.
    int64_t due_ms
    int64_t partition
    int64_t expire_ms
    # The number of this attempt, 0 where none are counted, and how much sooner the record may leave.
    int64_t attempt
    int64_t jitter_ms
    Bytes to
    Bytes retry_target
    Bytes own_key
    Bytes deliver_id
    int roles
    bint packable
    Py_ssize_t content_bytes


cdef class Routes:
    cdef object route_of
    cdef dict known
    cdef bytes last
    cdef tuple last_targets

    cdef tuple find(self, Bytes *name)


cdef class Judge:
    cdef object means, packer
    cdef Routes routes, retry_routes
    cdef tuple default_targets
    cdef int64_t max_ahead_ms, delay_ms
    # Most attempts of a record, 0 where none are counted; the wait of each attempt and its jitter.
    cdef int64_t attempts
    cdef const int64_t[::1] waits_ms, jitters_ms
    cdef bint requires_time
    # Names of headers by their number, and a hash table of numbers: each slot holds 0, or the number plus 1.
    cdef list texts
    cdef Name[MAX_NAMES] names
    cdef int16_t[SLOTS] slots
    cdef int name_count
    cdef dict shapes
    cdef bytes last_shape
    cdef int16_t[MAX_HEADERS] last_numbers
    cdef int last_count
    # Headers of the record that is being decided.
    cdef Header[MAX_HEADERS] headers
    cdef int16_t[MAX_HEADERS] numbers

    cdef bint judge(self, Seen *seen) except -1
    cdef bint take_attempt(self, Seen *seen, int64_t made, int64_t most, int64_t *after_ms) noexcept
    cdef bint take_due(self, Seen *seen, int64_t at_ms, int64_t after_ms) noexcept
    cdef tuple route(self, Seen *seen)
    cdef int number_of(self, Bytes *name) except -2
    cdef int learn(self, Bytes *name, unsigned int slot) except -2
    cdef void forget_names(self)
    cdef bytes pack(self, Seen *seen)
    cdef bytes shape(self, int count)

# cython: language_level=3
"""Declares the messages that librdkafka has read, for the other modules of the kernel: see ``_fetching.pyx``."""

from libc.stdint cimport int32_t, int64_t

from sidecar.kernel._headers cimport Encoded

# The public rd_kafka_message_t of rdkafka.h.
cdef struct Message:
    int code
    void *topic
    int32_t partition
    void *value
    size_t value_size
    void *key
    size_t key_size
    int64_t offset
    void *opaque


cdef struct Taken:
    Message *message
    int64_t timestamp_ms
    # Headers in the encoding of the log, owned by Messages; NULL for none.
    char *headers
    int32_t headers_size
    # Says that these are not, or not certainly, the headers of the log.
    bint is_hidden


cdef class Messages:
    cdef Taken *taken
    cdef Py_ssize_t room
    # Number of messages in memory, and number of messages shown to callers.
    cdef Py_ssize_t held
    cdef Py_ssize_t count
    cdef void *destroy
    cdef void *error_text


cdef struct Doubt:
    int64_t offset
    Encoded headers


cdef struct Watched:
    # The client, NULL once it is destroyed.
    void *client
    # The client and the Watch.
    int owners
    bint is_on
    bint lacks_memory
    Py_ssize_t seen
    Py_ssize_t count
    Py_ssize_t room
    Doubt *doubts


cdef class Watch:
    cdef Watched *watched

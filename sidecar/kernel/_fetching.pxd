# cython: language_level=3
"""Declares the messages that librdkafka has read, for the other modules of the kernel: see ``_fetching.pyx``."""

from libc.stdint cimport int32_t, int64_t

# The public rd_kafka_message_t of rdkafka.h; the raw headers lie behind it in private memory.
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
    const char *headers
    int32_t headers_size


cdef class Messages:
    cdef Taken *taken
    cdef Py_ssize_t room
    # Number of messages in memory, and number of messages shown to callers.
    cdef Py_ssize_t held
    cdef Py_ssize_t count
    cdef void *destroy
    cdef void *error_text

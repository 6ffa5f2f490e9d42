# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
"""Decides and packs records in columns, for Spark jobs: the compiled half of ``spark_backfill.buckets.deciding``.

``_deciding.pyx`` defines the common form and the result of its records; only the place of a record's parts differs
here. The parts are read in place, in the layout of Arrow: the contents one after another, the start of each, and flags
for nulls.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from sidecar.kernel._deciding cimport ID, MAX_HEADERS, Judge, Seen
from sidecar.kernel._notations cimport Bytes

# Revision of the arguments and results of this module; choice.py has the same number.
REVISION = 13

cdef const char *SOMEWHERE = ""


cdef class Column:
    """A column of texts or bytes: text ``n`` is ``content[places[n] : places[n + 1]]``, or null if ``is_null[n]`` is 1.

    ``is_null`` may be None. Raise ValueError for places outside of the content.
    """

    cdef const int32_t[::1] places
    cdef const uint8_t[::1] content
    cdef const uint8_t[::1] is_null
    cdef Py_ssize_t count
    cdef bint has_null

    def __cinit__(self, places, content, is_null):
        cdef Py_ssize_t number
        cdef int32_t before = 0
        self.places, self.content = places, content
        self.has_null = is_null is not None
        if self.has_null:
            self.is_null = is_null
        self.count = self.places.shape[0] - 1
        if self.count < 0 or (self.has_null and self.is_null.shape[0] != self.count):
            raise ValueError("a column has as many texts as it has places, less one")
        for number in range(self.count + 1):
            if self.places[number] < before:
                raise ValueError("texts of a column lie behind each other")
            before = self.places[number]
        if before > self.content.shape[0]:
            raise ValueError("texts of a column lie in its content")

    cdef void take(self, Py_ssize_t number, Bytes *text) noexcept nogil:
        """Take a text; a null has no place, an empty text has one."""
        if self.has_null and self.is_null[number]:
            text.place, text.size = NULL, 0
            return
        text.size = self.places[number + 1] - self.places[number]
        # An empty text may lie behind the whole content.
        if text.size:
            text.place = <const char *>&self.content[self.places[number]]
        else:
            text.place = SOMEWHERE


cdef class Batch:
    """A batch of records: the timestamp, key and value of each, and the headers of all, one after another.

    ``header_ends`` has the end of the headers of each record. Raise ValueError for columns that do not fit together.
    """

    cdef const int64_t[::1] timestamps_ms, header_ends
    cdef Column keys, values, names, contents
    cdef Py_ssize_t count

    def __cinit__(
        self, timestamps_ms, Column keys not None, Column values not None, header_ends, Column names not None,
        Column contents not None,
    ):
        cdef Py_ssize_t number
        cdef int64_t before = 0
        self.timestamps_ms, self.header_ends = timestamps_ms, header_ends
        self.keys, self.values, self.names, self.contents = keys, values, names, contents
        self.count = self.timestamps_ms.shape[0]
        if not keys.count == values.count == self.header_ends.shape[0] == self.count:
            raise ValueError("records of a batch have a timestamp, a key, a value and headers each")
        for number in range(self.count):
            if self.header_ends[number] < before:
                raise ValueError("headers of a batch lie behind each other")
            before = self.header_ends[number]
        if before > names.count or names.count != contents.count:
            raise ValueError("headers of a batch have a name and a content each")


cdef class ColumnDecider(Judge):
    """Decides batches; with ``packs`` it also makes rows of the records."""

    cdef bint packs

    def __cinit__(self, form, packer, bint packs):
        self.packs = packs

    def decide(self, Batch batch not None, Py_ssize_t start, int64_t[::1] dues_ms, list rows not None, list ids not None):
        """Decide records from ``start`` on; return the place of the first record left to Python, or behind the last.

        ``dues_ms`` and ``rows`` have a place for each record of the batch. For each record with an id, its number and
        the id are added to ``ids``.
        """
        cdef Seen seen
        cdef Py_ssize_t place = start
        cdef object row = None
        if start < 0 or dues_ms.shape[0] != batch.count or len(rows) != batch.count:
            raise ValueError("there is a place for each record of a batch")
        while place < batch.count:
            if not self.take(batch, place, &seen) or not self.judge(&seen) or self.route(&seen) is None:
                break
            if self.packs:
                if not seen.packable:
                    break
                row = self.pack(&seen)
                if row is None:
                    break
                rows[place] = row
            dues_ms[place] = seen.due_ms
            if seen.roles & 1 << ID:
                ids.append((place, seen.deliver_id.place[: seen.deliver_id.size]))
            place += 1
        return place

    cdef bint take(self, Batch batch, Py_ssize_t place, Seen *seen) noexcept:
        cdef int64_t start = batch.header_ends[place - 1] if place else 0
        cdef int64_t count = batch.header_ends[place] - start
        cdef int number
        if count > MAX_HEADERS:
            return False
        seen.timestamp_ms, seen.header_count = batch.timestamps_ms[place], <int>count
        batch.keys.take(place, &seen.key)
        batch.values.take(place, &seen.value)
        for number in range(<int>count):
            batch.names.take(<Py_ssize_t>start + number, &self.headers[number].name)
            batch.contents.take(<Py_ssize_t>start + number, &self.headers[number].content)
            if self.headers[number].name.place == NULL:
                return False
        return True

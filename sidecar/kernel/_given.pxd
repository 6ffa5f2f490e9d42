# cython: language_level=3
"""Takes numbers, bytes and text out of the Python objects of a record.

Each function says whether an object has exactly the expected type. If one says no, Python handles the record.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int64_t

from sidecar.kernel._notations cimport Bytes

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef inline bint number_of(object given, int64_t *number) except -1:
    cdef int overflow = 0
    if not PyLong_CheckExact(given):
        return False
    number[0] = PyLong_AsLongLongAndOverflow(given, &overflow)
    return overflow == 0


cdef inline bint content_of(object given, Bytes *content) noexcept:
    """Take bytes or None; a null has no place, empty bytes have one."""
    if given is None:
        content.place, content.size = NULL, 0
        return True
    if not PyBytes_CheckExact(given):
        return False
    content.place, content.size = PyBytes_AS_STRING(given), PyBytes_GET_SIZE(given)
    return True


cdef inline bint text_of(object given, Bytes *text) except -1:
    if not PyUnicode_CheckExact(given):
        return False
    try:
        text.place = PyUnicode_AsUTF8AndSize(given, &text.size)
    except UnicodeError:
        return False
    return True

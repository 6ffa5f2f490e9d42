# cython: language_level=3, cdivision=True
"""Parses the notations of times that the kernel reads: the compiled half of ``index.protocol.times``, for ``_deciding.pyx``.

Each function says whether a text is of its notation, and if so returns its value. Python parses all other texts, and
reports their errors.
"""

from libc.stdint cimport int64_t

cdef enum:
    # Any number with so many digits is below 2^63.
    MAX_DIGITS = 18

cdef extern from *:
    """
    #define KERNEL_INT64_MAX 0x7FFFFFFFFFFFFFFFLL
    """
    const int64_t INT64_MAX "KERNEL_INT64_MAX"


cdef struct Bytes:
    const char *place
    Py_ssize_t size


cdef inline bint digits_of(const char *place, Py_ssize_t size, int64_t *number) noexcept nogil:
    """Parse digits; say whether the text has only digits, and few enough to fit."""
    cdef int64_t value = 0
    cdef Py_ssize_t at
    if not 1 <= size <= MAX_DIGITS:
        return False
    for at in range(size):
        if not c"0" <= place[at] <= c"9":
            return False
        value = 10 * value + (place[at] - c"0")
    number[0] = value
    return True


cdef inline int64_t days_to(int64_t year, int64_t month, int64_t day) noexcept nogil:
    """Return the days from 1970 to a date of the Gregorian calendar, or -1 for an earlier or impossible date."""
    cdef int64_t length = 31, years, day_of_year
    cdef bint leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    if month == 2:
        length = 29 if leap else 28
    elif month == 4 or month == 6 or month == 9 or month == 11:
        length = 30
    if year < 1970 or not 1 <= month <= 12 or not 1 <= day <= length:
        return -1
    # Years here begin in March, so that the leap day is the last day.
    years = year - 1 if month <= 2 else year
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return years * 365 + years // 4 - years // 100 + years // 400 + day_of_year - 719_468


cdef inline bint instant_of(Bytes *raw, int64_t *instant_ms) noexcept nogil:
    """Parse RFC 3339 as ``index.protocol.times`` does, except for dates before 1970 and leap seconds."""
    cdef const char *text = raw.place
    cdef Py_ssize_t at = 19, decimals = 0
    cdef int64_t year, month, day, hour, minute, second, hours, minutes, days, fraction = 0, number
    if raw.size < 20 or text[4] != c"-" or text[7] != c"-" or text[13] != c":" or text[16] != c":":
        return False
    if text[10] != c"T" and text[10] != c"t":
        return False
    if not (
        digits_of(text, 4, &year) and digits_of(text + 5, 2, &month) and digits_of(text + 8, 2, &day)
        and digits_of(text + 11, 2, &hour) and digits_of(text + 14, 2, &minute) and digits_of(text + 17, 2, &second)
    ):
        return False
    if hour > 23 or minute > 59 or second > 59:
        return False
    if text[at] == c".":
        at += 1
        while at + decimals < raw.size and c"0" <= text[at + decimals] <= c"9":
            decimals += 1
        if decimals > 9 or not digits_of(text + at, decimals, &fraction):
            return False
        at += decimals
        while decimals < 9:
            fraction *= 10
            decimals += 1
    days = days_to(year, month, day)
    if days < 0 or at >= raw.size:
        return False
    number = days * 1440 + hour * 60 + minute
    if text[at] == c"Z" or text[at] == c"z":
        if raw.size != at + 1:
            return False
    else:
        if raw.size != at + 6 or text[at + 3] != c":" or (text[at] != c"+" and text[at] != c"-"):
            return False
        if not (digits_of(text + at + 1, 2, &hours) and digits_of(text + at + 4, 2, &minutes)):
            return False
        if hours > 23 or minutes > 59:
            return False
        number += hours * 60 + minutes if text[at] == c"-" else -(hours * 60 + minutes)
    instant_ms[0] = (number * 60 + second) * 1000 + (fraction + 999_999) // 1_000_000
    return True


cdef inline int64_t unit_of(const char *unit, Py_ssize_t size) noexcept nogil:
    """Return the milliseconds of a unit, or 0 for an unknown unit."""
    if size == 2:
        return 1 if unit[0] == c"m" and unit[1] == c"s" else 0
    if size != 1:
        return 0
    if unit[0] == c"s":
        return 1_000
    if unit[0] == c"m":
        return 60_000
    if unit[0] == c"h":
        return 3_600_000
    return 86_400_000 if unit[0] == c"d" else 0


cdef inline int64_t iso_unit_of(char unit, bint of_time) noexcept nogil:
    if of_time:
        return 1_000 if unit == c"S" else 60_000 if unit == c"M" else 3_600_000 if unit == c"H" else 0
    return 86_400_000 if unit == c"D" else 604_800_000 if unit == c"W" else 0


cdef inline bint duration_of(Bytes *raw, int64_t *duration_ms) noexcept nogil:
    """Parse a number with its unit, or one amount of ISO 8601, as ``index.protocol.times`` does."""
    cdef const char *text = raw.place
    cdef Py_ssize_t size = 0
    cdef int64_t amount, unit_ms
    cdef bint of_time
    if raw.size < 2:
        return False
    if text[0] == c"P":
        of_time = text[1] == c"T"
        size = 2 if of_time else 1
        if raw.size < size + 2:
            return False
        unit_ms = iso_unit_of(text[raw.size - 1], of_time)
        if not unit_ms or not digits_of(text + size, raw.size - size - 1, &amount):
            return False
    else:
        while size < raw.size and c"0" <= text[size] <= c"9":
            size += 1
        unit_ms = unit_of(text + size, raw.size - size)
        if not unit_ms or not digits_of(text, size, &amount):
            return False
    if amount > INT64_MAX // unit_ms:
        return False
    duration_ms[0] = amount * unit_ms
    return True

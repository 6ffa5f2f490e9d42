"""The delay protocol for the audit: due time, targets and digests of a record, as Spark expressions on its headers.

No code is shared with the router, whose work is judged here; names and units of headers are constants. All arithmetic
is in integers and decimals, rounded up to whole milliseconds. A value that cannot be read or does not fit 64 bits gives
UNREADABLE, never an error, because any producer may write to a delay topic.

Rows come from Spark's Kafka source: ``key``, ``value``, ``headers`` (array of ``key`` string, ``value`` binary),
``timestamp_ms`` and the other columns.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from index.protocol.headers import (
    DELAY_OCCURRENCE,
    DELAY_SERIES,
    DELAY_SPREAD,
    NATIVE,
    PROVENANCE,
    SERIES,
    Alias,
    HeaderRole,
    Unit,
)

AT_ONCE: Final = 0
"""Due time of a record that names none."""

_SOURCE_PARTS: Final = 3

UNREADABLE: Final = -1
"""Due time of a record whose schedule cannot be read here; it should have been rejected."""

CONTROL_PREFIX: Final = "deliver-"
SOURCE_HEADER: Final = "delay-source"
REDRIVE_MARK: Final = "delay-redriven-offsets"
"""The only header of a record that lists redriven records of a rejected topic."""

REJECTION_HEADERS: Final = ("delay-error", "delay-error-message", "delay-source")
SERIES_HEADERS: Final = (DELAY_OCCURRENCE, DELAY_SERIES)
"""Headers of a rejected occurrence, in front of the headers of the rejection."""

_LONG: Final = "bigint"
# 19 digits of weeks in milliseconds need 29 digits.
_WIDE: Final = "decimal(38,0)"
_NANO_DIGITS: Final = 9
_NANOS_PER_MS: Final = 1_000_000
_LEAP_SECOND: Final = 60

# \A and \z, because '$' would let a line feed pass.
_NUMBER: Final = r"\A[0-9]{1,19}\z"
_INSTANT: Final = (
    r"\A([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)(?:\.([0-9]{1,9}))?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))\z"
)
_NSERVICEBUS: Final = r"\A([0-9-]{10}) ([0-9:]{6}[0-5][0-9]):([0-9]{6}) Z\z"
_DURATION: Final = (
    r"\AP(?=[0-9T])(?:([0-9]{1,19})W)?(?:([0-9]{1,19})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,19})H)?(?:([0-9]{1,19})M)?(?:([0-9]{1,19})(?:[.,]([0-9]{1,9}))?S)?)?\z"
)
_SHORT: Final = r"\A([0-9]{1,19})(ms|s|m|h|d)\z"
_SHORT_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NEGATIVE_HEX: Final = r"\A[89A-F]"
_LONG_BYTES: Final = 8
_MICROS_PER_MS: Final = 1_000
_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_TIMES: Final = frozenset({HeaderRole.AT, HeaderRole.AFTER})
_EVERY: Final = "deliver-every"
_CRON: Final = "deliver-cron"
_SERIES_NUMBERS: Final = 3
_DURATION_UNITS_MS: Final = (604_800_000, 86_400_000, 3_600_000, 60_000, 1_000)


class Protocol:
    """Expressions for the records of one delay topic; ``aliases`` are its other names for control headers.

    ``delay_ms`` is the delay of a record that names no time; 0: none.
    """

    def __init__(self, aliases: Sequence[Alias] = (), delay_ms: int = 0) -> None:
        self._delay_ms = delay_ms
        named = (alias._replace(name=alias.name.lower()) for alias in aliases)
        self._aliases = (*NATIVE, *named)
        self._alias_names = sorted({alias.name for alias in self._aliases[len(NATIVE) :]})

    def control(self, headers: Column) -> Column:
        """Select the control headers among ``headers``."""
        return f.filter(headers, lambda each: self._is_control(each["key"]))

    def user(self, headers: Column) -> Column:
        """Select the headers that a released record keeps: neither control nor provenance."""
        ours = sorted(PROVENANCE)
        return f.filter(headers, lambda each: ~(self._is_control(each["key"]) | plain(each["key"]).isin(ours)))

    def due_ms(self, control: Column, timestamp_ms: Column) -> Column:
        """Compute the due time in epoch ms, AT_ONCE or UNREADABLE."""
        at, after = self._of(control, HeaderRole.AT), self._of(control, HeaderRole.AFTER)
        at_ms = f.greatest(self._read(f.get(at, f.lit(0)), HeaderRole.AT), f.lit(0).cast(_LONG))
        after_ms = f.try_add(timestamp_ms, self._read(f.get(after, f.lit(0)), HeaderRole.AFTER))
        # greatest() ignores nulls, and a null here marks an unreadable value.
        at_ms = f.when(self._read(f.get(at, f.lit(0)), HeaderRole.AT).isNotNull(), at_ms)
        occurrence = series(control)
        due = (
            f.when(occurrence.isNotNull(), f.get(occurrence, f.lit(2)))
            # A time in its headers is the time from which on the minutes count.
            .when(begins_by_cron(control), f.lit(AT_ONCE).cast(_LONG))
            .when((f.size(at) > 1) | (f.size(after) > 1), f.lit(None).cast(_LONG))
            .when(f.size(at) == 1, at_ms)
            .when(f.size(after) == 1, after_ms)
            .otherwise(self._due_without_time(control, timestamp_ms))
        )
        return f.coalesce(due, f.lit(UNREADABLE).cast(_LONG))

    def targets(self, control: Column) -> Column:
        """Return the names of the requested targets, as an array of strings; empty when the record names none."""
        return f.transform(
            self._of(control, HeaderRole.TO), lambda each: f.coalesce(each["value"].cast("string"), f.lit(""))
        )

    def names_time(self, control: Column) -> Column:
        """Return true if the record names a time, even one that cannot be read."""
        return f.size(f.concat(self._of(control, HeaderRole.AT), self._of(control, HeaderRole.AFTER))) > 0

    def has_id(self, control: Column) -> Column:
        """Return true if the record has an id by which it can be cancelled."""
        return f.size(self._of(control, HeaderRole.ID)) > 0

    def id_of(self, control: Column) -> Column:
        """Return the id of the record; null without one."""
        return f.get(self._of(control, HeaderRole.ID), f.lit(0))["value"]

    def released_key(self, control: Column, key: Column) -> Column:
        """Return the key of the released record."""
        given = self._of(control, HeaderRole.KEY)
        return f.when(f.size(given) > 0, f.get(given, f.lit(0))["value"]).otherwise(key)

    def _due_without_time(self, control: Column, timestamp_ms: Column) -> Column:
        every = _given(control, _EVERY)
        period_ms = _milliseconds(f.get(every, f.lit(0))["value"], HeaderRole.AFTER, Unit.NATIVE)
        delay_ms = f.lit(self._delay_ms).cast(_LONG)
        delayed = f.try_add(timestamp_ms, delay_ms) if self._delay_ms else f.lit(AT_ONCE).cast(_LONG)
        return f.when(f.size(every) > 0, f.try_add(timestamp_ms, period_ms)).otherwise(delayed)

    def _is_control(self, name: Column) -> Column:
        ours = plain(name).startswith(CONTROL_PREFIX)
        return ours | plain(name).isin(self._alias_names) if self._alias_names else ours

    def _of(self, control: Column, role: HeaderRole) -> Column:
        names = sorted({alias.name for alias in self._aliases if alias.role == role})
        found = f.filter(control, lambda each: plain(each["key"]).isin(names))
        # A null time counts as no header.
        return f.filter(found, lambda each: each["value"].isNotNull()) if role in _TIMES else found

    def _read(self, header: Column, role: HeaderRole) -> Column:
        """Read the milliseconds of a time header, in the unit of its name; null when it cannot be read."""
        value, name = header["value"], plain(header["key"])
        units = {alias.name: alias.unit for alias in self._aliases if alias.role == role}
        native = _milliseconds(value, role, Unit.NATIVE)
        others = [(alias, unit) for alias, unit in sorted(units.items()) if unit != Unit.NATIVE]
        if not others:
            return native
        chosen = f.when(name == others[0][0], _milliseconds(value, role, others[0][1]))
        for alias, unit in others[1:]:
            chosen = chosen.when(name == alias, _milliseconds(value, role, unit))
        return chosen.otherwise(native)


def plain(name: Column) -> Column:
    """Return a header name with A to Z in lower case: names of the protocol count in any case."""
    return f.translate(name, _UPPER, _LOWER)


def series(control: Column) -> Column:
    """Return the numbers of an occurrence: offset of the first record, number, and due time; null for other records.

    They are in ``deliver-series``, which the router writes into a record that recurs.
    """
    numbers = f.transform(
        _given(control, SERIES),
        lambda each: f.transform(
            f.slice(f.split(each["value"].cast("string"), " "), f.lit(1), f.lit(_SERIES_NUMBERS)), whole_number
        ),
    )
    legible = f.filter(numbers, lambda each: (f.size(each) == _SERIES_NUMBERS) & ~f.exists(each, f.isnull))
    return f.when(recurs(control), f.get(legible, f.lit(0)))


def recurs(headers: Column) -> Column:
    """Return true if a record is, or claims to be, a recurring schedule."""
    return (f.size(_given(headers, _EVERY)) > 0) | (f.size(_given(headers, _CRON)) > 0)


def begins_by_cron(control: Column) -> Column:
    """Return true if a record is to begin a series by cron: it is not released, and its first occurrence follows it."""
    return (f.size(_given(control, _CRON)) > 0) & (f.size(_given(control, SERIES)) == 0)


def _given(headers: Column, name: str) -> Column:
    """Return the headers of a name; a null value counts as no header."""
    return f.filter(headers, lambda each: (plain(each["key"]) == name) & each["value"].isNotNull())


def digest(key: Column, value: Column, headers: Column) -> Column:
    """Compute a 64-bit digest of the parts that must not change.

    Null differs from empty, and an accidental change passes once in 2**64.
    """
    told_apart = f.transform(headers, lambda each: f.struct(each["key"], each["value"].isNull(), each["value"]))
    return f.xxhash64(key.isNull(), key, value.isNull(), value, f.size(headers), told_apart)


def source(headers: Column) -> Column:
    """Split the last ``delay-source`` into its parts, an array of strings; null without one.

    It is the last one because the router appends its own, and an incoming one may stand before it in a rejected record.
    """
    return f.split(_last(headers, SOURCE_HEADER), "/")


def place_of(parts: Column) -> tuple[Column, Column, Column, Column]:
    """Return topic, partition and offset of a split ``delay-source``, and whether it is legible."""
    topic, partition = f.get(parts, f.lit(0)), whole_number(f.get(parts, f.lit(1)))
    offset = whole_number(f.get(parts, f.lit(2)))
    return topic, partition, offset, (f.size(parts) == _SOURCE_PARTS) & partition.isNotNull() & offset.isNotNull()


def spread_ms(headers: Column) -> Column:
    """Return how long after its due time a released record was to leave, in ms; 0 without the header."""
    return f.coalesce(whole_number(_last(headers, DELAY_SPREAD)), f.lit(0).cast(_LONG))


def whole_number(text: Column) -> Column:
    """Read a number of ASCII digits that fits 64 bits; null otherwise."""
    return f.when(text.rlike(_NUMBER), text.try_cast(_LONG))


def _last(headers: Column, name: str) -> Column:
    found = f.filter(headers, lambda each: each["key"] == name)
    return f.get(found, f.size(found) - 1)["value"].cast("string")


def rejected_as_sent(headers: Column) -> Column:
    """Return the headers of a rejected record without the ones that are added last; null when these are missing.

    They are the three of the rejection, behind the two of an occurrence.
    """
    as_sent = _without_last(headers, REJECTION_HEADERS)
    return f.when(recurs(as_sent), f.coalesce(_without_last(as_sent, SERIES_HEADERS), as_sent)).otherwise(as_sent)


def _without_last(headers: Column, names: Sequence[str]) -> Column:
    """Return the headers without the last ones; null unless these have the names."""
    left = f.size(headers) - len(names)
    are_last = [f.get(headers, left + place)["key"] == name for place, name in enumerate(names)]
    return f.when((left >= 0) & reduce(and_, are_last), f.slice(headers, f.lit(1), f.greatest(left, f.lit(0))))


def is_redrive_mark(headers: Column) -> Column:
    """Return true for a record of a rejected topic that only marks other records as redriven."""
    is_named = f.get(headers, f.lit(0))["key"] == REDRIVE_MARK
    return f.coalesce((f.size(headers) == 1) & is_named, f.lit(False))


def any_of(flags: Iterable[Column]) -> Column:
    """Return true if at least one condition holds; false for no conditions."""
    result = f.lit(False)
    for flag in flags:
        result = result | flag
    return result


def _milliseconds(value: Column, role: HeaderRole, unit: Unit) -> Column:
    text = value.cast("string")
    number = whole_number(text)
    if unit == Unit.MS:
        return number
    if unit == Unit.S:
        return f.try_multiply(number, f.lit(1000).cast(_LONG))
    if unit == Unit.US:
        return f.ceil(number.cast("decimal(20,0)") / f.lit(_MICROS_PER_MS)).cast(_LONG)
    if unit == Unit.BE_MS:
        hexadecimal = f.hex(value)
        fits = f.length(value).between(1, _LONG_BYTES) & ~hexadecimal.rlike(_NEGATIVE_HEX)
        return f.when(fits, f.conv(hexadecimal, 16, 10).try_cast(_LONG))
    if unit == Unit.RFC3339:
        return _instant_ms(text)
    if unit == Unit.NSERVICEBUS:
        return _instant_ms(f.when(text.rlike(_NSERVICEBUS), f.regexp_replace(text, _NSERVICEBUS, "$1T$2.$3Z")))
    if unit == Unit.ISO8601:
        return _duration_ms(text)
    written = _instant_ms(text) if role == HeaderRole.AT else f.coalesce(_duration_ms(text), _short_ms(text))
    return f.when(text.rlike(_NUMBER), number).otherwise(written)


def _short_ms(text: Column) -> Column:
    """Read a number and its unit, as ``15m``."""
    unit, unit_ms = f.regexp_extract(text, _SHORT, 2), f.lit(None).cast(_LONG)
    for name, each_ms in _SHORT_UNITS_MS.items():
        unit_ms = f.when(unit == name, f.lit(each_ms).cast(_LONG)).otherwise(unit_ms)
    amount = f.regexp_extract(text, _SHORT, 1).try_cast("decimal(19,0)")
    return f.when(text.rlike(_SHORT), (amount * unit_ms.cast("decimal(10,0)")).try_cast(_LONG))


def _instant_ms(text: Column) -> Column:
    day, hour, minute, second, fraction, sign, ahead_hours, ahead_minutes = (
        f.regexp_extract(text, _INSTANT, group) for group in range(1, 9)
    )
    days = f.datediff(day.try_cast("date"), f.lit("1970-01-01").cast("date")).cast(_LONG)
    ahead = _int(ahead_hours) * 60 + _int(ahead_minutes)
    minutes = days * 1440 + _int(hour) * 60 + _int(minute) - f.when(sign == "-", -ahead).otherwise(ahead)
    ms = (minutes * 60 + _int(second)) * 1000
    # Second 60 ends when the next minute begins.
    whole = ms + f.when(_int(second) == _LEAP_SECOND, f.lit(0).cast(_LONG)).otherwise(_fraction_ms(fraction))
    return f.when(text.rlike(_INSTANT), whole)


def _duration_ms(text: Column) -> Column:
    amounts = [f.regexp_extract(text, _DURATION, group) for group in range(1, 6)]
    total = _fraction_ms(f.regexp_extract(text, _DURATION, 6)).cast(_WIDE)
    for amount, unit_ms in zip(amounts, _DURATION_UNITS_MS, strict=True):
        wide = f.when(amount == "", f.lit(0).cast("decimal(19,0)")).otherwise(amount.try_cast("decimal(19,0)"))
        total = total + wide * f.lit(unit_ms)
    return f.when(text.rlike(_DURATION), total.try_cast(_LONG))


def _fraction_ms(decimals: Column) -> Column:
    """Convert the decimals of a second to ms, rounded up; 0 without any."""
    nanos = _int(f.rpad(decimals, _NANO_DIGITS, "0"))
    return f.ceil(nanos / _NANOS_PER_MS).cast(_LONG)


def _int(digits: Column) -> Column:
    """Read a number of few digits; 0 for an empty text."""
    return f.when(digits == "", f.lit(0).cast(_LONG)).otherwise(digits.try_cast(_LONG))

"""Numbers, durations and instants: exact tables, and random ones against exact arithmetic on fractions."""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.protocol.times import (
    INT64_MAX,
    parse_duration_ms,
    parse_instant_ms,
    parse_iso_duration_ms,
    parse_nservicebus_ms,
    parse_number,
    parse_number_or_iso_ms,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NEW_YEAR_2030_MS = 1_893_456_000_000

NOT_A_NUMBER = [
    b"", b" 1", b"1 ", b"+1", b"-1", b"1_000", b"1e3", b"1.0", b"0x10", b"1\n", b"1\x00", "\u0661".encode(), b"\xb2",
    b"9223372036854775808", b"00000000000000000001", b"9" * 1_000_000,
]  # fmt: skip


@pytest.mark.parametrize(("raw", "number"), [(b"0", 0), (b"007", 7), (b"9223372036854775807", INT64_MAX)])
def test_a_number_is_ascii_digits_up_to_64_bits(raw: bytes, number: int) -> None:
    assert parse_number(raw) == number


@pytest.mark.parametrize("raw", NOT_A_NUMBER, ids=lambda raw: ascii(raw[:24]))
def test_anything_else_is_not_a_number(raw: bytes) -> None:
    with pytest.raises(ValueError, match="expected a number of 1 to 19 ASCII digits"):
        parse_number(raw)


@pytest.mark.parametrize(
    ("raw", "duration_ms"),
    [
        (b"1500", 1_500),
        (b"PT15M", 15 * 60_000),
        (b"PT0S", 0),
        (b"P1W", 7 * DAY_MS),
        (b"P1DT12H", 36 * HOUR_MS),
        (b"P1W2DT3H4M5.006S", 9 * DAY_MS + 3 * HOUR_MS + 4 * 60_000 + 5_006),
        (b"PT36H", 36 * HOUR_MS),
        (b"PT0.25S", 250),
        (b"PT0,25S", 250),
        (b"PT0.0000000S", 0),
        (b"PT0.000000001S", 1),
        (b"PT1.999000001S", 2_000),
        (b"PT9223372036854775.807S", INT64_MAX),
    ],
)
def test_durations(raw: bytes, duration_ms: int) -> None:
    assert parse_duration_ms(raw) == duration_ms


@pytest.mark.parametrize(
    ("raw", "duration_ms"),
    [
        (b"500ms", 500),
        (b"10s", 10_000),
        (b"5m", 5 * 60_000),
        (b"36h", 36 * HOUR_MS),
        (b"7d", 7 * DAY_MS),
        (b"0d", 0),
        (b"9223372036854775807ms", INT64_MAX),
    ],
)
def test_durations_as_in_the_configuration(raw: bytes, duration_ms: int) -> None:
    assert parse_duration_ms(raw) == duration_ms


@pytest.mark.parametrize(
    "raw", [b"15M", b"1h30m", b"1.5h", b"15 m", b"15m ", b"1w", b"1y", b"-5m", b"m", b"15min", b"5m\n", b"0x5s"]
)
def test_nothing_else_is_one(raw: bytes) -> None:
    with pytest.raises(ValueError, match="a number and its unit such as 500ms, 10s, 5m, 36h, 7d"):
        parse_duration_ms(raw)


def test_a_short_duration_over_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 9223372036854775807 milliseconds"):
        parse_duration_ms(b"9223372036854775807s")


def test_rules_of_before_read_none_of_them() -> None:
    assert parse_number_or_iso_ms(b"PT15M") == 15 * 60_000
    with pytest.raises(ValueError, match=r"not negative\)$"):
        parse_number_or_iso_ms(b"15m")


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"P", b"PT", b"P1", b"P1DT", b"1D", b"PT1", b"P1Y", b"P1M", b"P1Y2M", b"-PT1S", b"PT-1S", b"+PT1S",
        b"PT1.5M", b"PT.5S", b"PT1.S", b"PT1.0000000001S", b"PT1S ", b"PT1M1H", b"P1D1W", b"PT 1S", b"PT1S\n", b"pt1s",
        "PT\u0661S".encode(), b"P99999999999999999999W",
    ],
)  # fmt: skip
def test_refused_durations_say_what_is_allowed(raw: bytes) -> None:
    with pytest.raises(ValueError, match="ISO 8601 duration of weeks, days, hours, minutes and seconds"):
        parse_duration_ms(raw)


@pytest.mark.parametrize("raw", [b"PT9223372036854775.808S", b"P9999999999999999999W"])
def test_a_duration_over_64_bits_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="longer than 9223372036854775807 milliseconds"):
        parse_duration_ms(raw)


def test_only_the_native_duration_is_also_a_number() -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        parse_iso_duration_ms(b"1500")


@pytest.mark.parametrize(
    ("raw", "instant_ms"),
    [
        (b"1970-01-01T00:00:00Z", 0),
        (b"2030-01-01T00:00:00Z", NEW_YEAR_2030_MS),
        (b"2030-01-01t00:00:00z", NEW_YEAR_2030_MS),
        (b"2030-01-01T02:00:00+02:00", NEW_YEAR_2030_MS),
        (b"2029-12-31T18:30:00-05:30", NEW_YEAR_2030_MS),
        (b"2030-01-01T00:00:00-00:00", NEW_YEAR_2030_MS),
        (b"2030-01-01T23:59:00+23:59", NEW_YEAR_2030_MS),
        (b"2030-01-01T00:00:00.5Z", NEW_YEAR_2030_MS + 500),
        (b"2030-01-01T00:00:00.000000000Z", NEW_YEAR_2030_MS),
        (b"2030-01-01T00:00:00.000000001Z", NEW_YEAR_2030_MS + 1),
        (b"2029-12-31T23:59:59.999000001Z", NEW_YEAR_2030_MS),
        (b"2029-12-31T23:59:60Z", NEW_YEAR_2030_MS),
        (b"2029-12-31T23:59:60.9Z", NEW_YEAR_2030_MS),
        (b"2028-02-29T00:00:00Z", 1_835_395_200_000),
        (b"1969-12-31T23:59:59.9999Z", 0),
        (b"1969-12-31T23:59:59.001Z", -999),
        (b"0001-01-01T00:00:00Z", -62_135_596_800_000),
        (b"9999-12-31T23:59:59Z", 253_402_300_799_000),
    ],
)
def test_instants(raw: bytes, instant_ms: int) -> None:
    assert parse_instant_ms(raw) == instant_ms


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"1893456000000", b"2030-01-01", b"2030-01-01T00:00:00", b"2030-01-01T00:00Z", b"2030-01-01 00:00:00Z",
        b"20300101T000000Z", b"2030-W01-1T00:00:00Z", b"2030-001T00:00:00Z", b"2030-1-1T00:00:00Z",
        b"2030-01-01T24:00:00Z", b"2030-01-01T00:60:00Z", b"2030-01-01T00:00:61Z", b"2030-01-01T00:00:00.Z",
        b"2030-01-01T00:00:00,5Z", b"2030-01-01T00:00:00.0000000001Z", b"2030-01-01T00:00:00+2:00",
        b"2030-01-01T00:00:00+0200", b"2030-01-01T00:00:00+24:00", b"2030-01-01T00:00:00+02:60",
        b"2030-01-01T00:00:00+02:00:00", b"2030-01-01T00:00:00 Z", b"2030-01-01T00:00:00Z\n",
        b"2030-01-01T00:00:00[UTC]", b"+2030-01-01T00:00:00Z", b"12030-01-01T00:00:00Z",
        "\u0662\u0660\u0663\u0660-01-01T00:00:00Z".encode(), b"now", b"+1h",
    ],
)  # fmt: skip
def test_refused_instants_say_what_is_allowed(raw: bytes) -> None:
    with pytest.raises(ValueError, match="expected an RFC 3339 instant with an offset"):
        parse_instant_ms(raw)


@pytest.mark.parametrize("day", ["2030-02-29", "2030-02-30", "2030-13-01", "2030-00-01", "2030-01-00", "0000-01-01"])
def test_a_date_that_does_not_exist_is_refused(day: str) -> None:
    with pytest.raises(ValueError, match="no such date"):
        parse_instant_ms(f"{day}T00:00:00Z".encode())


@given(number=st.integers(0, INT64_MAX), zeros=st.integers(0, 19))
def test_every_number_that_fits_is_read_back(number: int, zeros: int) -> None:
    digits = ("0" * zeros + str(number))[-19:]
    assert parse_number(digits.encode()) == int(digits)


_amount = st.none() | st.integers(0, 10**6)
_decimals = st.text("0123456789", min_size=1, max_size=9)


@given(amounts=st.tuples(_amount, _amount, _amount, _amount, _amount), decimals=_decimals)
def test_a_duration_is_never_shorter_than_written_and_less_than_1_ms_longer(
    amounts: tuple[int | None, ...], decimals: str
) -> None:
    weeks, days, hours, minutes, seconds = amounts
    date_part = "".join(f"{n}{unit}" for n, unit in ((weeks, "W"), (days, "D")) if n is not None)
    time_part = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n is not None)
    if seconds is not None:
        time_part += f"{seconds}.{decimals}S"
    exact = Fraction(0)
    for amount, unit_ms in zip(amounts, (7 * DAY_MS, DAY_MS, HOUR_MS, 60_000, 1000), strict=True):
        exact += (amount or 0) * unit_ms
    if seconds is not None:
        exact += Fraction(int(decimals), 10 ** len(decimals)) * 1000
    raw = f"P{date_part}{'T' + time_part if time_part else ''}".encode()
    if raw == b"P":
        return
    assert parse_iso_duration_ms(raw) == ceil(exact)


@given(
    local=st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)),  # noqa: DTZ001 -- the offset is drawn separately
    offset_minutes=st.integers(-1439, 1439),
    decimals=_decimals,
)
def test_an_instant_is_never_earlier_than_written_and_less_than_1_ms_later(
    local: datetime, offset_minutes: int, decimals: str
) -> None:
    local = local.replace(microsecond=0, tzinfo=timezone(timedelta(minutes=offset_minutes)))
    sign, minutes = "-" if offset_minutes < 0 else "+", abs(offset_minutes)
    raw = f"{local:%H:%M:%S}.{decimals}{sign}{minutes // 60:02}:{minutes % 60:02}"
    since_1970 = local - datetime(1970, 1, 1, tzinfo=UTC)
    exact_s = since_1970 // timedelta(seconds=1) + Fraction(int(decimals), 10 ** len(decimals))
    assert parse_instant_ms(f"{local.date().isoformat()}T{raw}".encode()) == ceil(exact_s * 1000)


_SOUP = st.text("0123456789-+:.,TtZzPWDHMSY _eE\u0661\xb2", max_size=40).map(str.encode) | st.binary(max_size=40)


@given(raw=_SOUP)
def test_any_bytes_are_a_number_or_refused(raw: bytes) -> None:
    if re.fullmatch(rb"[0-9]{1,19}", raw) and int(raw) <= INT64_MAX:
        assert parse_number(raw) == int(raw)
    else:
        with pytest.raises(ValueError, match="ASCII digits"):
            parse_number(raw)


@given(raw=_SOUP)
def test_any_bytes_are_read_as_a_sound_time_or_refused_with_a_message(raw: bytes) -> None:
    for parse, least_ms in ((parse_duration_ms, 0), (parse_instant_ms, -62_135_683_200_000)):
        with suppress(ValueError):
            assert least_ms <= parse(raw) <= INT64_MAX


@pytest.mark.parametrize(
    ("raw", "ahead_ms"),
    [
        (b"2030-01-01 00:00:00:000000 Z", 0),
        (b"2030-01-01 00:00:00:000001 Z", 1),
        (b"2030-01-01 23:59:59:999000 Z", DAY_MS - 1),
        (b"2030-01-01 23:59:59:999001 Z", DAY_MS),
    ],
)
def test_a_time_of_nservicebus_is_rounded_up(raw: bytes, ahead_ms: int) -> None:
    assert parse_nservicebus_ms(raw) == NEW_YEAR_2030_MS + ahead_ms


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"2030-01-01T00:00:00:000000 Z",
        b"2030-01-01 00:00:00.000000 Z",
        b"2030-01-01 00:00:00:000000Z",
        b"2030-01-01 00:00:00:000000 Z\n",
        b"2030-01-01 00:00:00:000 Z",
        b"2030-01-01 00,00,00,000000 Z",
        b"2030-01-01 24:00:00:000000 Z",
        b"2030-01-01 23:59:60:000000 Z",
        b"2030-01-01 00:00:00:000000 +00:00",
        b"1893456000000",
    ],
)
def test_any_other_time_is_not_one_of_nservicebus(raw: bytes) -> None:
    with pytest.raises(ValueError, match="expected a time as NServiceBus writes it"):
        parse_nservicebus_ms(raw)


def test_a_day_that_does_not_exist_is_told_for_nservicebus_too() -> None:
    with pytest.raises(ValueError, match="no such date"):
        parse_nservicebus_ms(b"2030-02-29 00:00:00:000000 Z")

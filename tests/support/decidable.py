"""Headers, contents and times of records, and rules, of every kind that a decision depends on; for property tests."""

from dataclasses import replace

from hypothesis import strategies as st

from index.protocol.headers import PRESETS, Alias, HeaderRole, Unit
from index.rules.retrying import Retry
from index.rules.rules import Rules, TargetRule
from index.rules.unreadable import examined
from sidecar.engine.intake.deciding import PACKED_BYTES

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
PLAIN = Rules("d", default_target="t", allowed_targets=("t*",))
RETRY = Retry(first_ms=700, factor=1_700, max_ms=60_000, jitter=250, attempts=8, dead_letter="t.dead")
_EVERY_ALIAS = (
    *(alias for preset in PRESETS.values() for alias in preset),
    *(
        Alias(f"{role}-{unit}", role, unit)
        for role in (HeaderRole.AT, HeaderRole.AFTER)
        for unit in (Unit.MS, Unit.S, Unit.US)
    ),
    Alias("late-s", HeaderRole.EXPIRE, Unit.S),
    Alias("late-ms", HeaderRole.EXPIRE, Unit.MS),
    Alias("after-iso", HeaderRole.AFTER, Unit.ISO8601),
)
RULES = [
    PLAIN,
    replace(PLAIN, default_target=""),
    replace(PLAIN, max_delay_ms=HOUR_MS),
    replace(PLAIN, aliases=_EVERY_ALIAS),
    replace(PLAIN, require_time=True),
    replace(PLAIN, delay_ms=5_000),
    replace(PLAIN, recurring=True, ignores_unknown=True),
    replace(PLAIN, target_rules=(TargetRule("t1", max_delay_ms=60_000), TargetRule("t2", enabled=False))),
    replace(PLAIN, retry=RETRY),
    replace(PLAIN, retry=RETRY._replace(jitter=0), require_time=True, default_target=""),
    replace(PLAIN, retry=RETRY, delay_ms=5_000, max_delay_ms=HOUR_MS, target_rules=(TargetRule("t2", enabled=False),)),
    replace(PLAIN, enabled=False),
    replace(PLAIN, at_once=True),
    Rules("d", default_target="t", allowed_targets=("t*",), version=2),
]

_DURATIONS = [b"0", b"5000", b"10s", b"500ms", b"36h", b"7d", b"PT15M", b"P1D", b"PT1H30M", b"PT0.5S", b"P2W", b"P1M"]
_DURATIONS += [
    b"PT",
    b"P",
    b"15 m",
    b"-1",
    b"1h30m",
    b"9223372036854775807",
    b"999999999999999999d",
    b"5x",
    b"ms",
    b"PTS",
]
_INSTANTS = [b"2027-01-15T08:00:00Z", b"2027-01-15t08:00:00.0001z", b"2027-01-15T10:00:00.123456789+02:00"]
_INSTANTS += [b"2028-02-29T23:59:59-23:59", b"2027-02-29T00:00:00Z", b"1969-12-31T23:59:59Z", b"2027-01-15T08:00:60Z"]
_INSTANTS += [b"2027-01-15 08:00:00Z", b"2027-01-15T08:00:00", b"2027-13-15T08:00:00Z", b"2027-01-15T24:00:00Z"]
_INSTANTS += [
    b"2027-01-15T08:00:00.Z",
    b"2027-01-15T08:00:00.1234567890Z",
    b"2027-01-15T08:00:00+24:00",
    b"1970-01-01T00:00:00Z",
]
_NUMBERS = [b"0", b"1", b"-1", b"999999999", b"1000000000", b"1800000000", b"99999999999", b"100000000000"]
_NUMBERS += [b"%d" % (NOW_MS + ahead) for ahead in (-5, 0, 1, 999, 1_000, 1_001, 60_001, HOUR_MS, HOUR_MS + 1)]
_NUMBERS += [b"0000000000005", b"1800000000000000", b"9223372036854775807", b"9223372036854775808", b"1" * 30, b"1.5"]
_NUMBERS += [b"", b"\xd9\xa1", b" 1", b"1_0"]
_VALUES = {
    "deliver-at": _NUMBERS + _INSTANTS,
    "Deliver-At": _NUMBERS[-6:],
    "deliver-after": _DURATIONS,
    "deliver-to": [b"t", b"t1", b"t2", b"x", b"", b"d", b"__t", b"t\xff", b"t.rejected"],
    "deliver-key": [b"", b"key", bytes(200)],
    "deliver-partition": [b"0", b"7", b"2147483647", b"2147483648", b"-1", b""],
    "deliver-id": [b"", b"order 7", bytes(256), bytes(257)],
    "deliver-expire-after": _DURATIONS,
    "deliver-cancel": [b"order 7"],
    "deliver-replace": [b"true"],
    "deliver-move": [b"order 7"],
    "deliver-every": [b"10s"],
    "deliver-att": [b"1"],
    "delay-hops": [b"1", b"16"],
    "cesium-delay-ms": _DURATIONS,
    "scheduler-epoch": [b"1800000000"],
    "schedule_source_type": [b"schedule", b"cancel"],
    "X-Timebridge-When": _INSTANTS,
    "NServiceBus.DeliverAt": [each.replace(b"T", b" ") for each in _INSTANTS] + [b"2027-01-15 08:00:00:000001 Z"],
    "x-delay": _DURATIONS,
    "at-ms": _NUMBERS,
    "at-us": _NUMBERS,
    "after-s": _DURATIONS,
    "after-iso": _DURATIONS,
    "late-s": _DURATIONS,
    "late-ms": _DURATIONS,
    "delay-attempt": [b"0", b"1", b"02", b"6", b"7", b"8", b"999", b"1000", b"1001", b"-1", b"x"],
    "Delay-Attempt": [b"3"],
    "delay-target": [b"t", b"t1", b"t2", b"x", b"", b"d", b"t.dead"],
    "deliver-attempts-max": [b"1", b"3", b"0", b"1000", b"1001"],
    "delay-attempts-exhausted": [b"8"],
    "trace": [b"", b"1", bytes(127), bytes(128), bytes(20_000)],
    "\N{SNOWMAN}": [b"1"],
    "a\0b": [b"1"],
    "\ud800": [b"1"],
    "n" * 300: [b"1"],
    "": [b""],
}
_header = st.sampled_from(sorted(_VALUES)).flatmap(
    lambda name: st.tuples(st.just(name), st.none() | st.sampled_from(_VALUES[name]) | st.binary(max_size=20))
)
_some_headers = st.lists(_header, max_size=4)
_retried_headers = st.builds(
    lambda attempt, more: [("delay-attempt", b"%d" % attempt), *more], st.integers(0, 9), st.lists(_header, max_size=2)
)
_common_headers = st.builds(
    lambda due, more: [("deliver-at", b"%d" % due), *more],
    st.integers(NOW_MS - 9_000, NOW_MS + 2 * HOUR_MS),
    st.lists(st.tuples(st.sampled_from(["trace", "x", "y"]), st.binary(max_size=200)), max_size=3),
)
_unreadable = st.just(examined(b"\x02\x02\xff\x02x", None))
READABLE = _some_headers | _common_headers | _retried_headers
HEADERS = READABLE | st.just(()) | _unreadable
CONTENTS = st.none() | st.binary(max_size=300) | st.just(bytes(PACKED_BYTES - 100)) | st.just(bytes(PACKED_BYTES))
TIMES = st.just(NOW_MS) | st.sampled_from([-1, 0, 2**63 - 1, NOW_MS - HOUR_MS])

"""Random and hostile records: decisions, checked against a second, plain reading of the protocol."""

import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import index
from index.protocol.headers import PRESETS, Headers
from index.protocol.schedule import NO_EXPIRY
from index.protocol.times import INT64_MAX
from index.rules.rules import BY_KEY, KEEP_KEY, Reason, Rejection, Rules, Schedule
from index.rules.rules_stored import KNOWN_VERSIONS

HOUR_MS = 3_600_000
NOON_MS = 1_767_268_800_000

RULES = Rules(
    topic="orders.delay",
    default_target="orders",
    allowed_targets=("orders.*", "billing"),
    max_delay_ms=7 * 24 * HOUR_MS,
)

_TIMES = {
    b"1767272400000": NOON_MS + HOUR_MS,
    b"0": 0,
    b"978307200000": 978_307_200_000,
    b"2026-01-01T12:00:00Z": NOON_MS,
}
_DELAYS = {b"0": 0, b"PT1S": 1000, b"5": 5, b"P8D": 8 * 24 * HOUR_MS, b"15m": HOUR_MS // 4}
_SECONDS = (b"1767272400", b"99999999999")
_OK_TARGETS = (b"orders", b"orders.eu", b"billing")
_values: dict[str, list[bytes | None]] = {
    "deliver-at": [*_TIMES, *_SECONDS, b"x", None],
    "deliver-after": [*_DELAYS, b"P1M", b"", None],
    "deliver-to": [*_OK_TARGETS, b"payments", b"orders.delay", b"__x", b"", None],
    "deliver-key": [b"k", b"", None],
    "deliver-partition": [b"0", b"12", b"99999999999", b"x", None],
    "deliver-id": [b"", b"i", b"x" * 257, None],
    "deliver-expire-after": [*_DELAYS, b"soon", None],
    "trace": [b"t", None],
    "deliver-att": [b"1", None],
    "deliver-every": [b"1h", None],
}
_UNKNOWN = {"deliver-att", "deliver-every"}
_NULLABLE = {"deliver-at", "deliver-after", "deliver-expire-after"}
_header = st.sampled_from(sorted(_values)).flatmap(
    lambda name: st.tuples(st.sampled_from([name, name, name.title()]), st.sampled_from(_values[name]))
)


def _as_of_now(headers: Headers) -> Headers:
    """Return the headers with names in lower case, without nulls that mean 'no value'."""
    plain = [(name.lower(), raw) for name, raw in headers]
    return [(name, raw) for name, raw in plain if raw is not None or name not in _NULLABLE]


def _as_of_before(headers: Headers) -> Headers:
    """Return the headers as the rules of 0.1.0 read them: known names only, and short delays unreadable."""
    known = [(name, raw) for name, raw in headers if name == name.lower() and name not in _UNKNOWN]
    return [(name, b"?" if raw == b"15m" else raw) for name, raw in known]


def _naive(headers: Headers, timestamp_ms: int, max_delay_ms: int) -> Schedule | Reason:  # noqa: C901, PLR0912
    given: dict[str, list[bytes | None]] = {}
    for name, raw in headers:
        given.setdefault(name, []).append(raw)
    to = given.pop("deliver-to", [])
    given.pop("trace", None)
    unknown = [given.pop(name) for name in _UNKNOWN if name in given]
    if any(len(raws) > 1 for raws in given.values()) or len(set(to)) != len(to):
        return Reason.AMBIGUOUS_HEADER
    value = {name: raws[0] for name, raws in given.items()}
    when, delay = value.get("deliver-at"), value.get("deliver-after")
    partition = value.get("deliver-partition")
    if unknown:
        return Reason.INVALID_SCHEDULE
    if "deliver-at" in value and when not in _TIMES and when not in _SECONDS:
        return Reason.INVALID_SCHEDULE
    if "deliver-after" in value and delay not in _DELAYS:
        return Reason.INVALID_SCHEDULE
    if "deliver-partition" in value and partition not in (b"0", b"12"):
        return Reason.INVALID_SCHEDULE
    readable = {"deliver-id": (b"", b"i"), "deliver-expire-after": tuple(_DELAYS)}
    if any(name in value and value[name] not in good for name, good in readable.items()):
        return Reason.INVALID_SCHEDULE
    expire_after = value.get("deliver-expire-after")
    counted_from_timestamp = "deliver-after" in value if "deliver-at" not in value else max_delay_ms > 0
    if timestamp_ms < 0 and (counted_from_timestamp or ("deliver-after" in value and "deliver-at" not in value)):
        return Reason.INVALID_SCHEDULE
    if when in _SECONDS:
        return Reason.UNIT_SUSPECTED
    due_ms = 0
    if when is not None:
        due_ms = _TIMES[when]
    elif delay is not None:
        due_ms = timestamp_ms + _DELAYS[delay]
    if max_delay_ms and due_ms - timestamp_ms > max_delay_ms:
        return Reason.MAX_DELAY_EXCEEDED
    if any(raw not in _OK_TARGETS for raw in to):
        return Reason.TARGET_NOT_ALLOWED
    return Schedule(
        due_ms,
        tuple(raw.decode() for raw in to if raw is not None) or ("orders",),
        int(partition) if partition is not None else BY_KEY,
        value.get("deliver-key", KEEP_KEY),
        value.get("deliver-id"),
        "deliver-at" in value and "deliver-after" in value,
        NO_EXPIRY if expire_after is None else _DELAYS[expire_after],
    )


@given(
    headers=st.lists(_header, max_size=7),
    timestamp_ms=st.sampled_from([-1, 0, NOON_MS, NOON_MS + HOUR_MS]),
    max_delay_ms=st.sampled_from([0, 1, 7 * 24 * HOUR_MS]),
    version=st.sampled_from(KNOWN_VERSIONS),
)
def test_decisions_are_those_of_the_naive_reading(
    headers: list[tuple[str, bytes | None]], timestamp_ms: int, max_delay_ms: int, version: int
) -> None:
    rules = replace(RULES, max_delay_ms=max_delay_ms, version=version)
    seen = _as_of_before(headers) if rules.are_of_0_1_0 else _as_of_now(headers)
    expected = _naive(seen, timestamp_ms, max_delay_ms)
    decision = rules.decide(headers, timestamp_ms)
    assert (decision.reason if isinstance(decision, Rejection) else decision) == expected
    assert rules.decide(headers, timestamp_ms) == decision, "a second look must decide the same"


_ALL_ALIASES = replace(RULES, aliases=tuple(alias for aliases in PRESETS.values() for alias in aliases))
_any_name = st.sampled_from([*_values, *(alias.name for alias in _ALL_ALIASES.aliases)]) | st.text(max_size=10)


@given(
    headers=st.lists(
        st.tuples(_any_name, st.none() | st.binary(max_size=40) | st.from_regex(rb"[0-9PTZ:.-]{0,24}")), max_size=6
    ),
    timestamp_ms=st.integers(-1, INT64_MAX),
)
def test_whatever_the_headers_hold_a_decision_is_sound_and_repeatable(
    headers: list[tuple[str, bytes | None]], timestamp_ms: int
) -> None:
    decision = _ALL_ALIASES.decide(headers, timestamp_ms)
    assert decision == replace(_ALL_ALIASES).decide(headers, timestamp_ms), "fresh rules decide as used ones do"
    if isinstance(decision, Rejection):
        assert decision.message.isprintable()
        return
    assert isinstance(decision, Schedule)
    assert 0 <= decision.due_ms <= INT64_MAX
    assert decision.due_ms - timestamp_ms <= RULES.max_delay_ms
    assert BY_KEY <= decision.partition < 2**31
    assert len(set(decision.targets)) == len(decision.targets) > 0
    assert all(_ALL_ALIASES.allowed(target) for target in decision.targets)


def test_a_record_with_a_hundred_thousand_control_headers_is_decided_quickly() -> None:
    many: Headers = [("deliver-to", b"t%d" % number) for number in range(100_000)]
    repeated: Headers = [("deliver-at", b"1")] * 100_000
    started = time.process_time()
    decisions = [RULES.decide(headers, NOON_MS) for headers in (many, repeated)]
    # Quadratic work would take minutes.
    assert time.process_time() - started < 5
    assert [decision.reason for decision in decisions if isinstance(decision, Rejection)] == [
        Reason.TARGET_NOT_ALLOWED,
        Reason.AMBIGUOUS_HEADER,
    ]


def test_producers_cannot_make_the_memory_of_targets_grow() -> None:
    rules = replace(RULES, allowed_targets=("*",))

    def kept_bytes() -> int:
        # Not the peak, which counts threads that other tests have left behind.
        kept = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/index/*")])
        return sum(trace.size for trace in kept.traces)

    tracemalloc.start()
    try:
        for number in range(10_000):
            assert isinstance(rules.decide([("deliver-to", b"t%d" % number)], NOON_MS), Schedule)
        first_bytes = kept_bytes()
        for number in range(200):
            wide: Headers = [("deliver-to", b"w%d-%d" % (number, place)) for place in range(100)]
            assert isinstance(rules.decide(wide, NOON_MS), Schedule)
        most_bytes = max(first_bytes, kept_bytes())
    finally:
        tracemalloc.stop()
    # All targets of the first loop would take 2 MB, all of the second as much again.
    assert most_bytes < 1_500_000


def test_the_core_never_reads_a_clock() -> None:
    """A decision is taken again after a restart, so it must not depend on the time of the decision."""
    sources = {path.name: path.read_text() for path in Path(index.__file__).parent.rglob("*.py")}
    assert {"rules.py", "headers.py", "times.py", "targets.py", "released_headers.py"} <= sources.keys()
    clocks = ("import time\n", "from time ", ".now(", ".today(", ".utcnow(")
    assert [(name, clock) for name, source in sources.items() for clock in clocks if clock in source] == []

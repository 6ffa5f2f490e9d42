"""Decisions of the kernel: the same as Python's, or left to Python."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import example, given
from hypothesis import strategies as st

from index.named.names import hash_of
from index.protocol.headers import Alias, HeaderRole, Headers, Unit
from index.protocol.record import Record
from index.protocol.schedule import KEEP_KEY, Schedule
from index.rules.rule_history import RuleEpoch, RuleHistory
from index.rules.rules import Rules, TargetRule
from index.rules.unreadable import UnreadableHeaders
from sidecar.engine.intake.decided import Decided
from sidecar.engine.intake.deciding import NEVER, Deciding
from sidecar.engine.payload.packing import records_of
from sidecar.engine.payload.records import Packed, Scheduled
from sidecar.kafka.reading.tails import Fetch
from sidecar.kernel import common_form
from sidecar.kernel.choice import PYTHON, Kernel
from sidecar.kernel.common_form import CommonForm
from sidecar.process.host.budget import PayloadBudget
from snapshots.segments.rows import MAX_NAMES, RowPacker
from tests.support.decidable import CONTENTS, HEADERS, HOUR_MS, NOW_MS, PLAIN, RETRY, RULES, TIMES
from tests.support.kernel import native_kernel

NATIVE = native_kernel()

from sidecar.kernel import _deciding  # noqa: E402 -- only where it is compiled


@dataclass(frozen=True)
class Given:
    """A message, and the headers that were handed over."""

    at: Any
    given: Any = ()
    given_key: Any = b"k"
    given_value: Any = b"v"
    timestamp_ms: Any = NOW_MS
    failed: KafkaError | None = None

    def offset(self) -> Any:
        return self.at

    def error(self) -> KafkaError | None:
        return self.failed

    def key(self) -> Any:
        return self.given_key

    def value(self) -> Any:
        return self.given_value

    def timestamp(self) -> tuple[int, Any]:
        return 1, self.timestamp_ms


_end = KafkaError(KafkaError._PARTITION_EOF)


@st.composite
def _messages(draw: st.DrawFn) -> list[Given]:
    offset, found = draw(st.sampled_from([0, 95, 2**40])), []
    for _ in range(draw(st.integers(0, 8))):
        offset += draw(st.integers(1, 3))
        failed = draw(st.sampled_from([None] * 12 + [_end]))
        key = draw(st.none() | st.binary(max_size=200))
        found.append(Given(offset, draw(HEADERS), key, draw(CONTENTS), draw(TIMES), failed))
    return found


@st.composite
def _histories(draw: st.DrawFn) -> RuleHistory:
    rules = draw(st.lists(st.sampled_from(RULES), min_size=1, max_size=3))
    return RuleHistory(tuple(RuleEpoch(98 * number, each) for number, each in enumerate(rules)))


def _fetch(messages: Sequence[Given]) -> Fetch:
    return Fetch(cast("Sequence[Message]", messages), [message.given for message in messages])


def _fresh(kernel: Kernel, history: RuleHistory, room_bytes: int = 1 << 30, until_offset: int = NEVER) -> Deciding:
    budget = PayloadBudget(room_bytes)
    return Deciding(
        history, budget, now_ms=lambda: NOW_MS, soon_ms=1_000, until_offset=until_offset, native=kernel.decider
    )


def _plain(thing: Any) -> Any:
    """Return a comparable form: types by name, and a packer by its names."""
    if isinstance(thing, RowPacker):
        return tuple(thing.names)
    if isinstance(thing, UnreadableHeaders):
        return "unreadable", list(thing), thing.why
    if isinstance(thing, tuple | list):
        return (type(thing).__name__, *(_plain(part) for part in thing))
    return type(thing).__name__, thing


def _outcome(deciding: Deciding, fetches: Sequence[Fetch]) -> list[Any]:
    found = []
    for fetch in fetches:
        decided: Decided = deciding.decide(fetch)
        counts = decided.records, decided.both_times, decided.without_time, decided.resident_bytes
        found.append((_plain(decided.steps), decided.names, counts))
    return [*found, deciding.taken_bytes, deciding.has_ended]


@given(
    st.lists(_messages(), max_size=3),
    _histories(),
    st.sampled_from([1 << 30, 0, 900, 2_000]),
    st.sampled_from([NEVER, 0, 97, 101]),
)
@example([[Given(0, [("deliver-at", b"%d" % (NOW_MS + 5_000))])]], RuleHistory.beginning(0, PLAIN), 1 << 30, NEVER)
def test_it_decides_what_python_decides(
    fetches: list[list[Given]], history: RuleHistory, room_bytes: int, until_offset: int
) -> None:
    given_fetches = [_fetch(messages) for messages in fetches]
    outcomes = [
        _outcome(_fresh(kernel, history, room_bytes, until_offset), given_fetches) for kernel in (PYTHON, NATIVE)
    ]
    assert outcomes[0] == outcomes[1]


@pytest.fixture(params=[NOW_MS, NOW_MS + HOUR_MS], ids=["near", "far"])
def due(request: pytest.FixtureRequest) -> bytes:
    return b"%d" % request.param


def _taken(headers: Any, rules: Rules = PLAIN, **message: Any) -> bool:
    """Return whether the kernel decides the record itself."""
    decider = NATIVE.decider(rules, RowPacker(), (Scheduled, Packed))
    run: list[Any] = []
    return (
        decider is not None
        and decider.decide([Given(0, headers, **message)], [headers], 0, NEVER - 1, NOW_MS + 1_000, 1 << 30, run, {})[0]
        == len(run)
        == 1
    )


_COMMON: dict[str, Headers] = {
    "nothing": [],
    "an instant": [("deliver-at", b"2027-01-15T10:00:00.123+02:00")],
    "after a number": [("deliver-after", b"5000")],
    "after a duration": [("deliver-after", b"15m")],
    "after one of ISO 8601": [("deliver-after", b"PT15M")],
    "a target": [("deliver-after", b"5000"), ("deliver-to", b"t7")],
    "all at once": [
        ("deliver-after", b"5000"),
        ("deliver-key", None),
        ("deliver-partition", b"3"),
        ("deliver-id", b"7"),
        ("deliver-expire-after", b"1h"),
        ("trace", b"1"),
        ("trace", None),
    ],
}


@pytest.mark.parametrize("what", _COMMON)
def test_the_common_form_it_takes(what: str) -> None:
    assert _taken(_COMMON[what])
    assert _taken(tuple(_COMMON[what]), given_value=None, given_key=None)


def test_a_time_it_takes(due: bytes) -> None:
    assert _taken([("deliver-at", due)])
    assert _taken([("x-at", due)], replace(PLAIN, aliases=(Alias("x-at", HeaderRole.AT, Unit.MS),)))
    assert not _taken([("x-at", due)], replace(PLAIN, aliases=(Alias("x-at", HeaderRole.AT, Unit.S),)))


@pytest.mark.parametrize(
    ("headers", "takes"),
    [
        pytest.param([], True, id="the first attempt"),
        pytest.param([("delay-attempt", b"7"), ("delay-target", b"t1")], True, id="the last attempt"),
        pytest.param([("delay-attempt", b"3"), ("deliver-after", b"9s")], True, id="a wait of its own"),
        pytest.param([("delay-attempt", b"8")], False, id="no attempt left"),
        pytest.param([("delay-attempt", b"2"), ("deliver-attempts-max", b"2")], False, id="no attempt of its own left"),
        pytest.param([("delay-attempt", b"8"), ("deliver-attempts-max", b"9")], True, id="more attempts of its own"),
        pytest.param([("delay-attempt", b"1001")], False, id="too many"),
        pytest.param([("delay-attempt", b"1"), ("Delay-Attempt", b"1")], False, id="twice"),
    ],
)
def test_the_attempts_it_takes(headers: Headers, *, takes: bool) -> None:
    assert _taken(headers, replace(PLAIN, retry=RETRY)) is takes


def test_the_wait_of_each_attempt_has_the_jitter_of_its_offset() -> None:
    messages = [Given(number, [("delay-attempt", b"%d" % (number % 8))]) for number in range(400)]
    history = RuleHistory.beginning(0, replace(PLAIN, retry=RETRY))
    outcomes = [_outcome(_fresh(kernel, history), [_fetch(messages)]) for kernel in (PYTHON, NATIVE)]
    assert outcomes[0] == outcomes[1]


def test_rules_that_it_does_not_know_are_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules of a future version are left to Python, too."""
    assert CommonForm.of(replace(PLAIN, delay_ms=5)) is not None
    for rules in (replace(PLAIN, enabled=False), replace(PLAIN, at_once=True), Rules("d", version=2)):
        assert CommonForm.of(rules) is None
    for rules in (replace(PLAIN, spread_ms=5), replace(PLAIN, target_rules=(TargetRule("orders", spread_ms=5),))):
        assert CommonForm.of(rules) is None
    known = common_form.__dict__["_KNOWN"]
    monkeypatch.setattr(common_form, "_KNOWN", known - {"delay_ms"})
    assert CommonForm.of(PLAIN) is not None
    assert CommonForm.of(replace(PLAIN, delay_ms=5)) is None


def test_a_row_has_the_table_of_all_rows_of_its_partition() -> None:
    """Either kernel may have packed the row; neither packs a record that exceeds the table."""
    far = ("deliver-at", b"%d" % (NOW_MS + HOUR_MS))
    fetches = [
        _fetch([Given(number, [far, (f"h{number % 140}", None if number % 3 else b"")]) for number in range(600)]),
        _fetch(
            [Given(600 + number, [far, (f"h{number}", b"1"), *[("x", b"2")] * (number % 120)]) for number in range(300)]
        ),
    ]
    history = RuleHistory.beginning(0, PLAIN)
    outcomes = [_outcome(_fresh(kernel, history), fetches) for kernel in (PYTHON, NATIVE)]
    assert outcomes[0] == outcomes[1]
    deciding = _fresh(NATIVE, history)
    (run,) = deciding.decide(fetches[0]).steps
    assert isinstance(run, list)
    payloads = [payload for _, _, payload in run]
    (packer,) = {payload.packer for payload in payloads if isinstance(payload, Packed)}
    assert len(packer.names) == MAX_NAMES
    records = [Record(b"k", b"v", headers, NOW_MS) for headers in fetches[0].headers]
    assert records_of(payloads) == records


def test_names_beyond_what_is_remembered_are_asked_for_again() -> None:
    messages = [Given(number, [("deliver-after", b"5"), (f"h{number % 2_000}", b"1")]) for number in range(4_000)]
    history = RuleHistory.beginning(0, PLAIN)
    outcomes = [_outcome(_fresh(kernel, history), [_fetch(messages)]) for kernel in (PYTHON, NATIVE)]
    assert outcomes[0] == outcomes[1]


def test_targets_beyond_what_is_remembered_are_asked_for_again() -> None:
    messages = [Given(number, [("deliver-to", b"t%d" % (number % 5_000))]) for number in range(6_000)]
    history = RuleHistory.beginning(0, PLAIN)
    outcomes = [_outcome(_fresh(kernel, history), [_fetch(messages)]) for kernel in (PYTHON, NATIVE)]
    assert outcomes[0] == outcomes[1]


_ODD: tuple[Any, ...] = (
    None, True, 1.5, 2**63, -(2**63), "text", b"bytes", bytearray(b"x"), (), [], [None], [()], [("a", "b")],
    [(b"a", b"b")], [("a", b"b", b"c")], [["a", b"b"]], {"a": b"b"}, object(),
)  # fmt: skip


@given(st.sampled_from(["at", "given", "given_key", "given_value", "timestamp_ms"]), st.sampled_from(_ODD))
def test_whatever_a_message_holds_is_left_to_python_or_decided_alike(field: str, odd: Any) -> None:
    message = replace(Given(1, [("deliver-after", b"5000")]), **{field: odd})
    outcomes: list[Any] = []
    for kernel in (PYTHON, NATIVE):
        try:
            outcomes.append(_outcome(_fresh(kernel, RuleHistory.beginning(0, PLAIN)), [_fetch([message])]))
        except Exception as error:  # noqa: BLE001 -- both must raise the same error
            outcomes.append(repr(error))
    assert outcomes[0] == outcomes[1]


def test_it_makes_nothing_but_tuples() -> None:
    with pytest.raises(TypeError, match="are tuples"):
        _deciding.Decider(CommonForm(PLAIN), RowPacker(), hash_of, (Record, Schedule, Scheduled, list), KEEP_KEY)


def test_a_place_outside_of_a_fetch_is_none() -> None:
    decider = NATIVE.decider(PLAIN, RowPacker(), (Scheduled, Packed))
    assert decider is not None
    for start in (-1, 1, 2**62):
        assert decider.decide([Given(0)], [()], start, 9, 0, 1 << 30, [], {})[0] == start

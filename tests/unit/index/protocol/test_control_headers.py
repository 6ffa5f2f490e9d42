"""The headers of controls: their meaning, contradictions, and unreadable values."""

import pytest

from index.protocol.control_headers import control_of
from index.protocol.headers import HeaderRole, Headers
from index.protocol.schedule import AT_ONCE, Action, Control, Reason, Rejection, Schedule, due_ms_of, schedule_of
from index.rules.rules import Rules
from index.rules.rules_by_column import decide_alike
from index.rules.rules_stored import RULES_OF_0_1_0
from index.rules.targets import TargetRule

SAYS = {
    "deliver-at": HeaderRole.AT,
    "x-due": HeaderRole.AT,
    "deliver-id": HeaderRole.ID,
    "deliver-to": HeaderRole.TO,
    "order": HeaderRole.ID,
}.get


@pytest.mark.parametrize(
    ("headers", "control"),
    [
        ([("deliver-cancel", b"a")], Control(Action.CANCEL, b"a")),
        ([("Deliver-Cancel", b"")], Control(Action.CANCEL, b"")),
        ([("deliver-cancel", b"x" * 256), ("trace", b"1"), ("trace", None)], Control(Action.CANCEL, b"x" * 256)),
        ([("deliver-cancel", b"a"), ("deliver-if-due", b"1800000000000")], Control(Action.CANCEL, b"a", 1800000000000)),
        ([("deliver-cancel", b"a"), ("deliver-if-due", b"1970-01-01T00:00:01Z")], Control(Action.CANCEL, b"a", 1_000)),
        ([("deliver-id", b"a"), ("deliver-replace", b"true"), ("deliver-at", b"1")], Control(Action.REPLACE, b"a")),
        ([("deliver-replace", b"true"), ("order", b"7"), ("deliver-to", b"t")], Control(Action.REPLACE, b"7")),
        ([("deliver-move", b"a"), ("x-due", b"1"), ("trace", b"1")], Control(Action.MOVE, b"a")),
        ([("Deliver-Move", b"a"), ("deliver-at", b"1"), ("deliver-if-due", b"0")], Control(Action.MOVE, b"a", 0)),
    ],
)
def test_what_is_asked_for(headers: Headers, control: Control) -> None:
    assert control_of(headers, SAYS) == control


@pytest.mark.parametrize("headers", [[], [("trace", b"1")], [("deliver-id", b"a"), ("deliver-at", b"1")]])
def test_no_control(headers: Headers) -> None:
    assert control_of(headers, SAYS) is None


@pytest.mark.parametrize(
    ("headers", "reason", "message"),
    [
        (
            [("deliver-cancel", b"a"), ("DELIVER-CANCEL", b"a")],
            Reason.AMBIGUOUS_HEADER,
            "DELIVER-CANCEL: is given more",
        ),
        ([("deliver-cancel", b"a"), ("deliver-at", b"1")], Reason.AMBIGUOUS_HEADER, "deliver-cancel beside deliver-at"),
        ([("deliver-cancel", b"a"), ("x-due", b"1")], Reason.AMBIGUOUS_HEADER, "deliver-cancel beside x-due"),
        ([("deliver-cancel", b"a"), ("deliver-id", b"a")], Reason.AMBIGUOUS_HEADER, "beside deliver-id"),
        ([("deliver-cancel", b"a"), ("deliver-replace", b"true")], Reason.AMBIGUOUS_HEADER, "beside deliver-replace"),
        ([("deliver-cancel", None)], Reason.INVALID_SCHEDULE, "deliver-cancel null: a value is needed"),
        ([("deliver-cancel", b"x" * 257)], Reason.INVALID_SCHEDULE, "an id has up to 256 bytes"),
        ([("deliver-cancel", b"a"), ("deliver-if-due", b"soon")], Reason.INVALID_SCHEDULE, "deliver-if-due 'soon'"),
        ([("deliver-cancel", b"a"), ("deliver-if-due", b"1800000000")], Reason.UNIT_SUSPECTED, "looks like seconds"),
        ([("deliver-replace", b"true")], Reason.INVALID_SCHEDULE, "deliver-id says which schedule, and is missing"),
        ([("deliver-replace", b"yes"), ("deliver-id", b"a")], Reason.INVALID_SCHEDULE, "only 'true' is a value of it"),
        ([("deliver-replace", None), ("deliver-id", b"a")], Reason.INVALID_SCHEDULE, "deliver-replace null: only"),
        ([("deliver-if-due", b"1")], Reason.INVALID_SCHEDULE, "only beside deliver-cancel, deliver-replace or"),
        ([("deliver-move", b"a")], Reason.INVALID_SCHEDULE, "deliver-at or deliver-after says when"),
        ([("deliver-move", b"a"), ("deliver-at", None)], Reason.INVALID_SCHEDULE, "and is missing"),
        ([("deliver-move", b"a"), ("x-due", b"1"), ("deliver-to", b"t")], Reason.AMBIGUOUS_HEADER, "but its due time"),
        ([("deliver-move", b"a"), ("x-due", b"1"), ("order", b"a")], Reason.AMBIGUOUS_HEADER, "beside order"),
        ([("deliver-move", b"a"), ("x-due", b"1"), ("deliver-every", b"1s")], Reason.AMBIGUOUS_HEADER, "deliver-every"),
        ([("deliver-move", b"a"), ("deliver-replace", b"true")], Reason.AMBIGUOUS_HEADER, "beside deliver-replace"),
        (
            [("deliver-move", b"a"), ("deliver-cancel", b"a")],
            Reason.AMBIGUOUS_HEADER,
            "beside deliver-move",
        ),
        ([("deliver-move", None), ("x-due", b"1")], Reason.INVALID_SCHEDULE, "deliver-move null: a value is needed"),
    ],
)
def test_what_cannot_be_followed(headers: Headers, reason: Reason, message: str) -> None:
    rejection = control_of(headers, SAYS)
    assert isinstance(rejection, Rejection)
    assert rejection.reason == reason
    assert message in rejection.message


RULES = Rules("d", default_target="out", require_time=True)
REPLACES: Headers = [("Deliver-Replace", b"true"), ("deliver-id", b"a"), ("deliver-at", b"1800000000000")]


def test_what_cancels_is_no_schedule_and_needs_neither_target_nor_time() -> None:
    headers: Headers = [("Deliver-Cancel", b"a"), ("trace", None)]
    decision = Rules("d", require_time=True).decide(headers, 5)
    assert decision == Control(Action.CANCEL, b"a")
    assert (due_ms_of(decision), schedule_of(decision)) == (AT_ONCE, None)


def test_what_replaces_is_a_schedule_like_any_other() -> None:
    alone = RULES.decide(REPLACES[1:], 5)
    assert isinstance(alone, Schedule)
    decision = RULES.decide(REPLACES, 5)
    assert decision == Control(Action.REPLACE, b"a", schedule=alone)
    assert (due_ms_of(decision), schedule_of(decision)) == (alone.due_ms, alone)
    by_column = [[value] for _, value in REPLACES]
    assert decide_alike(RULES, [name for name, _ in REPLACES], by_column, [5], [1800000000000]) is None


@pytest.mark.parametrize(
    ("headers", "reason", "message"),
    [
        ([("deliver-cancel", b"a"), ("deliver-to", b"out")], Reason.AMBIGUOUS_HEADER, "beside deliver-to"),
        ([("deliver-cancel", b"a"), ("deliver-att", b"1")], Reason.INVALID_SCHEDULE, "there is no such header"),
        ([("deliver-cancel", None)], Reason.INVALID_SCHEDULE, "a value is needed"),
        ([*REPLACES, ("deliver-to", b"not-allowed")], Reason.TARGET_NOT_ALLOWED, "not-allowed"),
        ([("deliver-move", b"a"), ("deliver-att", b"1")], Reason.INVALID_SCHEDULE, "there is no such header"),
    ],
)
def test_a_control_is_rejected_as_a_whole(headers: Headers, reason: Reason, message: str) -> None:
    decision = RULES.decide(headers, 5)
    assert isinstance(decision, Rejection)
    assert decision.reason == reason
    assert message in decision.message


def test_controls_are_passed_over_by_the_rules_of_0_1_0() -> None:
    decision = Rules("d", default_target="out", version=RULES_OF_0_1_0).decide(REPLACES, 5)
    assert decision == Rules("d", default_target="out").decide(REPLACES[1:], 5)


def test_what_recurs_may_replace_others_and_what_cancels_does_not_recur() -> None:
    rules = Rules("d", default_target="out", recurring=True)
    every: Headers = [("Deliver-Every", b"1s")]
    recurs = rules.decide([*REPLACES, *every], 5)
    assert recurs == Control(Action.REPLACE, b"a", schedule=schedule_of(rules.decide([*REPLACES[1:], *every], 5)))
    assert schedule_of(recurs)
    contradicts = rules.decide([("deliver-cancel", b"a"), *every], 5)
    assert isinstance(contradicts, Rejection)
    assert contradicts.message == "deliver-cancel beside Deliver-Every: a record that cancels is no schedule"
    assert isinstance(rules.decide([("deliver-cancel", b"a"), ("deliver-every", None)], 5), Control)


def test_what_moves_is_no_schedule_and_says_when_another_is_due() -> None:
    headers: Headers = [("Deliver-Move", b"a"), ("deliver-after", b"PT1S")]
    decision = Rules("d", require_time=True).decide(headers, 1_800_000_000_000)
    assert decision == Control(Action.MOVE, b"a", due_ms=1_800_000_001_000)
    assert (due_ms_of(decision), schedule_of(decision)) == (1_800_000_001_000, None)


def test_a_schedule_cannot_be_moved_beyond_the_longest_delay_of_any_target() -> None:
    headers: Headers = [("deliver-move", b"a"), ("deliver-after", b"PT2S")]
    rejection = Rules("d", max_delay_ms=1_000).decide(headers, 1_800_000_000_000)
    assert isinstance(rejection, Rejection)
    assert rejection.reason == Reason.MAX_DELAY_EXCEEDED
    longer = (TargetRule("slow", max_delay_ms=2_000),)
    rules = Rules("d", max_delay_ms=1_000, allowed_targets=("slow",), target_rules=longer)
    assert isinstance(rules.decide(headers, 1_800_000_000_000), Control)
    unlimited = (TargetRule("slow", max_delay_ms=0),)
    rules = Rules("d", max_delay_ms=1_000, allowed_targets=("slow",), target_rules=unlimited)
    assert isinstance(rules.decide([*headers[:1], ("deliver-after", b"P9D")], 1_800_000_000_000), Control)


def test_what_is_wrong_with_the_time_of_a_move_is_told() -> None:
    rejection = RULES.decide([("deliver-move", b"a"), ("deliver-at", b"soon")], 1_800_000_000_000)
    assert isinstance(rejection, Rejection)
    assert "deliver-at 'soon'" in rejection.message

"""What the headers of controls ask for, and what of it contradicts or cannot be read."""

import pytest

from index.control_headers import control_of
from index.headers import Headers, Role
from index.receipts import Action, Control
from index.schedule import Reason, Rejection

SAYS = {"deliver-at": Role.AT, "x-due": Role.AT, "deliver-id": Role.ID, "deliver-to": Role.TO, "order": Role.ID}.get


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
        ([("deliver-if-due", b"1")], Reason.INVALID_SCHEDULE, "only beside deliver-cancel or deliver-replace"),
    ],
)
def test_what_cannot_be_followed(headers: Headers, reason: Reason, message: str) -> None:
    rejection = control_of(headers, SAYS)
    assert isinstance(rejection, Rejection)
    assert rejection.reason == reason
    assert message in rejection.message

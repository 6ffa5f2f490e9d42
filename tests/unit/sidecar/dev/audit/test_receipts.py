"""Effects of controls in the join of the auditor: each control has one receipt, and the records that it names stay."""

import json
from collections.abc import Sequence

import pytest

from sidecar.dev.audit import AuditedRecord, AuditReport
from sidecar.dev.audit.record import Header
from tests.support.audit_records import (
    AFTER,
    DELAY,
    NOW_MS,
    OTHER,
    SENT_MS,
    audited,
    counts,
    refused,
    released,
    sent,
)

ID: Header = ("deliver-id", b"a")
CANCEL: Header = ("deliver-cancel", b"a")
REPLACE: Header = ("deliver-replace", b"true")
IF_DUE: Header = ("deliver-if-due", b"%d" % (SENT_MS + 1_000))

FIRST = sent(0, ID, AFTER)
CANCELS = sent(1, CANCEL, ("correlation", b"7"))
REPLACES = sent(1, ID, REPLACE, AFTER)
MOVES = sent(1, ("deliver-move", b"a"), AFTER)
MOVED = sent(5, ID, AFTER, ("delay-source", MOVES.place.encode()))
DONE = {"cancel": "cancelled", "replace": "replaced", "move": "moved"}


def receipt(
    control: AuditedRecord,
    *cancelled: int,
    outcome: str = "",
    omitted: dict[str, int] | None = None,
    key: bytes = b"a",
    due_ms: int | None = None,
) -> AuditedRecord:
    """Make the receipt of a control that names these offsets."""
    named = {name for name, _ in control.headers}
    action = next((action for action in DONE if f"deliver-{action}" in named), "replace")
    said: dict[str, object] = {
        "action": action,
        "outcome": outcome or (DONE[action] if cancelled else "not-pending"),
        "cancelled": [{"offset": offset, "due": SENT_MS + 1_000} for offset in cancelled],
        "due": due_ms,
    }
    if omitted:
        said["omitted"] = omitted
    kept = () if omitted and "headers" in omitted else control.headers
    headers = [*kept, ("delay-source", control.place.encode())]
    return AuditedRecord(f"{DELAY}.receipts", 0, 0, key, json.dumps(said).encode(), headers, SENT_MS)


def test_what_is_cancelled_is_not_lost_and_its_control_is_answered() -> None:
    report = audited([FIRST, CANCELS], [receipt(CANCELS, 0)])
    assert counts(report) == {"sent": 2, "cancelled": 1, "answered": 1}
    assert report.ok
    assert report.summary().endswith("lost 0, cancelled 1, answered 1")


def test_what_is_moved_stays_and_what_takes_its_place_is_released() -> None:
    report = audited([FIRST, MOVES, MOVED], [receipt(MOVES, 0)], out=[released(MOVED)])
    assert counts(report) == {"sent": 3, "moved": 1, "answered": 1, "released_once": 1}
    assert report.ok, report.samples
    both = audited([FIRST, MOVES, MOVED], [receipt(MOVES, 0)], out=[released(FIRST), released(MOVED)])
    assert (both.duplicated, both.cancelled_but_left) == (1, 1)


def test_what_is_moved_and_not_written_again_is_found_missing_once_it_is_due() -> None:
    report = audited([FIRST, MOVES], [receipt(MOVES, 0, due_ms=NOW_MS)])
    assert counts(report) == {"sent": 2, "moved": 1, "answered": 1, "moved_to_nowhere": 1}
    assert not report.ok
    assert report.samples["moved_to_nowhere"] == [
        f"{MOVES.place}: moved by its receipt, and no record was written for it"
    ]
    # The transaction that wrote the record may be hidden behind an open one.
    waits = audited([FIRST, MOVES], [receipt(MOVES, 0, due_ms=NOW_MS + 1)])
    assert counts(waits) == {"sent": 2, "moved": 1, "answered": 1}
    # Neither a record of another producer nor a record made for another control takes its place.
    other = sent(5, ID, AFTER, ("delay-source", FIRST.place.encode()))
    assert audited([FIRST, MOVES, other], [receipt(MOVES, 0, due_ms=NOW_MS)]).moved_to_nowhere == 1


def test_a_control_behind_a_move_holds_for_what_it_appends() -> None:
    cancels = sent(3, CANCEL)
    origins = [FIRST, MOVES, cancels, MOVED]
    report = audited(origins, [receipt(MOVES, 0), receipt(cancels, 5)])
    assert counts(report) == {"sent": 4, "moved": 1, "cancelled": 1, "answered": 2}
    assert report.ok, report.samples
    # A control in front of the move may not name the record that the move makes.
    early = sent(0, CANCEL)
    wrong = audited([early, MOVES, MOVED], [receipt(early, 5), receipt(MOVES)])
    assert wrong.altered == 1


def test_of_several_moves_in_one_transaction_only_the_last_is_written() -> None:
    again, third = sent(2, *MOVES.headers), sent(3, *MOVES.headers)
    moved = sent(5, ID, AFTER, ("delay-source", third.place.encode()))
    told = [receipt(MOVES, 0), receipt(again, 1), receipt(third, 2)]
    report = audited([FIRST, MOVES, again, third, moved], told, out=[released(moved)])
    assert counts(report) == {"sent": 5, "moved": 1, "answered": 3, "released_once": 1}
    assert report.ok, report.samples
    # The router writes nothing when the last control cancels.
    cancels = sent(3, CANCEL)
    told = [receipt(MOVES, 0), receipt(again, 1), receipt(cancels, 2)]
    report = audited([FIRST, MOVES, again, cancels], told)
    assert counts(report) == {"sent": 4, "moved": 1, "answered": 3}
    assert report.ok, report.samples


def test_what_a_move_has_moved_is_written_or_taken_by_one_control_and_by_none_that_does_not_ask_for_it() -> None:
    again, cancels = sent(2, *MOVES.headers), sent(3, CANCEL)
    moved = sent(5, ID, AFTER, ("delay-source", MOVES.place.encode()))
    both = audited([FIRST, MOVES, cancels, moved], [receipt(MOVES, 0), receipt(cancels, 1)], out=[released(moved)])
    assert both.duplicated == 1
    twice = [receipt(MOVES, 0), receipt(again, 1, outcome="cancelled"), receipt(cancels, 1)]
    assert audited([FIRST, MOVES, again, cancels], twice).duplicated == 1
    other, early = sent(3, ("deliver-cancel", b"b")), sent(0, CANCEL)
    told = [receipt(MOVES, 0, due_ms=NOW_MS + 1), receipt(other, 1, key=b"b")]
    assert audited([FIRST, MOVES, other], told).altered == 1
    elsewhere = sent(3, CANCEL, ("deliver-if-due", b"%d" % SENT_MS))
    assert audited([FIRST, MOVES, elsewhere], [receipt(MOVES, 0), receipt(elsewhere, 1)]).altered == 1
    assert audited([early, MOVES], [receipt(early, 1), receipt(MOVES)]).altered == 2
    in_vain = audited([MOVES, cancels], [receipt(MOVES), receipt(cancels, 1)])
    assert in_vain.samples["altered"] == [
        f"{MOVES.place}: named by {cancels.place} for the schedule that it moves, but it moves none"
    ]
    only_cancels = sent(1, CANCEL)
    assert audited([FIRST, only_cancels, cancels], [receipt(only_cancels, 0), receipt(cancels, 1)]).altered == 1


def test_what_a_move_has_moved_counts_where_a_receipt_says_only_how_many() -> None:
    cancels = sent(3, CANCEL)
    brief = receipt(cancels, omitted={"cancelled": 1}, outcome="cancelled")
    report = audited([FIRST, MOVES, cancels], [receipt(MOVES, 0), brief])
    assert counts(report) == {"sent": 3, "moved": 1, "answered": 2}
    assert report.ok, report.samples


def test_what_could_not_be_moved_is_released_as_it_was() -> None:
    told = receipt(MOVES, outcome="not-moved")
    report = audited([FIRST, MOVES], [told], out=[released(FIRST)])
    assert counts(report) == {"sent": 2, "released_once": 1, "answered": 1}
    assert report.ok, report.samples
    assert audited([FIRST, MOVES], [told]).lost == 1
    assert audited([FIRST, CANCELS], [receipt(CANCELS, outcome="not-moved")], out=[released(FIRST)]).altered == 1


def test_a_move_whose_last_schedule_is_rejected_has_cancelled_the_others() -> None:
    last = sent(2, ID, AFTER)
    moves = sent(3, *MOVES.headers)
    told = receipt(moves, 0, outcome="cancelled")
    report = audited([FIRST, last, moves], [told], no=[refused(last)])
    assert counts(report) == {"sent": 3, "cancelled": 1, "rejected": 1, "answered": 1}
    assert report.ok, report.samples


def test_what_is_replaced_stays_and_what_replaces_it_is_released() -> None:
    report = audited([FIRST, REPLACES], [receipt(REPLACES, 0)], out=[released(REPLACES)])
    assert counts(report) == {"sent": 2, "replaced": 1, "released_once": 1}
    assert report.ok
    waits = audited([FIRST, REPLACES], [receipt(REPLACES, 0)], now_ms=SENT_MS)
    assert counts(waits) == {"sent": 2, "replaced": 1, "pending": 1}


def test_a_replacement_is_replaced_and_cancelled_as_any_record() -> None:
    again, cancels = sent(2, ID, REPLACE, AFTER), sent(3, CANCEL)
    receipts = [receipt(REPLACES, 0), receipt(again, 1), receipt(cancels, 2)]
    report = audited([FIRST, REPLACES, again, cancels], receipts)
    assert counts(report) == {"sent": 4, "replaced": 2, "cancelled": 1, "answered": 1}
    assert report.ok


def test_a_control_that_finds_nothing_has_a_receipt_and_names_nothing() -> None:
    report = audited([FIRST, CANCELS], [receipt(CANCELS)], out=[released(FIRST)])
    assert counts(report) == {"sent": 2, "released_once": 1, "answered": 1}
    assert counts(audited([FIRST, CANCELS], [receipt(CANCELS)])) == {"sent": 2, "lost": 1, "answered": 1}


def test_a_control_without_its_receipt_is_lost_even_where_its_own_schedule_waits_or_has_left() -> None:
    assert counts(audited([CANCELS], now_ms=SENT_MS)) == {"sent": 1, "lost": 1}
    assert counts(audited([CANCELS], now_ms=SENT_MS - 1)) == {"sent": 1, "pending": 1}
    assert counts(audited([REPLACES], now_ms=SENT_MS)) == {"sent": 1, "lost": 1}
    report = audited([REPLACES], out=[released(REPLACES)])
    assert counts(report) == {"sent": 1, "lost": 1}
    assert "a control with 0 receipts" in report.samples["lost"][0]


@pytest.mark.parametrize("control", [CANCELS, REPLACES], ids=["cancel", "replace"])
def test_a_control_that_is_rejected_has_no_receipt(control: AuditedRecord) -> None:
    assert counts(audited([control], no=[refused(control)])) == {"sent": 1, "rejected": 1}


def test_a_control_that_is_no_schedule_is_not_rejected_beside_its_receipt() -> None:
    report = audited([CANCELS], [receipt(CANCELS)], no=[refused(CANCELS)])
    assert counts(report) == {"sent": 1, "duplicated": 1, "cancelled_but_left": 1}
    late = audited([REPLACES], [receipt(REPLACES)], no=[refused(REPLACES)])
    assert counts(late) == {"sent": 1, "rejected": 1}


@pytest.mark.parametrize("left", [{"out": [released(FIRST)]}, {"no": [refused(FIRST)]}], ids=["released", "rejected"])
def test_what_has_left_although_a_receipt_names_it_is_a_count_of_its_own(
    left: dict[str, Sequence[AuditedRecord]],
) -> None:
    report = audited([FIRST, CANCELS], [receipt(CANCELS, 0)], **left)  # type: ignore[arg-type]
    assert counts(report) == {"sent": 2, "answered": 1, "duplicated": 1, "cancelled_but_left": 1}
    assert not report.ok
    assert report.samples["cancelled_but_left"] == ["d/0/0: has left, and is cancelled by a receipt"]
    assert report.summary().endswith("answered 1, cancelled but left 1")


def test_two_receipts_for_one_control_are_a_count_of_its_own() -> None:
    twice = audited([CANCELS], [receipt(CANCELS), receipt(CANCELS)])
    assert counts(twice) == {"sent": 1, "duplicated": 1, "answered_twice": 1}
    assert not twice.ok
    released_once = audited([REPLACES], [receipt(REPLACES)] * 3, out=[released(REPLACES)])
    assert counts(released_once) == {"sent": 1, "duplicated": 1, "answered_twice": 1}


def test_what_two_receipts_name_is_duplicated() -> None:
    again = sent(2, CANCEL)
    report = audited([FIRST, CANCELS, again], [receipt(CANCELS, 0), receipt(again, 0)])
    assert counts(report) == {"sent": 3, "duplicated": 1, "answered": 2}


def test_a_control_that_cancels_goes_to_no_target() -> None:
    report = audited([CANCELS], [receipt(CANCELS)], out=[released(CANCELS)])
    assert counts(report) == {"sent": 1, "duplicated": 1, "wrong_target": 1, "cancelled_but_left": 1}
    assert "wanted none" in report.samples["wrong_target"][0]
    assert not audited([CANCELS], out=[released(CANCELS, topic=OTHER)]).ok


def test_a_replacement_whose_condition_fails_is_no_schedule() -> None:
    control = sent(1, ID, REPLACE, IF_DUE, AFTER)
    for outcome in ("changed", "not-pending"):
        answer = receipt(control, outcome=outcome)
        assert counts(audited([control], [answer])) == {"sent": 1, "answered": 1}
        out = audited([control], [answer], out=[released(control)])
        assert counts(out) == {"sent": 1, "duplicated": 1, "cancelled_but_left": 1}
    in_time = audited([FIRST, control], [receipt(control, 0)], out=[released(control)])
    assert counts(in_time) == {"sent": 2, "replaced": 1, "released_once": 1}


def test_a_receipt_that_names_what_its_control_does_not_ask_for_shows() -> None:
    other, later = sent(0, ("deliver-id", b"b"), AFTER), sent(2, ID, AFTER)
    conditional = sent(1, CANCEL, ("deliver-if-due", b"5"))
    for origins, answer in (
        ([other, CANCELS], receipt(CANCELS, 0)),
        ([later, CANCELS], receipt(CANCELS, 2)),
        ([FIRST, conditional], receipt(conditional, 0)),
        ([sent(0, CANCEL), CANCELS], receipt(CANCELS, 0)),
    ):
        report = audited(origins, [receipt(origins[0]), answer] if origins[0].headers[0] == CANCEL else [answer])
        assert report.altered == 1, report.samples
        assert not report.ok
    gone = audited([CANCELS], [receipt(CANCELS, 0)])
    assert counts(gone) == {"sent": 1, "answered": 1, "foreign": 1}


def test_an_id_and_a_time_by_names_unknown_here_are_believed() -> None:
    aliased = sent(0, ("their-id", b"a"), ("their-time", b"soon"))
    control = sent(1, CANCEL, IF_DUE)
    assert counts(audited([aliased, control], [receipt(control, 0)])) == {"sent": 2, "cancelled": 1, "answered": 1}
    replaces = sent(1, ("their-id", b"a"), REPLACE, AFTER)
    report = audited([aliased, replaces], [receipt(replaces, 0)], out=[released(replaces)])
    assert counts(report) == {"sent": 2, "replaced": 1, "released_once": 1}


GOOD = receipt(CANCELS, 0)


@pytest.mark.parametrize(
    "answer",
    [
        GOOD._replace(key=b"b"),
        GOOD._replace(headers=GOOD.headers[1:]),
        GOOD._replace(headers=[*GOOD.headers, ("more", b"1")]),
        receipt(CANCELS, 0, outcome="replaced"),
        receipt(CANCELS, 0, outcome="not-pending"),
        receipt(CANCELS, outcome="cancelled"),
        receipt(CANCELS, outcome="changed"),
        receipt(CANCELS, 0, omitted={"headers": 2})._replace(headers=GOOD.headers),
        GOOD._replace(value=(GOOD.value or b"").replace(b'"cancel"', b'"replace"')),
    ],
    ids=range(9),
)
def test_a_receipt_that_is_not_the_one_of_its_control_shows(answer: AuditedRecord) -> None:
    report = audited([FIRST, CANCELS], [answer])
    assert report.altered >= 1
    assert not report.ok


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"cancelled": [1]}'),
        b'{"action": 1, "outcome": [], "cancelled": []}',
        b'{"action": [], "outcome": 2, "cancelled": []}',
        b'{"action": "cancel", "outcome": [], "cancelled": []}',
        b'{"action": "cancel", "outcome": "cancelled", "cancelled": [{"offset": Infinity}]}',
        b'{"action": "cancel", "outcome": "cancelled", "cancelled": [], "omitted": 3}',
    ],
    ids=range(12),
)
def test_what_is_no_receipt_shows_and_ends_in_no_stack_trace(value: bytes | None) -> None:
    assert audited([CANCELS], [GOOD._replace(value=value)]).altered == 1


def test_a_receipt_of_no_control_is_foreign() -> None:
    assert audited([FIRST], [receipt(FIRST)], out=[released(FIRST)]).foreign == 1
    assert audited([], [GOOD]).foreign == 1
    assert audited([], [GOOD._replace(headers=[])]).foreign == 1


def test_a_receipt_without_the_headers_of_its_control_is_its_receipt() -> None:
    report = audited([FIRST, CANCELS], [receipt(CANCELS, 0, omitted={"headers": 2})])
    assert counts(report) == {"sent": 2, "cancelled": 1, "answered": 1}


def test_a_receipt_without_its_list_stands_for_what_is_nowhere_of_its_id_in_front_of_it() -> None:
    same = [sent(offset, ID, AFTER) for offset in range(4)]
    others = [sent(4, ("deliver-id", b"b"), AFTER), sent(6, ID, AFTER), same[1]._replace(partition=1)]
    control = sent(5, CANCEL)
    out = [released(record) for record in (same[0], *others)]

    def with_unnamed(count: int, *missing: AuditedRecord) -> AuditReport:
        answer = receipt(control, outcome="cancelled", omitted={"cancelled": count})
        return audited([*same, *others, control], [answer], out=[each for each in out if each not in missing])

    assert counts(with_unnamed(3)) == {"sent": 8, "released_once": 4, "cancelled": 3, "answered": 1}
    assert with_unnamed(2).altered == 1
    assert with_unnamed(4).altered == 1
    lost = released(others[2])
    assert counts(with_unnamed(3, lost)) == {"sent": 8, "released_once": 3, "lost": 1, "cancelled": 3, "answered": 1}

"""Headers of released and rejected records: no header of the user is lost, changed or moved."""

from hypothesis import given
from hypothesis import strategies as st

from index.protocol.headers import PRESETS, PROVENANCE, Headers
from index.protocol.released_headers import ReleasedHeaders, receipt_headers, rejected_headers
from index.rules.rules import AT_ONCE, Reason, Rejection, Rules

SOURCE = "orders.delay/3/"
RULES = Rules("orders.delay", "orders", aliases=PRESETS["karafka"])


def _released(headers: Headers, due_ms: int = 9_000, deliver_id: bytes | None = None) -> Headers:
    return ReleasedHeaders(RULES.stripped, SOURCE).of(headers, due_ms, 42, 5_000, deliver_id)


def test_a_released_record_keeps_its_own_headers_and_says_where_it_waited() -> None:
    came: Headers = [
        ("trace", b"1"),
        ("deliver-at", b"9000"),
        ("null", None),
        ("empty", b""),
        ("deliver-tomorrow", b"?"),
        ("trace", b"2"),
        ("schedule_target_epoch", b"9"),
        ("schedule_schema_version", b"1.0.0"),
        ("trace", b"1"),
    ]
    assert _released(came) == [
        ("trace", b"1"),
        ("null", None),
        ("empty", b""),
        ("trace", b"2"),
        ("trace", b"1"),
        ("delay-due", b"9000"),
        ("delay-source", b"orders.delay/3/42"),
        ("delay-source-timestamp", b"5000"),
    ]


def test_provenance_that_came_in_is_dropped_every_one_of_it() -> None:
    forged = [(name, b"forged") for name in sorted(PROVENANCE)] * 2
    released = _released([*forged, ("delay-error", b"of an earlier life"), *forged])
    assert released == [("delay-error", b"of an earlier life"), *_released([])]
    assert "delay-id" not in dict(released)


def test_the_id_is_kept_where_one_was_given_even_an_empty_one() -> None:
    assert _released([("deliver-id", b"")], deliver_id=b"")[-1] == ("delay-id", b"")
    assert _released([("deliver-id", b"\xff\x00")], deliver_id=b"\xff\x00")[-1] == ("delay-id", b"\xff\x00")


def test_a_record_that_routers_pass_on_without_a_time_counts_how_often() -> None:
    """The count ends a loop of delay topics that deliver to each other (test_rules.py tests that end)."""
    headers: Headers = [("trace", b"1")]
    for hops in range(4):
        headers = _released(headers, due_ms=AT_ONCE)
        assert [raw for name, raw in headers if name == "delay-hops"] == ([b"%d" % hops] if hops else [])
    again = _released([*headers, ("deliver-after", b"5")])
    assert "delay-hops" not in dict(again), "an application has scheduled it again, which may go on for ever"
    assert "delay-hops" not in dict(_released([("delay-hops", b"7")], due_ms=AT_ONCE)), "no router has released it"
    assert dict(_released([("delay-source", b"a/0/1"), ("delay-hops", b"?")], due_ms=AT_ONCE))["delay-hops"] == b"1"


def test_without_a_time_header_the_record_was_due_at_its_timestamp() -> None:
    assert dict(_released([], due_ms=AT_ONCE))["delay-due"] == b"5000"


def test_without_time_and_timestamp_the_due_time_is_the_epoch() -> None:
    headers = dict(ReleasedHeaders(RULES.stripped, SOURCE).of([], AT_ONCE, 42, -1, None))
    assert headers == {"delay-due": b"0", "delay-source": b"orders.delay/3/42", "delay-source-timestamp": b"-1"}


def test_records_that_share_numbers_share_no_headers_of_their_own() -> None:
    headers = ReleasedHeaders(RULES.stripped, SOURCE)
    for offset in range(10_000):
        due_ms, timestamp_ms = offset // 2, offset // 3
        assert headers.of([], due_ms + 1, offset, timestamp_ms, None) == [
            ("delay-due", b"%d" % (due_ms + 1)),
            ("delay-source", b"orders.delay/3/%d" % offset),
            ("delay-source-timestamp", b"%d" % timestamp_ms),
        ]


def test_a_due_time_in_the_past_keeps_its_own_value() -> None:
    assert dict(_released([], due_ms=1))["delay-due"] == b"1"


def test_a_rejected_record_keeps_every_header_and_ours_come_last() -> None:
    came: Headers = [("deliver-at", None), ("delay-error", b"older"), ("trace", b""), ("delay-source", b"a/0/1")]
    rejection = Rejection(Reason.INVALID_SCHEDULE, "deliver-at null: a value is needed")
    assert rejected_headers(came, rejection, SOURCE + "42") == [
        *came,
        ("delay-error", b"INVALID_SCHEDULE"),
        ("delay-error-message", b"deliver-at null: a value is needed"),
        ("delay-source", b"orders.delay/3/42"),
    ]
    assert len(rejected_headers(None, rejection, SOURCE + "42")) == 3


def test_a_receipt_has_every_header_of_its_control_and_where_that_lies() -> None:
    came: Headers = [("deliver-cancel", b"order-7"), ("correlation-id", b"1"), ("delay-source", b"a/0/1")]
    assert receipt_headers(came, SOURCE + "42") == [*came, ("delay-source", b"orders.delay/3/42")]


_names = st.sampled_from([*sorted(PROVENANCE), "deliver-to", "deliver-", "schedule_target_key", "trace", "", "delay-"])
_headers = st.lists(st.tuples(_names | st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=12)


@given(came=_headers, deliver_id=st.none() | st.binary(max_size=8))
def test_user_headers_are_a_prefix_in_their_order_and_the_rest_is_ours(
    came: list[tuple[str, bytes | None]], deliver_id: bytes | None
) -> None:
    before = list(came)
    released = _released(came, deliver_id=deliver_id)
    kept = [
        header
        for header in came
        if not header[0].lower().startswith(("deliver-", "schedule_target_")) and header[0].lower() not in PROVENANCE
    ]
    ours = 3 if deliver_id is None else 4
    assert released[: len(kept)] == kept
    assert len(released) == len(kept) + ours
    assert {name for name, _ in released[len(kept) :]} <= PROVENANCE
    assert came == before

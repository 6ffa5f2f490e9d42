"""Effects of controls that cancel by query in the join of the auditor: what matches in front of one stays."""

import json
from collections.abc import Mapping

import pytest

from sidecar.dev.audit import AuditedRecord
from sidecar.dev.audit.where import AuditedWhere
from tests.support.audit_records import AFTER, DELAY, SENT_MS, audited, counts, refused, released, sent

CUSTOMER = ("customer", b"7")
HEADER = {"header": {"name": "customer", "value": "7"}}


def asks(offset: int, where: Mapping[str, object]) -> AuditedRecord:
    return sent(offset, ("deliver-cancel-where", json.dumps(where).encode()))


def answer(
    query: AuditedRecord, *behind: int, matched: int | None, outcome: str = "cancelled-where", key: bytes | None = None
) -> AuditedRecord:
    """Make the receipt of a query that names these offsets behind it."""
    cancelled = [{"offset": offset, "due": SENT_MS + 1_000} for offset in behind]
    said = {"action": "cancel-where", "outcome": outcome, "cancelled": cancelled, "due": None, "matched": matched}
    headers = [*query.headers, ("delay-source", query.place.encode())]
    return AuditedRecord(f"{DELAY}.receipts", 0, 0, key, json.dumps(said).encode(), headers, SENT_MS)


FIRST, OTHER, QUERY, BEHIND = sent(0, CUSTOMER, AFTER), sent(1, AFTER), asks(2, HEADER), sent(3, CUSTOMER, AFTER)
ALL = [FIRST, OTHER, QUERY, BEHIND]
LEFT = [released(OTHER), released(BEHIND)]


@pytest.mark.parametrize("matched", [1, None])
def test_what_matches_in_front_of_a_query_is_cancelled(matched: int | None) -> None:
    report = audited(ALL, [answer(QUERY, matched=matched)], out=LEFT)
    assert counts(report) == {"sent": 4, "cancelled": 1, "answered": 1, "released_once": 2}
    assert report.ok


def test_what_left_before_the_query_is_released() -> None:
    report = audited(ALL, [answer(QUERY, matched=0)], out=[released(FIRST), *LEFT])
    assert counts(report) == {"sent": 4, "answered": 1, "released_once": 3}
    assert report.ok


@pytest.mark.parametrize(("matched", "out"), [(1, [released(FIRST), *LEFT]), (0, LEFT), (2, LEFT)])
def test_another_number_than_the_receipt_tells_is_noticed(matched: int, out: list[AuditedRecord]) -> None:
    report = audited(ALL, [answer(QUERY, matched=matched)], out=out)
    assert report.altered == 1
    assert not report.ok


def test_a_query_without_a_receipt_has_cancelled_nothing() -> None:
    report = audited(ALL, out=LEFT)
    assert counts(report) == {"sent": 4, "lost": 2, "released_once": 2}
    rejected = audited(ALL, out=[released(FIRST), *LEFT], no=[refused(QUERY)])
    assert counts(rejected) == {"sent": 4, "rejected": 1, "released_once": 3}


def test_a_record_that_does_not_match_is_lost_all_the_same() -> None:
    report = audited(ALL, [answer(QUERY, matched=1)], out=LEFT[1:])
    assert counts(report) == {"sent": 4, "cancelled": 1, "answered": 1, "released_once": 1, "lost": 1}


def test_of_two_queries_the_first_counts_a_record() -> None:
    again = asks(4, HEADER)
    records = [*ALL, again]
    receipts = [answer(again, matched=1), answer(QUERY, matched=1)]
    report = audited(records, receipts, out=LEFT[:1])
    assert counts(report) == {"sent": 5, "cancelled": 2, "answered": 2, "released_once": 1}
    assert report.ok


def test_an_occurrence_behind_the_query_is_named() -> None:
    every = sent(0, CUSTOMER, ("deliver-every", b"1000"))
    following = sent(3, CUSTOMER, ("deliver-every", b"1000"), ("deliver-series", b"0 2 %d x" % (SENT_MS + 2_000)))
    report = audited([every, QUERY, following], [answer(QUERY, 3, matched=1)], out=[released(every)])
    assert counts(report) == {"sent": 3, "cancelled": 1, "answered": 1, "released_once": 1}
    assert report.ok
    unasked = audited([every, QUERY, BEHIND], [answer(QUERY, 3, matched=1)], out=[released(every)])
    assert unasked.altered == 1


def test_receipts_of_another_kind_are_no_answers() -> None:
    for wrong in (answer(QUERY, matched=1, outcome="cancelled"), answer(QUERY, matched=1, key=b"a")):
        assert audited(ALL, [wrong], out=LEFT).altered == 1


@pytest.mark.parametrize(
    ("where", "matches"),
    [
        ({"target": "t"}, True),
        ({"target": "u"}, False),
        ({"due_from": 5_000}, True),
        ({"due_from": "1970-01-01T00:00:05.001Z"}, False),
        ({"due_to": 5_000}, False),
        ({"due_to": 5_001, "target": "t"}, True),
        ({"id_prefix": "é"}, True),
        ({"id_prefix": "b"}, False),
    ],
)
def test_every_field_counts(where: dict[str, object], matches: bool) -> None:
    found = AuditedWhere.of(json.dumps(where).encode())
    assert found is not None
    assert found.matches(("s", "t"), 5_000, 9, "éa".encode(), ()) is matches
    assert found.matches(("s", "t"), 0, 5_000, "éa".encode(), ()) is matches


@pytest.mark.parametrize("raw", [None, b"", b"[]", b"7", b'{"header": {"name": "a"}}', b'{"due_to": "soon"}', b"\xff"])
def test_a_predicate_that_nobody_can_follow_is_none(raw: bytes | None) -> None:
    assert AuditedWhere.of(raw) is None

"""Headers that no client passes on unchanged: they are kept whole, and decided the same at every reading."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import ConfigError
from index.protocol.headers import Headers
from index.protocol.record import Record
from index.protocol.schedule import Reason, Rejection, Schedule
from index.rules import unreadable
from index.rules.rules import Rules
from index.rules.rules_stored import RULES_OF_0_1_0
from index.rules.unreadable import (
    DELAY_UNREADABLE_HEADERS,
    MAX_HEADERS,
    UnreadableHeaders,
    are_plain,
    as_accepted,
    count_headers,
    decide,
    decode_headers,
    examined,
)
from sidecar.kernel import librdkafka
from tests.wire.batch import WireHeader, encode_headers

RULES = Rules(topic="d", default_target="t")
BEFORE = Rules(topic="d", default_target="t", version=RULES_OF_0_1_0)
NOW_MS = 1_800_000_000_000

_headers = st.lists(st.tuples(st.binary(max_size=80), st.none() | st.binary(max_size=80)), max_size=5)


def record(headers: Headers) -> Record:
    return Record(b"k", b"v", headers, NOW_MS)


@given(_headers)
def test_all_bytes_of_all_headers_are_kept(headers: list[WireHeader]) -> None:
    raw = encode_headers(headers)
    assert decode_headers(raw) == headers
    found = examined(raw, None)
    if isinstance(found, UnreadableHeaders):
        assert found[-1] == (DELAY_UNREADABLE_HEADERS, raw)
        assert all(are_plain([header]) for header in found[:-1])
    else:
        assert [(name.encode(), content) for name, content in found] == headers
        assert are_plain(found)


@given(st.lists(st.tuples(st.text(max_size=80), st.none() | st.binary(max_size=80)), max_size=5))
def test_headers_are_encoded_as_in_a_log(headers: list[tuple[str, bytes | None]]) -> None:
    as_bytes = [(name.encode(), content) for name, content in headers]
    assert unreadable.encode_headers(headers) == encode_headers(as_bytes)


@pytest.mark.parametrize(
    "name", [b"\xff", b"a\0b", b"\0", b"\xed\xa0\x80", b"\xc0\x80", "\N{REPLACEMENT CHARACTER}".encode()]
)
def test_a_name_that_is_no_text_is_rejected_and_the_others_stay(name: bytes) -> None:
    raw = encode_headers([(b"a", b"1"), (name, b"2"), (b"a", None)])
    found = examined(raw, ())
    assert list(found) == [("a", b"1"), ("a", None), (DELAY_UNREADABLE_HEADERS, raw)]
    decision, left = decide(RULES, record(found), 7)
    assert isinstance(decision, Rejection)
    assert decision.reason is Reason.UNREADABLE
    assert "is not text" in decision.message
    assert left.headers is found


def test_more_headers_than_are_read_are_kept_as_one() -> None:
    assert len(examined(encode_headers([(b"", None)] * MAX_HEADERS), None)) == MAX_HEADERS
    raw = encode_headers([(b"n", None)] * (MAX_HEADERS + 1))
    assert list(examined(raw, None)) == [(DELAY_UNREADABLE_HEADERS, raw)]
    assert not are_plain([("n", None)] * (MAX_HEADERS + 1))
    assert count_headers(raw) == MAX_HEADERS + 1


def test_what_was_decided_by_older_rules_is_decided_so_again() -> None:
    handed = [("deliver-at", b"%d" % (NOW_MS + 5)), ("trace", b"1")]
    found = examined(encode_headers([(b"deliver-at", handed[0][1]), (b"trace\0id", b"1")]), handed)
    decision, left = decide(BEFORE, record(found), 7)
    assert isinstance(decision, Schedule)
    assert decision.due_ms == NOW_MS + 5
    assert left.headers == as_accepted(record(found)).headers == handed
    # Older rules stopped the partition at headers that no client could pass on, so they left no decision to repeat.
    assert isinstance(decide(BEFORE, record(examined(encode_headers([(b"\xff", None)]), None)), 7)[0], Rejection)


@pytest.mark.parametrize(
    "raw", [b"", b"\x80", b"\2", b"\2\2", b"\2\2a", b"\2\2a\4b", b"\2\1\1", b"\0\0", b"\2\2a\1\1", b"\4\2a\1"]
)
def test_damaged_bytes_are_an_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"announced|no end|no name|behind"):
        decode_headers(raw)


def test_a_client_that_shows_a_cut_name_as_whole_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    librdkafka.check_client()
    monkeypatch.setattr(librdkafka, "_header_get", lambda *_: 0)
    with pytest.raises(
        ConfigError, match=r"header name with a NUL .* Install the confluent-kafka of requirements\.lock"
    ):
        librdkafka.check_client()

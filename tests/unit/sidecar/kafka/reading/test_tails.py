"""Headers of a fetch of the kernel: the cost of a record with more headers than are read."""

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from index.rules.unreadable import DELAY_UNREADABLE_HEADERS, MAX_HEADERS, UnreadableHeaders
from sidecar.kafka.reading.tails import RawFetch
from tests.wire.batch import encode_headers

if TYPE_CHECKING:
    from sidecar.kernel._fetching import Messages

HEADERS = 300_000
TIMES = 10
MOST_S = 0.02
"""Seconds of processor time for each record: ten times the usual, and a tenth of the time to decode all headers."""


def fetch_of(raw: bytes) -> RawFetch:
    handed = [SimpleNamespace(raw_headers=raw, is_hidden=False)] * TIMES
    return RawFetch(cast("Messages", SimpleNamespace(handed=lambda start, stop, _: handed[start:stop])))


def test_more_headers_than_are_read_cost_next_to_nothing() -> None:
    raw = encode_headers([(b"", None)] * HEADERS)
    fetch = fetch_of(raw)
    began_s = time.process_time()
    found = [headers for _, headers in fetch.some(0, TIMES)]
    assert time.process_time() - began_s < MOST_S * TIMES
    for headers in found:
        assert isinstance(headers, UnreadableHeaders)
        assert [*headers] == [(DELAY_UNREADABLE_HEADERS, raw)]
        assert headers.handed is None


def test_a_name_that_is_no_text_keeps_what_was_handed_over() -> None:
    raw = encode_headers([(b"a", b"1"), (b"b\0c", b"2")])
    [(_, headers)] = fetch_of(raw).some(0, 1)
    assert isinstance(headers, UnreadableHeaders)
    assert headers.handed == [("a", b"1"), ("b", b"2")]


def test_as_many_headers_as_are_read_are_handed_over() -> None:
    [(_, headers)] = fetch_of(encode_headers([(b"n", None)] * MAX_HEADERS)).some(0, 1)
    assert len(headers) == MAX_HEADERS
    assert not isinstance(headers, UnreadableHeaders)

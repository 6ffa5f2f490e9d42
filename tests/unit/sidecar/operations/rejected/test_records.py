"""Messages of a rejected topic: their reading, the headers that go back, and headers that nobody can make a router
write.
"""

from typing import Any, cast

import pytest
from confluent_kafka import Message

from index.errors import ConfigError, DelayRouterError
from index.protocol.headers import Headers
from index.protocol.record import Record
from index.protocol.released_headers import rejected_headers
from index.protocol.schedule import Reason, Rejection
from sidecar.config.model import Config
from sidecar.engine.payload.records import Refused
from sidecar.engine.release.shortening import shortened
from sidecar.operations.rejected import records
from sidecar.operations.rejected.records import MAX_MARKED, Mark, RejectedRecord, mark_headers, read
from sidecar.operations.rejected.selection import HeaderChanges, RejectedSelection, id_names

REJECTED_MS = 1_800_000_000_000
CAME: Headers = [("a", None), ("deliver-after", b"PT1H"), ("Deliver-Id", b"x"), ("a", b"")]
IDS = frozenset({"deliver-id"})


class Given:
    """A message of the rejected topic."""

    def __init__(self, headers: Headers | None) -> None:
        self.given = headers

    def topic(self) -> str:
        return "d.rejected"

    def partition(self) -> int:
        return 1

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return 1, REJECTED_MS

    def key(self) -> bytes:
        return b"k"

    def value(self) -> None:
        return None


@pytest.fixture(autouse=True)
def handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read headers from the double, and take them as complete where there are any."""
    monkeypatch.setattr(records, "readable_headers", lambda message: message.given or ())


def found(headers: Headers | None) -> RejectedRecord | Mark | None:
    return read(cast("Message", Given(headers)), IDS)


def rejected(came: Headers, reason: Reason = Reason.TARGET_UNKNOWN, message: str = "no") -> RejectedRecord:
    record = found(rejected_headers(came, Rejection(reason, message), "d/3/42"))
    assert isinstance(record, RejectedRecord)
    return record


def test_a_rejected_record_is_what_it_came_with_and_why() -> None:
    record = rejected(CAME)
    assert (record.place, str(record.source), record.code, record.message) == ((1, 7), "d/3/42", "TARGET_UNKNOWN", "no")
    assert (record.headers, record.key, record.value, record.deliver_id) == (CAME, b"k", None, b"x")
    assert (record.redriven, record.obstacle, record.rejected_ms) == (0, "", REJECTED_MS)


def test_each_round_counts_and_takes_nothing_else_along() -> None:
    record = rejected([*CAME, ("delay-error", b"forged"), ("Delay-Error-Message", b"forged")])
    for times in (1, 2, 3):
        headers = HeaderChanges().of(record)
        assert headers == [*CAME, ("delay-redriven", b"%d" % times)]
        record = rejected(headers)
        assert record.redriven == times


@pytest.mark.parametrize("forged", [b"", b"-1", b"many", None, b"1" * 30])
def test_a_count_that_nobody_here_has_written_is_none(forged: bytes | None) -> None:
    assert HeaderChanges().of(rejected([("delay-redriven", forged)])) == [("delay-redriven", b"1")]


@pytest.mark.parametrize("came", [[("delay-redriven-offsets", b"0-9")], [("delay-redriven-offsets", b"5")] * 2])
def test_no_producer_can_have_a_mark_written(came: Headers) -> None:
    assert rejected(came).headers == came


@pytest.mark.parametrize(
    "headers",
    [None, [], [("a", b"1")], CAME, [("delay-error", b"x"), ("delay-error-message", b""), ("delay-source", b"d/x/1")]],
)
def test_what_others_have_written_is_passed_over(headers: Headers | None) -> None:
    assert found(headers) is None


def test_a_mark_comes_back_as_it_was_written() -> None:
    for offsets in ({0}, {5, 6, 7}, {1, 3, 4, 9}, set(range(1_000)) - {500}):
        mark = found(mark_headers(offsets))
        assert mark == Mark(1, frozenset(offsets))


@pytest.mark.parametrize("raw", [b"", b"a", b"5-4", b"1,,2", b"1-", b"-1", b"0-%d" % MAX_MARKED, b"1 2"])
def test_a_mark_that_cannot_be_read_stops_everything(raw: bytes) -> None:
    with pytest.raises(DelayRouterError, match=r"d\.rejected/1/7"):
        found([("delay-redriven-offsets", raw)])


def test_what_is_not_whole_is_known() -> None:
    whole = Refused(Rejection(Reason.TARGET_UNKNOWN, "no"), Record(b"k", b"v" * 9, (), REJECTED_MS))
    cut = shortened(whole)
    assert cut is not None
    assert rejected([], message=cut.rejection.message).obstacle
    assert rejected([], Reason.UNREADABLE).obstacle
    assert not rejected([], message=f"{cut.rejection.message} and more").obstacle


def test_selections_are_of_one_delay_topic() -> None:
    record = rejected(CAME)
    for yes in (
        RejectedSelection("d"),
        RejectedSelection("d", frozenset({"TARGET_UNKNOWN", "EXPIRED"})),
        RejectedSelection("d", ids=frozenset({b"x", b"y"})),
        RejectedSelection("d", since_ms=REJECTED_MS, until_ms=REJECTED_MS + 1),
    ):
        assert yes.takes(record), yes
    for no in (
        RejectedSelection("other"),
        RejectedSelection("d", frozenset({"EXPIRED"})),
        RejectedSelection("d", ids=frozenset({b"y"})),
        RejectedSelection("d", since_ms=REJECTED_MS + 1),
        RejectedSelection("d", until_ms=REJECTED_MS),
    ):
        assert not no.takes(record), no
    with pytest.raises(ConfigError, match=r"NOPE is not a code.*TARGET_UNKNOWN"):
        RejectedSelection("d", frozenset({"NOPE"}))


def test_an_occurrence_goes_back_alone_and_begins_no_second_series() -> None:
    series: Headers = [("Deliver-Every", b"PT1H"), ("deliver-times", b"9"), ("deliver-series", b"7 2 1000 00ff")]
    occurrence: Headers = [("delay-occurrence", b"2"), ("delay-series", b"d/3/7")]
    assert rejected([*CAME, *series, *occurrence], Reason.EXPIRED).headers == CAME
    # A record that was rejected before it began a series begins one when it is driven again.
    begins = [*CAME, *series[:2]]
    assert rejected(begins, Reason.INVALID_SCHEDULE).headers == begins
    # A name alone makes no occurrence either: the router adds both, behind all other headers.
    odd = [occurrence[0], *begins]
    assert rejected(odd).headers == odd


def test_headers_are_dropped_and_replaced_in_any_case() -> None:
    changes = HeaderChanges(("A", "absent"), (("deliver-ID", b"y"), ("b", b"1")))
    assert changes.of(rejected(CAME)) == [
        ("deliver-after", b"PT1H"),
        ("deliver-ID", b"y"),
        ("b", b"1"),
        ("delay-redriven", b"1"),
    ]
    with pytest.raises(ConfigError, match="Delay-Redriven"):
        HeaderChanges(put=(("Delay-Redriven", b"0"),))
    with pytest.raises(ConfigError, match="delay-source"):
        HeaderChanges(drop=("delay-source",))


def test_an_alias_of_the_id_selects_too() -> None:
    topic: dict[str, Any] = {"name": "d", "default_target": "t", "aliases": [{"name": "Job", "role": "id"}]}
    config = Config.model_validate({"kafka": {"bootstrap.servers": "b:1"}, "delay_topics": [topic]})
    assert id_names(config.delay_topics[0]) == {"deliver-id", "job"}

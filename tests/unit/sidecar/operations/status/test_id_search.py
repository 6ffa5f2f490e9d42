"""The fates of an id: the traces in the topics around a delay topic, and the places where a search ends early."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from index.protocol.schedule import Attempted
from sidecar.config.model import Config
from sidecar.operations.finding.wanted import PagePlace, Pending, ScheduleFilter, SchedulePage
from sidecar.operations.status import id_search
from sidecar.operations.status.answers import Fate, IdAnswer, IdTrace
from sidecar.operations.status.id_search import IdSearch, in_receipts, in_rejected, in_target

CONFIG = Config.model_validate(
    {"kafka": {"bootstrap.servers": "b:1"}, "delay_topics": [{"name": "d", "default_target": "out"}]}
)
TOPIC = CONFIG.delay_topics[0]
CONTROLS = CONFIG.rules_for(TOPIC).controls


class Message:
    """A record of some topic, as the client hands it over."""

    def __init__(self, *headers: tuple[str, bytes | None], key: bytes | None = None, value: bytes = b"") -> None:
        self._headers, self._key, self._value = [*headers], key, value

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 9

    def timestamp(self) -> tuple[int, int]:
        return 1, 5_000

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self._headers

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes:
        return self._value


def trace(fate: Fate, why: str) -> IdTrace:
    return IdTrace(fate=fate, place="t/2/9", at_ms=5_000, why=why, source="d/0/7")


def receipt(outcome: str, source: bytes = b"d/0/7", key: bytes = b"a", value: bytes | None = None) -> Any:
    said = {"action": "x", "outcome": outcome, "cancelled": [{"offset": 3, "due": 5}], "due": None}
    return Message(("delay-source", source), key=key, value=json.dumps(said).encode() if value is None else value)


@pytest.mark.parametrize(
    ("outcome", "fate"),
    [
        ("cancelled", Fate.CANCELLED),
        ("replaced", Fate.REPLACED),
        ("moved", Fate.MOVED),
        ("not-pending", Fate.ANSWERED),
    ],
)
def test_a_receipt_of_the_id_is_a_trace(outcome: str, fate: Fate) -> None:
    assert in_receipts(b"a", b"d/", receipt(outcome)) == trace(fate, f"{outcome}: 1, by d/0/7")


def test_other_records_in_the_receipts_are_none() -> None:
    for other in (
        receipt("moved", key=b"b"),
        receipt("moved", b"e/0/7"),
        receipt("gone"),
        receipt("moved", value=b"["),
    ):
        assert in_receipts(b"a", b"d/", other) is None


def test_a_rejected_record_is_known_by_its_own_header_in_any_case() -> None:
    rejected: Any = Message(("Deliver-Id", b"a"), ("delay-error", b"EXPIRED"), ("delay-source", b"d/0/7"))
    assert in_rejected(b"a", b"d/", CONTROLS, rejected) == trace(Fate.REJECTED, "EXPIRED, d/0/7")
    assert in_rejected(b"b", b"d/", CONTROLS, rejected) is None
    assert in_rejected(b"a", b"e/", CONTROLS, rejected) is None


def test_a_copy_in_a_target_is_known_by_the_header_of_the_router() -> None:
    copy: Any = Message(("delay-id", b"b"), ("delay-source", b"d/0/7"), ("delay-id", b"a"))
    assert in_target(b"a", b"d/", copy) == trace(Fate.RELEASED, "d/0/7")
    assert in_target(b"b", b"d/", copy) is None
    assert in_target(b"a", b"e/", copy) is None
    producers_own: Any = Message(("delay-id", b"a"))
    assert in_target(b"a", b"d/", producers_own) is None


def test_a_copy_tells_its_attempt() -> None:
    headers = (("delay-id", b"a"), ("delay-source", b"d/0/7"), ("delay-attempt", b"3"))
    again: Any = Message(*headers)
    assert in_target(b"a", b"d/", again) == trace(Fate.RELEASED, "d/0/7, attempt 3")
    spent: Any = Message(*headers, ("delay-attempts-exhausted", b"3"))
    assert in_target(b"a", b"d/", spent) == trace(Fate.RELEASED, "d/0/7, exhausted after 3 attempts")


class Pages:
    """A finder with one pending schedule on each page; it has this many pages."""

    def __init__(self, pages: int) -> None:
        self._pages = pages

    def page(self, topic: Any, partitions: int, wanted: ScheduleFilter, begin: PagePlace, most: int) -> SchedulePage:
        assert (topic, partitions, wanted) == (TOPIC, 3, ScheduleFilter("d", b"a"))
        self._pages -= 1
        found = Pending(7_000, 0, begin.offset, ("out",), b"a", None, None, Attempted(2))
        return SchedulePage([found], PagePlace(0, offset=begin.offset + 1) if self._pages else None)


def search(
    monkeypatch: pytest.MonkeyPatch, look_back: Callable[[str], tuple[list[IdTrace], str]], pages: int = 1
) -> IdAnswer:
    admin = type("Admin", (), {"list_topics": lambda *_, **__: type("Found", (), {"topics": {"out": 1, "d": 1}})})
    monkeypatch.setattr(id_search, "look_back", lambda _config, _admin, name, *_: look_back(name))
    made: Any = (CONFIG, admin(), Pages(pages))
    return IdSearch(*made).of(TOPIC, 3, b"a")


def test_pending_schedules_come_first_and_then_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    at_ms = {"d.receipts": 1, "d.rejected": 3, "out": 2}

    def look_back(name: str) -> tuple[list[IdTrace], str]:
        return [IdTrace(fate=Fate.RELEASED, place=name, at_ms=at_ms[name])], "not all" if name == "out" else ""

    found = search(monkeypatch, look_back)
    assert [each.place for each in found.traces] == ["d/0/0", "d.rejected", "out", "d.receipts"]
    assert found.traces[0] == IdTrace(
        fate=Fate.PENDING, place="d/0/0", at_ms=7_000, why="to out, attempt 2", source="d/0/0"
    )
    assert found.unread == ("not all",)


def test_what_could_not_be_searched_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_back(name: str) -> tuple[list[IdTrace], str]:
        if name == "d.receipts":
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        monkeypatch.setattr(time, "monotonic", lambda: float("inf"))
        return [], ""

    assert search(monkeypatch, look_back, pages=9).unread == (
        "more may be pending from 0/held/3 on: delay-router schedules d --id ...",
        "d.receipts does not exist, or may not be read",
        "out was not looked through: the time of one answer is over",
    )


def test_a_cluster_that_does_not_answer_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_back(_: str) -> tuple[list[IdTrace], str]:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    with pytest.raises(KafkaException):
        search(monkeypatch, look_back)

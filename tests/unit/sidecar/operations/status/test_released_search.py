"""The search of a target for the copy of a released record, and the answer where the target cannot be searched."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException

from sidecar.config.model import Config
from sidecar.operations.status import released_search
from sidecar.operations.status.released_search import LEAD_MS, Copy, released_copy
from sidecar.operations.status.searching import NotFinished

CONFIG = Config.model_validate({"kafka": {"bootstrap.servers": "b:1"}})
ADMIN: Any = None
DUE_MS = 1_800_000_000_000


class Message:
    """A record of partition 2 of the target."""

    def __init__(self, offset: int, headers: list[tuple[str, bytes | None]] | None) -> None:
        self._offset, self._headers = offset, headers

    def topic(self) -> str:
        return "out"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_LOG_APPEND_TIME, DUE_MS + self._offset

    def headers(self) -> list[tuple[str, bytes | None]]:
        if self._headers is None:
            raise SystemError("a name that is no UTF-8")
        return self._headers


MESSAGES = [
    Message(3, None),
    Message(4, []),
    Message(5, [("delay-source", None)]),
    Message(6, [("delay-source", b"d/0/70")]),
    # A copy of a record that was released before; the last header is the router's.
    Message(7, [("delay-source", b"d/0/7"), ("delay-source", b"d/0/8")]),
    Message(8, [("delay-source", b"e/0/1"), ("delay-source", b"d/0/7")]),
    Message(9, [("delay-source", b"d/0/7")]),
]


def search(monkeypatch: pytest.MonkeyPatch, fails: Exception | None = None) -> list[tuple[Any, ...]]:
    """Make the search look through these messages, or fail; return the list of its requests."""
    asked: list[tuple[Any, ...]] = []

    def look_through(_: Config, __: Any, topic: str, from_ms: int, look: Callable[[Any], Copy | None]) -> Copy | None:
        asked.append((topic, from_ms))
        if fails is not None:
            raise fails
        return next((found for found in map(look, MESSAGES) if found is not None), None)

    monkeypatch.setattr(released_search, "look_through", look_through)
    return asked


def test_the_first_record_that_the_router_has_written_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = search(monkeypatch)
    assert released_copy(CONFIG, ADMIN, "out", "d/0/7", DUE_MS) == Copy("out/2/8", DUE_MS + 8)
    assert released_copy(CONFIG, ADMIN, "out", "d/0/9", DUE_MS) is None
    assert released_copy(CONFIG, ADMIN, "out", "d/0/9", 0) is None
    assert asked == [("out", DUE_MS - LEAD_MS)] * 2 + [("out", 0)]


@pytest.mark.parametrize(
    "fails",
    [
        NotFinished("50,000 records"),
        KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
        KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)),
    ],
)
def test_where_it_may_not_be_looked_up_nothing_is_told(monkeypatch: pytest.MonkeyPatch, fails: Exception) -> None:
    search(monkeypatch, fails)
    assert released_copy(CONFIG, ADMIN, "out", "d/0/7", DUE_MS) is None


def test_a_cluster_that_does_not_answer_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    search(monkeypatch, KafkaException(KafkaError(KafkaError._TRANSPORT)))
    with pytest.raises(KafkaException):
        released_copy(CONFIG, ADMIN, "out", "d/0/7", DUE_MS)

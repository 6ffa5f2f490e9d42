"""Messages of a test, and fetches of them."""

from collections.abc import Sequence
from typing import cast

from confluent_kafka import KafkaError, Message

from index.rules.rules import Rules
from sidecar.kafka.reading.tails import Fetch

NOW_MS = 1_800_000_000_000
RULES = Rules(topic="d", default_target="t")


class Given:
    """A message."""

    def __init__(self, offset: int, due_ms: int = 0, error: KafkaError | None = None) -> None:
        self._offset, self._due_ms, self._error = offset, due_ms, error

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [("deliver-at", b"%d" % self._due_ms)]

    def timestamp(self) -> tuple[int, int]:
        return 1, NOW_MS


def fetched(messages: Sequence[Given]) -> Fetch:
    """Return the fetch that reads these messages."""
    return Fetch(cast("Sequence[Message]", messages), [message.headers() for message in messages])

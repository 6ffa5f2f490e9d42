"""A thread that follows topics survives every error in it, and reports it."""

import threading

import pytest
import structlog
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from sidecar.kafka.client.errors import text_of
from sidecar.kafka.reading import following
from sidecar.kafka.reading.following import TopicFollower

LONG_S = 30.0


class Following(TopicFollower):
    """Fails in turn with each of the errors, then follows."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__("sample", structlog.get_logger(), stop_within_s=LONG_S)
        self.errors = list(errors)
        self.follows = threading.Event()

    def _follow(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.follows.set()
        self._stopping.wait(LONG_S)

    def _interrupted(self, error: KafkaError) -> float:
        self._trouble.tell("sample_interrupted", text_of(error))
        return 0.0


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "AFTER_DEFECT_S", 0.0)


def test_after_any_error_it_follows_again_and_stops_when_asked() -> None:
    away = KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    with capture_logs() as logs:
        made = Following(away, away, ValueError("a defect"), away)
        made.start()
        assert made.follows.wait(LONG_S)
        made.stop()
    assert not made.is_alive()
    assert [each["event"] for each in logs] == ["sample_interrupted", "sample_failed"]


def test_one_that_was_never_started_can_be_stopped() -> None:
    made = Following()
    made.stop()
    assert not made.is_alive()

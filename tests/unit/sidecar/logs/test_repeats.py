"""Repeated lines of libraries: shown once, then counted once a minute, and no news is lost."""

from typing import Any

import structlog
from structlog.testing import capture_logs

from sidecar.logs.events import Trouble
from sidecar.logs.repeats import EVERY_S, MAX_KINDS, Repeats, kind_of

TAIL = (
    "FAIL [delay-router-tail#consumer-{client}] [thrd:{broker}/bootstrap]: {broker}/bootstrap:"
    " Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after {ms}ms in state CONNECT{more})"
)


def line(client: int = 1, broker: str = "a:9092", ms: int = 0, more: str = "") -> str:
    return TAIL.format(client=client, broker=broker, ms=ms, more=more)


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Told(list[tuple[str, str, dict[str, Any]]]):
    def __call__(self, level: str, event: str, **facts: Any) -> None:
        self.append((level, event, facts))


def test_one_kind_is_one_text_of_one_role() -> None:
    same = {
        kind_of("librdkafka", each)
        for each in (line(), line(client=77, ms=3), line(ms=12, more=", 17 identical error(s) suppressed"))
    }
    assert len(same) == 1
    others = {
        kind_of("librdkafka", each)
        for each in (
            line(broker="b:9092"),
            line(broker="a:9093"),
            line().replace("tail", "group"),
            line().replace("refused", "reset"),
            "topic [3]: gone",
            "topic [4]: gone",
        )
    }
    assert len(others | same) == 7
    assert kind_of("uvicorn", line()) not in same


def test_an_outage_is_a_line_of_each_kind_and_then_one_a_minute() -> None:
    clock, told = Clock(), Told()
    repeats = Repeats(told, clock)
    came_out = 0
    for second in range(150):
        for client in range(12):
            for broker in ("a:9092", "b:9092", "c:9092"):
                came_out += repeats.is_news("librdkafka", line(client, broker, second))
        clock.now_s += 1
        repeats.tick()
    assert came_out == 3
    assert [(level, event) for level, event, _ in told] == [("warning", "library_log_repeated")] * 2
    # The count includes every line.
    assert told[0][2]["lines"] == 12 * 3 * 60 - 3
    assert told[0][2]["kinds"] == 3
    assert sum(each["times"] for each in told[0][2]["most"]) == told[0][2]["lines"]
    assert "Connection refused" in told[0][2]["most"][0]["message"]


def test_that_it_is_over_is_told_and_what_comes_after_is_news() -> None:
    clock, told = Clock(), Told()
    repeats = Repeats(told, clock)
    for _ in range(100):
        repeats.is_news("librdkafka", line())
    for _ in range(5):
        clock.now_s += EVERY_S
        repeats.tick()
    assert [event for _, event, _ in told] == ["library_log_repeated", "library_log_quiet"]
    assert told[1][2]["lines"] == 99
    assert repeats.is_news("librdkafka", line())


def test_texts_that_are_made_up_do_not_fill_a_log() -> None:
    repeats = Repeats(Told(), Clock())
    came_out = sum(repeats.is_news("uvicorn.error", f"Invalid: {'abcdefgh'[n % 8]}{n:x}z") for n in range(10_000))
    assert came_out <= MAX_KINDS + 1


def test_a_trouble_is_told_again_once_a_minute_until_it_is_over() -> None:
    clock = Clock()
    with capture_logs() as written:
        trouble = Trouble(structlog.get_logger(), clock)
        for _ in range(90):
            trouble.tell("partition_interrupted", error="timed out")
            trouble.tell("partition_interrupted", error="no coordinator")
            clock.now_s += 1
        assert [each.get("times_since_last_told") for each in written] == [None, None, 60, 60]
        trouble.is_over()
        trouble.tell("partition_interrupted", error="timed out")
        assert len(written) == 5

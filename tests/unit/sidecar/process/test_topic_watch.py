"""The times at which the topics are looked at while the router runs."""

import threading
import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any, cast

import pytest

from sidecar.process import topic_watch
from sidecar.process.topic_watch import TopicWatch


class Usable:
    """Counts looks."""

    def __init__(self) -> None:
        self.looks = 0
        self.troubles: dict[str, str] = {}

    def look(self) -> dict[str, Any]:
        self.looks += 1
        return {"policies": self.looks}


class Workers:
    """Counts its calls, and keeps the answers that the watch of the policies is told."""

    def __init__(self) -> None:
        self.learned = 0
        self.looks_at_group = 0
        self.of_policies: list[object] = []

    def learn(self, *_: object) -> None:
        self.learned += 1

    def look_at_group(self) -> None:
        self.looks_at_group += 1


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Usable, Workers, Event]]:
    monkeypatch.setattr(topic_watch, "EVERY_S", 1_000.0)
    monkeypatch.setattr(topic_watch, "APART_S", 0.01)
    usable, workers, doubted = Usable(), Workers(), Event()
    tell = workers.of_policies.append
    watch = TopicWatch(cast("Any", usable), cast("Any", workers), tell, workers.look_at_group, doubted)
    watch.start()
    yield usable, workers, doubted
    watch.stop()
    assert "topic watch" not in {thread.name for thread in threading.enumerate()}


def wait_until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_a_worker_whose_topics_are_in_doubt_has_them_looked_at_at_once(watched: tuple[Usable, Workers, Event]) -> None:
    usable, workers, doubted = watched
    for number in (1, 2):
        doubted.set()
        wait_until(lambda number=number: workers.learned == number)  # type: ignore[misc]
    time.sleep(0.1)
    assert usable.looks == 2, "and otherwise once in a while"


def test_the_watch_of_the_policies_is_told_every_answer(watched: tuple[Usable, Workers, Event]) -> None:
    _, workers, doubted = watched
    doubted.set()
    wait_until(lambda: workers.of_policies == [{"policies": 1}])
    wait_until(lambda: workers.looks_at_group == 1)

"""Threads that ask at the same time: a look answers all questions asked before it began, and no later one."""

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.kafka.client.together import Together

WITHIN_S: Final = 10.0


class Brokers:
    """Answers each question with the number of the look; the first look waits until it may end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.asked: list[set[str]] = []
        self.error: Exception | None = None
        self.at_once = 0

    def ask(self, keys: Iterable[str]) -> Mapping[str, int]:
        self.asked.append(set(keys))
        number = len(self.asked)
        self.at_once += 1
        assert self.at_once == 1, "two looks at the same time"
        assert self.may_end.wait(WITHIN_S)
        self.at_once -= 1
        if self.error is not None:
            raise self.error
        return dict.fromkeys(keys, number)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def until(seen: "list[set[str]] | Together[str, int]", size: int = 1) -> None:
    """Wait until a look has begun, or until the next one has so many keys."""
    end_s = time.monotonic() + WITHIN_S
    while time.monotonic() < end_s:
        if isinstance(seen, Together):
            if seen._next is not None and len(seen._next.keys) == size:
                return
        elif len(seen) == size:
            return
        time.sleep(0.001)
    raise AssertionError("it did not come so far in time")


def three_questions(together: Together[str, int], brokers: Brokers) -> list["Future[Mapping[str, int]]"]:
    """Ask about "a", and about "b" and "c" while the first look is under way; then let the looks end."""
    with ThreadPoolExecutor(3) as threads:
        futures = [threads.submit(together.answers, ["a"], brokers.ask)]
        until(brokers.asked)
        futures += [threads.submit(together.answers, [key], brokers.ask) for key in "bc"]
        until(together, 2)
        brokers.may_end.set()
    return futures


def test_questions_asked_during_a_look_share_the_next_one(brokers: Brokers) -> None:
    of_a, of_b, of_c = three_questions(Together(), brokers)
    assert brokers.asked == [{"a"}, {"b", "c"}]
    assert of_a.result() == {"a": 1}
    assert of_b.result() == of_c.result() == {"b": 2, "c": 2}


def test_a_question_asked_after_a_look_began_is_not_answered_by_it(brokers: Brokers) -> None:
    together = Together[str, int]()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(together.answers, ["a"], brokers.ask)
        until(brokers.asked)
        second = threads.submit(together.answers, ["a"], brokers.ask)
        until(together, 1)
        brokers.may_end.set()
    assert (first.result(), second.result()) == ({"a": 1}, {"a": 2})


def test_each_thread_of_a_look_raises_its_error_and_the_next_look_asks_again(brokers: Brokers) -> None:
    brokers.error = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
    together = Together[str, int]()
    errors = [future.exception() for future in three_questions(together, brokers)]
    assert [error.args[0].str() for error in errors if isinstance(error, KafkaException)] == ["no answer"] * 3
    # An exception that two threads raise would get the frames of both: the second look has two threads.
    assert errors[1] is not errors[2]
    brokers.error = None
    assert together.answers(["d"], brokers.ask) == {"d": 3}


def test_a_defect_is_no_answer_for_the_threads_that_wait(brokers: Brokers) -> None:
    """An empty answer would say that the places do not exist, so that nothing is in doubt."""
    brokers.error = ValueError("a defect")
    of_a, *others = (future.exception() for future in three_questions(Together(), brokers))
    assert of_a is brokers.error
    assert sorted(type(each).__name__ for each in others) == ["KafkaException", "ValueError"]


def test_no_answer_is_older_than_its_question() -> None:
    """A hundred threads ask; each answer is the time of its look."""
    together, clock, looks = Together[int, int](), count(), list[int]()

    def ask(keys: Iterable[int]) -> Mapping[int, int]:
        looks.append(began := next(clock))
        time.sleep(0.002)
        return dict.fromkeys(keys, began)

    def question(key: int) -> tuple[int, int]:
        asked = next(clock)
        return asked, together.answers([key], ask)[key]

    with ThreadPoolExecutor(20) as threads:
        pairs = list(threads.map(question, range(100)))
    assert all(asked < began for asked, began in pairs)
    assert len(looks) < len(pairs)

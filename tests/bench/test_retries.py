"""Tests of the arithmetic of the benchmark of retries: what came back, what is missing, and what came twice."""

from typing import Any

import pytest

from tests.bench.failing import Arrivals
from tests.bench.results import BenchmarkFailed
from tests.bench.retries import row_of


def arrival(number: int, attempt: int, due_ms: int = 0, **more: bytes) -> dict[str, Any]:
    told = {"number": b"%d" % number, "delay-attempt": b"%d" % attempt, "delay-due": b"%d" % due_ms}
    return told | {name.replace("_", "-"): value for name, value in more.items()}


def test_each_record_comes_back_in_each_attempt_and_in_the_dead_letter_topic() -> None:
    arrivals = Arrivals(2, 2)
    assert arrivals.lost == 6
    for number in (0, 1):
        assert [arrivals.add(arrival(number, attempt, 10 * attempt), 13 * attempt) for attempt in (1, 2)] == [True] * 2
        assert not arrivals.add(arrival(number, 2, delay_attempts_exhausted=b"2"), 40), "it is not sent back"
    assert (arrivals.lost, arrivals.doubled) == (0, 0)
    assert ([*arrivals.due_ms], [*arrivals.appended_ms]) == ([10, 20] * 2, [13, 26] * 2)


def test_what_comes_twice_is_doubled_and_not_sent_back_again() -> None:
    arrivals = Arrivals(1, 2)
    assert arrivals.add(arrival(0, 1), 5)
    assert not arrivals.add(arrival(0, 1), 6)
    assert (arrivals.lost, arrivals.doubled, len(arrivals.due_ms)) == (2, 1, 1)


def test_a_ladder_that_lost_doubled_or_hurried_is_no_figure() -> None:
    told = {"lost": 0, "doubled": 0, "late_ms": [0, 1, 2, 9], "failures": 100, "failures_per_s": 49.6}
    row = row_of(told, 50)
    assert (row.name, row.value, row.unit) == ("ladder of 8 attempts, 50 failures/s: p99", 9, "ms")
    assert row.detail == "50 failures/s sent; lateness ms: min 0, p50 1, p99 9, max 9; lost 0, doubled 0 of 100"
    for wrong in ({"lost": 1}, {"doubled": 1}, {"late_ms": [-1, 5]}):
        with pytest.raises(BenchmarkFailed, match="lost"):
            row_of(told | wrong, 50)

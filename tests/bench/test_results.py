"""The arithmetic of the report: percentiles, verdicts, and what counts as sustained."""

import pytest

from tests.bench.released import Lateness
from tests.bench.results import Row, at_least, at_most, failed
from tests.bench.steady import Load


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)])
def test_percentile_is_the_smallest_value_that_so_many_do_not_exceed(percent: float, expected: int) -> None:
    assert Lateness(range(1, 101), 0, 0).percentile(percent) == expected


def test_percentile_of_few_is_the_worst_not_the_second_worst() -> None:
    assert Lateness([1, 2, 30], 0, 0).percentile(99) == 30


@pytest.mark.parametrize(("ratio", "verdict"), [(1.2, "reached"), (1.19, "missed")])
def test_goal_on_the_ratio_ignores_the_value(ratio: float, verdict: str) -> None:
    assert Row("b", "n", 5.0, "records/s", ratio, "ceiling", at_least(1.2)).verdict == verdict


@pytest.mark.parametrize(("value", "verdict"), [(3.0, "reached"), (4.0, "missed")])
def test_goal_on_the_value(value: float, verdict: str) -> None:
    assert Row("b", "n", value, "ms", goal=at_most(3)).verdict == verdict


def test_failure_is_neither_reached_nor_missed() -> None:
    row = failed("burst", ValueError("lost: 1"))
    assert (row.verdict, row.as_json()["value"]) == ("failed", None)
    assert row.as_json()["detail"] == "ValueError: lost: 1"


@pytest.mark.parametrize(
    ("sent_per_s", "late_ms", "drained_ms", "sustained"),
    [(98, 1_000, 1_000, True), (97, 1, 1, False), (100, 1_001, 1, False), (100, 1, 1_001, False)],
)
def test_sustained_means_sent_released_and_drained(
    sent_per_s: float, late_ms: int, drained_ms: int, sustained: bool
) -> None:
    lateness = Lateness([late_ms] * 100, last_append_ms=10_000 + drained_ms, last_due_ms=10_000)
    assert Load(0.5, 100.0, sent_per_s, lateness).sustained is sustained

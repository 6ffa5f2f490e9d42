"""Tests of the arithmetic of the report: percentiles, verdicts, and the definition of sustained."""

import pytest

from tests.bench.released import Lateness
from tests.bench.results import Row, at_least, at_most, failed, middle, no_more_than
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


def test_a_ratio_may_have_a_limit_from_above() -> None:
    assert [Row("b", "n", 9.0, "ms", each, "bare", no_more_than(1.5)).verdict for each in (1.5, 1.6)] == [
        "reached",
        "missed",
    ]


def test_of_several_rounds_the_median_stands_beside_the_spread() -> None:
    rounds = [[Row("b", "p50", value, "ms"), Row("b", "p99", 2 * value, "ms")] for value in (7.0, 3.0, 4.0)]
    one, two = middle(rounds)
    assert (one.name, one.value, one.spread) == ("p50", 4.0, (3.0, 7.0))
    assert (two.name, two.value, two.spread) == ("p99", 8.0, (6.0, 14.0))


def test_the_median_of_ratios_is_that_of_rounds_with_ceilings_of_their_own() -> None:
    rows = [[Row("b", "n", rate, "records/s", ratio, "ceiling")] for rate, ratio in ((90, 0.5), (50, 0.9), (70, 0.6))]
    assert [(row.value, row.ratio, row.spread) for row in middle(rows)] == [(70, 0.6, (50, 90))]


def test_what_failed_in_one_round_has_failed() -> None:
    rows = middle([[Row("b", "n", 1.0, "ms")], [failed("b", ValueError("lost: 1"))], [Row("b", "n", 2.0, "ms")]])
    assert [row.verdict for row in rows] == ["", "failed"]


def test_one_round_has_no_spread() -> None:
    assert middle([[Row("b", "n", 1.0, "ms")]]) == [Row("b", "n", 1.0, "ms")]

"""Tests of the arithmetic of the benchmarks of operations: the effect of a policy, and several windows as one."""

import pytest

from tests.bench.policy_change import Change, Outcome, effect_ms
from tests.bench.released import NOT_YET, lateness_in
from tests.bench.results import BenchmarkFailed

REJECTS = Change(handed_ms=1_000, acknowledged_ms=1_003, rejects=True)
RELEASES = REJECTS._replace(rejects=False)

# Partition 2 is the last to follow, with its second record.
OUTCOMES = [
    Outcome(990, 0, rejected=True),
    Outcome(1_010, 0, rejected=True),
    Outcome(1_020, 0, rejected=True),
    Outcome(1_015, 1, rejected=True),
    Outcome(1_011, 2, rejected=False),
    Outcome(1_040, 2, rejected=True),
    Outcome(2_005, 0, rejected=False),
    Outcome(2_006, 1, rejected=False),
    Outcome(2_004, 2, rejected=False),
]


def test_a_policy_holds_when_the_last_partition_follows() -> None:
    assert effect_ms(OUTCOMES, REJECTS, following_ms=2_000) == 40
    assert effect_ms(OUTCOMES, RELEASES._replace(handed_ms=2_000), following_ms=3_000) == 6


def test_a_policy_that_one_partition_did_not_follow_is_no_figure() -> None:
    with pytest.raises(BenchmarkFailed, match=r"only partitions \[0, 1\] followed"):
        effect_ms(OUTCOMES, REJECTS, following_ms=1_040)


def test_windows_are_counted_together_and_nothing_between_them() -> None:
    due_ms = [10, 20, 30, 40, 50]
    appended_ms = [11, 22, 99, 44, NOT_YET]
    lateness = lateness_in(due_ms, appended_ms, [(10, 20), (40, 50)])
    assert (list(lateness.sorted_ms), lateness.last_due_ms, lateness.last_append_ms) == ([1, 2, 4], 40, 44)

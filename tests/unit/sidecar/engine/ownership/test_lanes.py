"""The lanes and router groups that may write a state: who ends them, who claims, who leaves the partition alone."""

from collections.abc import Callable

import pytest

from index.errors import RefusedError
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import LIMITS
from sidecar.engine.ownership.lanes import Claims, end_former
from sidecar.metrics import Metrics
from snapshots.state.lane import LaneName
from tests.support.hand_clock import HandClock

ONE, TWO = LaneName("one", 1), LaneName("two", 1)
CLOCK = HandClock()
CONTEXT = PartitionContext(DelayTopicConfig(name="d"), 0, "g", Metrics(), CLOCK)


class Writers:
    """A state with claims of groups; ``meanwhile`` are groups that write theirs just before the own claim."""

    def __init__(self, *named: str, meanwhile: tuple[str, ...] = (), denies: bool = False) -> None:
        self.named = {*named}
        self.steps: list[str] = []
        self._meanwhile = meanwhile
        self._denies = denies

    def lane(self) -> LaneName | None:
        return None

    def end(self, lane: LaneName) -> None:
        raise AssertionError(lane)

    def groups(self) -> frozenset[str]:
        return frozenset(self.named)

    def claim(self, group: str) -> None:
        self.steps.append(f"claims for {group}")
        self.named |= {group, *self._meanwhile}

    def end_group(self, group: str) -> None:
        if self._denies:
            raise RefusedError("not allowed")
        self.steps.append(f"fences {group}")


class Former(Writers):
    """A state that names a lane; ``ended`` returns the lane that it names once a lane was ended."""

    def __init__(self, name: LaneName | None, ended: Callable[[LaneName], LaneName | None]) -> None:
        super().__init__()
        self.name = name
        self.ended: list[LaneName] = []
        self.reads = 0
        self._ended = ended

    def lane(self) -> LaneName | None:
        self.reads += 1
        return self.name

    def end(self, lane: LaneName) -> None:
        self.ended.append(lane)
        self.name = self._ended(lane)


def settled(writers: Writers, claims: Claims | None = None) -> Claims:
    """Take all steps of a take-over."""
    claims = claims or Claims(CONTEXT)
    claims.begin()
    while claims.settle(writers):
        pass
    return claims


def test_a_state_without_a_lane_is_read_once() -> None:
    former = Former(None, lambda lane: lane)
    end_former(former)
    assert (former.reads, former.ended) == (1, [])


def test_the_state_is_read_again_though_the_lane_may_have_ended_before() -> None:
    """Another partition of the process may have ended the lane, which wrote this state after the first read."""
    former = Former(ONE, lambda lane: lane)
    end_former(former)
    assert (former.reads, former.ended) == (2, [ONE])


def test_each_lane_that_the_state_comes_to_name_is_ended() -> None:
    former = Former(ONE, lambda lane: TWO if lane == ONE else lane)
    end_former(former)
    assert (former.reads, former.ended) == (3, [ONE, TWO])


def test_a_lane_that_has_given_the_state_back_is_not_ended_again() -> None:
    former = Former(ONE, lambda _: None)
    end_former(former)
    assert (former.reads, former.ended) == (2, [ONE])


def test_where_the_own_claim_stands_alone_nothing_is_written_or_fenced() -> None:
    writers = Writers("g")
    assert settled(writers).fenced == set()
    assert writers.steps == []


def test_the_first_take_over_claims_the_state_and_reads_it_again() -> None:
    writers = Writers()
    assert Claims(CONTEXT).settle(writers)
    assert writers.steps == ["claims for g"]
    assert not Claims(CONTEXT).settle(writers)


def test_another_group_is_fenced_before_the_claim_to_see_whether_that_is_allowed_and_again_behind_it() -> None:
    writers = Writers("other")
    assert settled(writers).fenced == {"other"}
    assert writers.steps == ["fences other", "claims for g", "fences other"]


def test_a_group_that_claims_at_the_same_moment_is_fenced_too() -> None:
    writers = Writers(meanwhile=("other",))
    assert settled(writers).fenced == {"other"}
    assert writers.steps == ["claims for g", "fences other"]


@pytest.mark.parametrize("group", ["other", "third"])
def test_a_claim_that_is_removed_in_a_take_over_is_written_again_at_once(group: str) -> None:
    writers, claims = Writers("g", "other"), Claims(CONTEXT)
    claims.begin()
    assert claims.settle(writers)
    # By the last transaction of the other group, or by a third group that had fenced this one before it began.
    writers.named = {group}
    writers.steps.clear()
    while claims.settle(writers):
        pass
    assert writers.steps == [f"fences {group}", "claims for g", f"fences {group}"]


def test_a_group_that_may_not_fence_the_other_one_writes_no_claim() -> None:
    writers = Writers("other", denies=True)
    with pytest.raises(RefusedError, match="not allowed"):
        settled(writers)
    assert writers.named == {"other"}


def test_an_owner_that_another_group_has_fenced_leaves_the_partition_to_it_for_a_while() -> None:
    claims = settled(Writers("g"))
    writers = Writers("other")
    for _ in range(2):
        with pytest.raises(RefusedError, match="routers of group other have taken d/0 over from this group, g"):
            settled(writers, claims)
        CLOCK.go_on(LIMITS.yield_s / 2)
    assert writers.steps == []
    assert settled(writers, claims).fenced == {"other"}
    # An owner that is new to the partition, as after a change of the group, does not wait.
    assert settled(Writers("other")).fenced == {"other"}

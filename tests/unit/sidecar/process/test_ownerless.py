"""Partitions without an owner: when they count as such, and which member joins anew."""

from threading import Event

import pytest

from sidecar.kafka.client.group_view import GroupView
from sidecar.process.ownerless import FOR_S, Ownerless
from tests.support.hand_clock import HandClock

ALL = GroupView({"b": frozenset({("d", 0), ("d", 1)}), "a": frozenset({("d", 2)})})
WITHOUT_ONE = GroupView({"b": frozenset({("d", 0)}), "a": frozenset({("d", 2)})})
WITHOUT_TWO = GroupView({"b": frozenset({("d", 0)}), "a": frozenset()})


class Looks:
    """Looks at one group view after the other."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.doubted = Event()
        self.joined: list[str] = []
        self._view: GroupView | None = None
        self._ownerless = Ownerless(lambda: self._view, {"d": 3}, self.joined.append, self.doubted, self.clock)

    def see(self, view: GroupView | None, after_s: float = 0.0) -> bool:
        """Look at a view some time after the last one, and say whether the next look is wanted soon."""
        self.clock.go_on(after_s)
        self._view = view
        self.doubted.clear()
        self._ownerless.look()
        return self.doubted.is_set()


def test_a_group_with_an_owner_for_each_partition_is_left_alone() -> None:
    looks = Looks()
    assert not any(looks.see(ALL, after_s=FOR_S) for _ in range(5))
    assert looks.joined == []


def test_the_first_member_joins_anew_for_partitions_that_stay_without_an_owner() -> None:
    looks = Looks()
    assert looks.see(WITHOUT_ONE)
    assert looks.see(WITHOUT_ONE, after_s=FOR_S / 2)
    assert looks.joined == []
    assert not looks.see(WITHOUT_ONE, after_s=FOR_S / 2)
    assert looks.joined == ["a"]


def test_it_joins_anew_once_more_only_if_they_stay_without_an_owner_for_as_long_again() -> None:
    looks = Looks()
    looks.see(WITHOUT_ONE)
    looks.see(WITHOUT_ONE, after_s=FOR_S)
    assert looks.see(WITHOUT_ONE, after_s=1.0)
    assert looks.joined == ["a"]
    looks.see(WITHOUT_ONE, after_s=FOR_S)
    assert looks.joined == ["a", "a"]


@pytest.mark.parametrize("between", [ALL, WITHOUT_TWO, None])
def test_a_group_that_changes_meanwhile_is_looked_at_anew(between: GroupView | None) -> None:
    looks = Looks()
    looks.see(WITHOUT_ONE)
    assert looks.see(between, after_s=FOR_S) is (between is WITHOUT_TWO)
    looks.see(WITHOUT_ONE, after_s=FOR_S)
    assert looks.joined == []


def test_a_topic_of_other_routers_is_their_matter() -> None:
    looks = Looks()
    other = GroupView({"b": frozenset({("d", 0), ("d", 1), ("d", 2), ("other", 0)})})
    assert not looks.see(other)

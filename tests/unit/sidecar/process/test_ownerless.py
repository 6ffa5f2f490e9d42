"""Partitions without an owner: when they count as such, and which member joins anew."""

from threading import Event

import pytest

from sidecar.kafka.client.group_view import GroupView, ViewedMember
from sidecar.process.ownerless import APART_S, FOR_S, Ownerless
from tests.support.hand_clock import HandClock

D = frozenset({"d"})


def member(*numbers: int) -> ViewedMember:
    """Return a member with these partitions of its only topic."""
    return ViewedMember(D, frozenset(("d", number) for number in numbers))


ALL = GroupView({"b": member(0, 1), "a": member(2)})
WITHOUT_ONE = GroupView({"b": member(0), "a": member(2)})
WITHOUT_TWO = GroupView({"b": member(0), "a": member()})


class Looks:
    """Looks at one group view after the other."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.doubted = Event()
        self.joined: list[str] = []
        self._view: GroupView | None = None
        self.partitions = {"d": 3}
        self._ownerless = Ownerless(lambda: self._view, self.partitions, self.joined.append, self.doubted, self.clock)

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


def test_a_member_joins_anew_once_a_minute_at_most() -> None:
    looks = Looks()
    looks.see(WITHOUT_ONE)
    looks.see(WITHOUT_ONE, after_s=FOR_S)
    assert not looks.see(WITHOUT_ONE, after_s=APART_S / 2), "nothing can be done soon"
    assert looks.joined == ["a"]
    looks.see(WITHOUT_ONE, after_s=APART_S / 2)
    assert looks.joined == ["a", "a"]


def test_a_member_without_the_topic_is_passed_over() -> None:
    looks = Looks()
    view = GroupView({"a": ViewedMember(frozenset({"other"}), frozenset()), "b": member(0), "c": member(1)})
    looks.see(view)
    looks.see(view, after_s=FOR_S)
    assert looks.joined == ["b"]
    nobody = GroupView({"a": ViewedMember(frozenset({"other"}), frozenset())})
    looks.see(nobody, after_s=APART_S)
    looks.see(nobody, after_s=APART_S)
    assert looks.joined == ["b"]


def test_added_partitions_are_new_for_a_while() -> None:
    looks = Looks()
    assert not looks.see(ALL)
    looks.partitions["d"] = 4
    assert not looks.see(ALL)
    assert not looks.see(ALL, after_s=APART_S / 2)
    assert looks.see(WITHOUT_ONE), "the others are not new"
    assert not looks.see(ALL)
    assert looks.see(ALL, after_s=APART_S), "no member has noticed the added one"
    looks.partitions["d"] = 2
    assert not looks.see(ALL), "the topic was created again"


@pytest.mark.parametrize("between", [ALL, WITHOUT_TWO, None])
def test_a_group_that_changes_meanwhile_is_looked_at_anew(between: GroupView | None) -> None:
    looks = Looks()
    looks.see(WITHOUT_ONE)
    assert looks.see(between, after_s=FOR_S) is (between is WITHOUT_TWO)
    looks.see(WITHOUT_ONE, after_s=FOR_S)
    assert looks.joined == []


def test_a_topic_of_other_routers_is_their_matter() -> None:
    looks = Looks()
    other = GroupView({"b": ViewedMember(D | {"other"}, frozenset({("d", 0), ("d", 1), ("d", 2), ("other", 0)}))})
    assert not looks.see(other)

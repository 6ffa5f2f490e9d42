"""The view of a group, from the answers of an admin client."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from sidecar.kafka.client.group_view import (
    GroupView,
    ViewedMember,
    member_count,
    parse_assignment,
    parse_subscription,
    view_group,
)

# The bytes that librdkafka 2.16 sent for two members of a group with one topic "t" of four partitions.
TWO_OF_T = bytes.fromhex(
    "0000000000010001740000000200000002000000030000001f000000010001740000000400000000000000010000000200000003"
)
NONE = bytes.fromhex("00000000000000000000")
SUBSCRIBES_TO_T = bytes.fromhex("0003000000010001740000000000000000ffffffff0000")
T = frozenset({"t"})


def group(state: str, **assignments: bytes) -> Any:
    members = [
        SimpleNamespace(id=name, metadata=SUBSCRIBES_TO_T, assignment=assignment)
        for name, assignment in assignments.items()
    ]
    return SimpleNamespace(state=state, members=members)


def test_assignments_are_parsed() -> None:
    assert parse_assignment(TWO_OF_T) == {("t", 2), ("t", 3)}
    assert parse_assignment(NONE) == parse_assignment(b"") == frozenset()


def test_assignments_of_several_topics_are_parsed() -> None:
    several = bytes.fromhex("0001 00000002 0002 6162 00000001 00000007 0001 63 00000000 ffffffff")
    assert parse_assignment(several) == {("ab", 7)}


def test_subscriptions_are_parsed() -> None:
    assert parse_subscription(SUBSCRIBES_TO_T) == T
    assert parse_subscription(bytes.fromhex("0000 00000002 0002 6162 0001 63 ffffffff")) == {"ab", "c"}
    assert parse_subscription(b"") == frozenset()


def test_a_stable_group_is_viewed() -> None:
    admin = Mock()
    admin.list_groups.return_value = [group("Stable", first=TWO_OF_T, second=NONE)]
    view = view_group(admin, "g")
    assert view == GroupView(
        {"first": ViewedMember(T, frozenset({("t", 2), ("t", 3)})), "second": ViewedMember(T, frozenset())}
    )
    assert view.without_owner(frozenset({("t", 1), ("t", 2)})) == {("t", 1)}


def test_a_group_that_is_about_to_assign_or_does_not_exist_is_not_viewed() -> None:
    admin = Mock()
    for answer in ([group("PreparingRebalance", first=TWO_OF_T)], [group("Empty")], []):
        admin.list_groups.return_value = answer
        assert view_group(admin, "g") is None


def test_members_are_counted_in_every_state_of_a_group() -> None:
    admin = Mock()
    for answer, count in (([group("PreparingRebalance", first=NONE, second=NONE)], 2), ([group("Empty")], 0), ([], 0)):
        admin.list_groups.return_value = answer
        assert member_count(admin, "g") == count

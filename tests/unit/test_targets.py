"""Topic names, patterns against a naive matcher, and which of the three rules about targets wins."""

import re
import time
from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.targets import TargetPolicy, illegal_pattern, illegal_topic, matches


@pytest.mark.parametrize("name", ["a", "orders", "A.b_c-9", "...", "-", "__internal", "x" * 249])
def test_legal_topic_names(name: str) -> None:
    assert illegal_topic(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "a*", "caf\xe9", "a\n", "a\x00", "\uff41"])
def test_illegal_topic_names(name: str) -> None:
    assert illegal_topic(name)


@pytest.mark.parametrize("pattern", ["*", "a.*", "*.dlq", "a*b*c", "x" * 249])
def test_legal_patterns(pattern: str) -> None:
    assert illegal_pattern(pattern) is None


@pytest.mark.parametrize("pattern", ["", "a?", "[ab]", "a|b", "a b", "^a$", "x" * 250, "a\n"])
def test_illegal_patterns(pattern: str) -> None:
    assert illegal_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("orders", ["orders"], ["order", "orders2", "xorders", "Orders"]),
        ("billing.*", ["billing.", "billing.eu", "billing.eu.v2"], ["billing", "billingXeu", "xbilling.eu"]),
        ("*.retry", [".retry", "a.retry", "a.retry.retry"], ["retry", "a.retry2", "aXretry"]),
        ("a*b*c", ["abc", "aXbYc", "abbc", "abcbc"], ["ac", "acb", "abcd"]),
        ("ab*ba", ["abba", "ab-ba"], ["aba", "ab"]),
        ("a*b*b", ["abb", "abab"], ["ab", "aab"]),
        ("a**b", ["ab", "axb"], ["a", "b"]),
        ("*", ["a", "anything.at-all_9"], []),
    ],
)
def test_a_pattern_covers_the_whole_name(pattern: str, matched: list[str], others: list[str]) -> None:
    assert [name for name in matched + others if matches(pattern, name)] == matched


@given(pattern=st.text("ab**", max_size=6), name=st.text("ab", max_size=6))
@settings(max_examples=500)
def test_patterns_match_as_the_backtracking_matcher_does(pattern: str, name: str) -> None:
    assert matches(pattern, name) == fnmatchcase(name, pattern)


def test_a_hostile_pattern_and_name_cost_no_more_than_their_length() -> None:
    pattern = "*" + "a*" * 124
    name = "a" * 123 + "b" * 126
    assert re.fullmatch(r"[a-z]{249}", name)
    started = time.process_time()
    for _ in range(100):
        assert not matches(pattern, name)
    # A backtracking matcher needs longer than the universe is old for a single one.
    assert time.process_time() - started < 2


POLICY = TargetPolicy("orders", ["orders.*", "billing", "*.delay", "__*"], {"orders.delay", "orders.rejected"})


@pytest.mark.parametrize("name", ["orders", "orders.eu", "billing", "other.delay"])
def test_allowed_targets(name: str) -> None:
    assert POLICY.refusal(name) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("billing.eu", "not in allowed_targets"),
        ("orders.delay", "of the router is never a target"),
        ("orders.rejected", "of the router is never a target"),
        ("__consumer_offsets", "internal and never a target"),
        ("", "a topic name has 1 to 249"),
        ("orders.\xe9", "a topic name has 1 to 249"),
    ],
)
def test_refused_targets_say_why(name: str, why: str) -> None:
    refusal = POLICY.refusal(name)
    assert refusal is not None
    assert why in refusal


def test_without_an_allow_list_only_the_default_target_is_left() -> None:
    policy = TargetPolicy("orders", [], [])
    assert policy.refusal("orders") is None
    assert policy.refusal("billing") == "not in allowed_targets of this delay topic"


def test_the_default_target_needs_no_entry_in_the_list() -> None:
    assert TargetPolicy("orders", ["billing"], []).refusal("orders") is None


def test_without_default_and_list_nothing_is_allowed() -> None:
    assert TargetPolicy("", [], []).refusal("orders")


@pytest.mark.parametrize("default", ["orders.delay", "__orders", "or ders"])
def test_a_default_target_that_can_never_be_one_is_refused(default: str) -> None:
    with pytest.raises(ValueError, match=f"default_target '{default}'"):
        TargetPolicy(default, ["*"], {"orders.delay"})


def test_an_illegal_pattern_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"allowed_targets 'a\?': .*'\*' as its only wildcard"):
        TargetPolicy("", ["a?"], [])

"""Rules as values: refusals, equality, and storing and reading them."""

import json
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import FormatError
from index.protocol.headers import PRESETS, Alias, HeaderRole, Unit
from index.protocol.times import INT64_MAX
from index.rules.retrying import Retry
from index.rules.rules import Rules
from index.rules.rules_stored import KNOWN_VERSIONS, differing
from index.rules.targets import TargetRule

RULES = Rules(
    topic="orders.delay",
    default_target="orders",
    allowed_targets=("orders.*", "billing"),
    max_delay_ms=604_800_000,
    forbidden_targets=frozenset({"orders.rejected"}),
)
RETRY = Retry(1_000, 2_000, 3_600_000, 100, 8, "orders.dlq")


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"topic": "a b"}, "topic 'a b': a topic name has"),
        ({"default_target": "orders.delay"}, "default_target 'orders.delay'"),
        ({"default_target": "orders.rejected"}, "default_target 'orders.rejected'"),
        ({"default_target": "__x"}, "default_target '__x'"),
        ({"allowed_targets": ("a?",)}, "allowed_targets 'a\\?'"),
        ({"max_delay_ms": -1}, "max_delay_ms -1"),
        ({"max_delay_ms": 2**63}, "max_delay_ms 9223372036854775808"),
        ({"aliases": (Alias("delay-id", HeaderRole.ID),)}, "alias 'delay-id'"),
        ({"version": KNOWN_VERSIONS[-1] + 1}, "knows only version"),
        ({"version": 2, "require_time": True}, "version 2 does not know require_time"),
        ({"version": 2, "recurring": True}, "version 2 does not know .*recurring and delay_ms"),
        ({"version": 2, "delay_ms": 1}, "version 2 does not know .*recurring and delay_ms"),
        ({"delay_ms": -1}, "delay_ms -1: expected 0"),
        ({"min_period_ms": 0}, "min_period_ms 0: expected 1"),
        ({"version": 2, "retry": RETRY}, "version 2 does not know retry"),
        ({"retry": RETRY._replace(first_ms=0)}, "retry: first_ms 0: expected 1"),
        ({"retry": RETRY._replace(factor=999)}, "retry: factor 999: expected 1000"),
        ({"retry": RETRY._replace(max_ms=0)}, "retry: max_ms 0: expected 1"),
        ({"retry": RETRY._replace(jitter=1_001)}, "retry: jitter 1001: expected 0 to 1000"),
        ({"retry": RETRY._replace(attempts=1_001)}, "retry: attempts 1001: expected 0 to 1000"),
        ({"retry": RETRY._replace(dead_letter="")}, "retry: dead_letter: records without an attempt left"),
        ({"retry": RETRY._replace(dead_letter="orders")}, "dead_letter 'orders' is the default_target"),
        ({"retry": RETRY._replace(dead_letter="orders.rejected")}, "dead_letter 'orders.rejected': a delay, state"),
        ({"retry": RETRY._replace(dead_letter="x.rejected")}, "dead_letter 'x.rejected': topics whose names end"),
        ({"retry": RETRY, "recurring": True}, "retry and recurring exclude each other"),
        ({"retry": RETRY, "aliases": (Alias("Delay-Target", HeaderRole.TO),)}, "alias 'Delay-Target': retries give"),
        ({"default_target": "x.delay-backfill"}, "default_target 'x.delay-backfill'"),
        ({"allowed_targets": ("*.receipts",)}, "allowed_targets '\\*.receipts'"),
        ({"target_rules": (TargetRule("a"), TargetRule("a", 1))}, "target_rules: 'a' is named twice"),
        ({"target_rules": (TargetRule("a", -1),)}, "target_rules 'a': max_delay_ms -1"),
    ],
)
def test_rules_that_cannot_be_are_refused_by_the_name_of_the_field(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        replace(RULES, **wrong)


def test_rules_that_mean_the_same_are_equal_and_have_the_same_json() -> None:
    one = Rules("d", "t", ("a", "b"), 5, (*PRESETS["etf1"], *PRESETS["cesium"]), frozenset({"s", "r"}))
    other = Rules("d", "t", ("b", "a", "b"), 5, (*PRESETS["cesium"], *PRESETS["etf1"] * 2), frozenset({"r", "s", "d"}))
    assert one == other
    assert hash(one) == hash(other)
    assert one.to_json() == other.to_json()
    one.decide([("deliver-to", b"a")], 0)
    assert one == other, "what was decided before is no part of the rules"


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "other"},
        {"default_target": "billing"},
        {"allowed_targets": ("billing",)},
        {"max_delay_ms": 1},
        {"aliases": PRESETS["etf1"]},
        {"forbidden_targets": frozenset({"x"})},
        {"require_time": True},
        {"recurring": True},
        {"min_period_ms": 10},
        {"delay_ms": 10},
        {"spread_ms": 10},
        {"target_rules": (TargetRule("a", spread_ms=0),)},
        {"ignores_unknown": True},
        {"retry": RETRY},
        {"retry": RETRY._replace(jitter=0)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_field_counts(change: dict[str, Any]) -> None:
    changed = replace(RULES, **change)
    assert changed != RULES
    assert changed.to_json() != RULES.to_json()


def test_rules_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        RULES.max_delay_ms = 0  # type: ignore[misc]


def test_the_json_is_what_is_stored_in_the_state_topic() -> None:
    """A golden test: if this changes, stored rules of running routers become unreadable."""
    rules = Rules("d", "t", ("b.*", "a"), 5, (Alias("x", HeaderRole.AT, Unit.S),), frozenset({"r"}))
    stored = (
        b'{"aliases":[["x","at","s"]],"allowed_targets":["a","b.*"],"default_target":"t",'
        b'"forbidden_targets":["d","r"],"max_delay_ms":5,"topic":"d","version":%d}'
    )
    assert rules.to_json() == stored % 6
    assert replace(rules, version=2).to_json() == stored % 2
    ruled = replace(rules, at_once=True, target_rules=(TargetRule("b", None, False), TargetRule("a", 0)))
    assert ruled.to_json() == (
        b'{"aliases":[["x","at","s"]],"allowed_targets":["a","b.*"],"at_once":true,"default_target":"t",'
        b'"forbidden_targets":["d","r"],"max_delay_ms":5,"target_rules":[["a",0,true],["b",null,false]],'
        b'"topic":"d","version":6}'
    )
    strict = replace(
        rules, aliases=(Alias("X-Due", HeaderRole.AT, Unit.BE_MS),), require_time=True, ignores_unknown=True
    )
    assert strict.to_json() == (
        b'{"aliases":[["x-due","at","be-ms"]],"allowed_targets":["a","b.*"],"default_target":"t",'
        b'"forbidden_targets":["d","r"],"ignores_unknown":true,"max_delay_ms":5,"require_time":true,"topic":"d",'
        b'"version":6}'
    )
    recurring = replace(rules, recurring=True, min_period_ms=10)
    assert recurring.to_json() == (
        b'{"aliases":[["x","at","s"]],"allowed_targets":["a","b.*"],"default_target":"t","forbidden_targets":["d","r"],'
        b'"max_delay_ms":5,"min_period_ms":10,"recurring":true,"topic":"d","version":6}'
    )
    assert Rules.from_json(recurring.to_json()) == recurring
    delaying = replace(rules, delay_ms=300_000)
    assert delaying.to_json() == (
        b'{"aliases":[["x","at","s"]],"allowed_targets":["a","b.*"],"default_target":"t","delay_ms":300000,'
        b'"forbidden_targets":["d","r"],"max_delay_ms":5,"topic":"d","version":6}'
    )
    assert Rules.from_json(delaying.to_json()) == delaying
    spreading = replace(rules, spread_ms=30_000, target_rules=(TargetRule("a", None, True, 0), TargetRule("b", 5)))
    assert spreading.to_json() == (
        b'{"aliases":[["x","at","s"]],"allowed_targets":["a","b.*"],"default_target":"t","forbidden_targets":["d","r"],'
        b'"max_delay_ms":5,"spread_ms":30000,"target_rules":[["a",null,true,0],["b",5,true]],"topic":"d","version":6}'
    )
    assert Rules.from_json(spreading.to_json()) == spreading
    retrying = replace(rules, max_delay_ms=0, retry=RETRY)
    assert retrying.to_json() == (
        b'{"aliases":[["x","at","s"]],"allowed_targets":["a","b.*"],"default_target":"t","forbidden_targets":["d","r"],'
        b'"max_delay_ms":0,"retry":{"attempts":8,"dead_letter":"orders.dlq","factor":2000,"first_ms":1000,"jitter":100,'
        b'"max_ms":3600000},"topic":"d","version":6}'
    )
    assert Rules.from_json(retrying.to_json()) == retrying


def test_rules_that_count_no_attempts_are_as_if_there_was_no_retry() -> None:
    off = replace(RULES, retry=RETRY._replace(attempts=0, dead_letter=""))
    assert off == RULES
    assert off.to_json() == RULES.to_json()


def test_the_difference_that_a_retry_makes_is_the_retry_alone() -> None:
    assert differing(RULES, replace(RULES, retry=RETRY)) == ("retry",)
    assert differing(RULES, replace(RULES, version=2)) == ("version",)


@pytest.mark.parametrize(
    ("sound", "damaged"),
    [
        (b'"attempts":8', b'"attempts":0'),
        (b'"attempts":8', b'"attempts":true'),
        (b'"attempts":8,', b""),
        (b'"attempts":8', b'"attempts":8,"beyond":1'),
        (b'"dead_letter":"orders.dlq"', b'"dead_letter":5'),
        (b'"dead_letter":"orders.dlq"', b'"dead_letter":"__x"'),
        (b'"factor":2000', b'"factor":2.0'),
        (b'"retry":{', b'"retry":[{'),
    ],
)
def test_a_retry_that_is_damaged_or_of_a_later_version_is_refused(sound: bytes, damaged: bytes) -> None:
    stored = replace(RULES, retry=RETRY).to_json()
    assert sound in stored
    with pytest.raises(FormatError):
        Rules.from_json(stored.replace(sound, damaged))


def test_no_retry_is_stored_as_null_or_by_0_1_0() -> None:
    with pytest.raises(FormatError):
        Rules.from_json(_stored(retry=None))
    with pytest.raises(FormatError, match="version 2 does not know retry"):
        Rules.from_json(replace(RULES, retry=RETRY).to_json().replace(b'"version":6', b'"version":2'))


@pytest.mark.parametrize(
    "stored",
    [
        b'"max_delay_ms":5,"spread_ms":0,"topic"',
        b'"max_delay_ms":5,"spread_ms":"30s","topic"',
        b'"max_delay_ms":5,"spread_ms":86400001,"topic"',
        b'"max_delay_ms":5,"target_rules":[["a",null,true,null]],"topic"',
        b'"max_delay_ms":5,"target_rules":[["a",null,true,true]],"topic"',
        b'"max_delay_ms":5,"target_rules":[["a",null,true,1,1]],"topic"',
        b'"max_delay_ms":5,"spread":"of a later version","topic"',
    ],
)
def test_a_spread_that_is_damaged_or_of_a_later_version_is_refused(stored: bytes) -> None:
    whole = Rules("d", "t", max_delay_ms=5).to_json()
    with pytest.raises(FormatError):
        Rules.from_json(whole.replace(b'"max_delay_ms":5,"topic"', stored))


def test_rules_of_before_are_read_though_they_would_not_be_written_now() -> None:
    """An updated router finds such rules in its state."""
    stored = (
        b'{"aliases":[["X-Due","at","s"],["deliver-cancel","ignored","native"]],"allowed_targets":["b.rejected"],'
        b'"default_target":"other.delay-state","forbidden_targets":["d"],"max_delay_ms":5,"topic":"d","version":2}'
    )
    rules = Rules.from_json(stored)
    assert rules.to_json() == stored
    assert rules.allowed("b.rejected")
    with pytest.raises(ValueError, match=r"default_target 'other.delay-state': .* belong to delay routers"):
        replace(rules, version=6, aliases=(), allowed_targets=())


_topics = st.sampled_from(["a", "b.c", "x-1", "z_"])
_rules = st.builds(
    Rules,
    topic=st.just("delay"),
    default_target=st.just("") | _topics,
    allowed_targets=st.lists(_topics | st.just("b.*"), max_size=3).map(tuple),
    max_delay_ms=st.integers(0, INT64_MAX),
    aliases=st.lists(st.sampled_from(sorted(PRESETS)), max_size=3).map(
        lambda names: tuple(alias for name in names for alias in PRESETS[name])
    ),
    forbidden_targets=st.frozensets(st.sampled_from(["state", "rejected"])),
    enabled=st.booleans(),
    version=st.sampled_from(KNOWN_VERSIONS),
    at_once=st.booleans(),
    target_rules=st.dictionaries(_topics, st.tuples(st.none() | st.integers(0, INT64_MAX), st.booleans())).map(
        lambda ruled: tuple(TargetRule(name, *rule) for name, rule in ruled.items())
    ),
)


@given(rules=_rules)
def test_stored_rules_come_back_equal(rules: Rules) -> None:
    restored = Rules.from_json(rules.to_json())
    assert restored == rules
    assert restored.to_json() == rules.to_json()


def _stored(**changes: object) -> bytes:
    plain = json.loads(RULES.to_json()) | changes
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "stored",
    [
        b"", b"null", b"[]", b"{}", b"\xff", b"1", b"[" * 100_000, b'{"version":1}',
        b'{"version":' + b"9" * 5000 + b"}",
        RULES.to_json()[:-1], RULES.to_json() + b" ", b" " + RULES.to_json(),
        _stored(version=0), _stored(version=1), _stored(version=3), _stored(version=KNOWN_VERSIONS[-1] + 1),
        _stored(version="1"), _stored(version=True),
        _stored(version=None), _stored(max_delay_ms=-1), _stored(max_delay_ms=1.0), _stored(max_delay_ms=True),
        _stored(max_delay_ms=None), _stored(topic=None), _stored(topic=5), _stored(default_target=None),
        _stored(default_target="__x"), _stored(allowed_targets=None), _stored(allowed_targets="ab"),
        _stored(allowed_targets=[1]), _stored(allowed_targets=["b", "a"]), _stored(forbidden_targets=[1, 2]),
        _stored(forbidden_targets=[]), _stored(aliases=[["x", "at"]]), _stored(aliases=[["x", "when", "ms"]]),
        _stored(aliases=[["x", "at", "years"]]), _stored(aliases=[[1, "at", "ms"]]), _stored(surprise=1),
    ],
    ids=lambda stored: ascii(stored[:60]),
)  # fmt: skip
def test_stored_rules_that_cannot_be_trusted_are_refused(stored: bytes) -> None:
    with pytest.raises(FormatError, match="stored rules"):
        Rules.from_json(stored)


def test_rules_of_another_version_are_named_as_such() -> None:
    with pytest.raises(FormatError, match="version 7, and this program knows only 2, 6; upgrade the router"):
        Rules.from_json(json.dumps({"version": 7, "new": "field"}).encode())


@given(stored=st.binary(max_size=60) | st.recursive(st.none() | st.integers() | st.text(max_size=4), st.lists).map(
    lambda plain: json.dumps(plain).encode()
))  # fmt: skip
def test_any_stored_bytes_are_rules_or_refused(stored: bytes) -> None:
    with pytest.raises(FormatError):
        Rules.from_json(stored)

"""The policy that wins, its effect on rules, and the policy in force while one cannot be read."""

from typing import Any

import pytest

from index.errors import ConfigError
from index.rules.rules import Reason, Rejection, Retry, Rules, Schedule
from sidecar.config.model import Config
from sidecar.config.retry import RetryConfig
from sidecar.engine.ownership.ports import TopicSettings
from sidecar.engine.release.rates import TargetLimit
from sidecar.policies.policy import DEFAULT, Scope, policy_of
from sidecar.policies.policy import target_scope as target
from sidecar.policies.policy import topic_scope as topic
from sidecar.policies.table import (
    NO_POLICIES,
    EffectiveValue,
    PolicyTable,
    effective,
    refuse_impossible,
    settings_of,
    with_policy,
    without_reading,
)

CONFIG = Config.model_validate(
    {
        "kafka": {"bootstrap.servers": "x:1"},
        "router": {"tick": "10ms"},
        "delay_topics": [
            {"name": "d", "default_target": "out", "allowed_targets": ["a", "b"], "max_delay": "1h"},
            {"name": "e", "default_target": "out"},
        ],
    }
)
HOUR_MS = 3_600_000


def table(**policies: dict[str, Any]) -> PolicyTable:
    """Make a table of policies by scope, with ``__`` for the slash."""
    made = NO_POLICIES
    for name, values in policies.items():
        scope = Scope.parse(name.replace("__", "/"))
        made = with_policy(made, scope, policy_of(scope, values))
    return made


def settings(policies: PolicyTable, name: str = "d") -> TopicSettings:
    configured = CONFIG.delay_topic(name)
    assert configured is not None
    return settings_of(policies, CONFIG, configured)


def verdict(rules: Rules, after_ms: int, *targets: str) -> str:
    headers = [("deliver-after", b"%d" % after_ms), *(("deliver-to", each.encode()) for each in targets)]
    decision = rules.decide(headers, 1_000)
    if isinstance(decision, Rejection):
        return decision.reason.value
    return "at once" if decision.due_ms == 0 else "later"


def test_without_policies_the_configuration_decides() -> None:
    found = settings(NO_POLICIES)
    configured = CONFIG.delay_topics[0]
    assert (found.topic, found.rules, found.tick_ms) == (configured, CONFIG.rules_for(configured), 10)
    assert not any([found.paused, found.drained, found.gated, found.is_doubtful])


def test_the_most_specific_wins() -> None:
    policies = table(
        default={"max_delay": "2h", "tick": "30ms"}, topic__d={"max_delay": "3h"}, target__a={"max_delay": "4h"}
    )
    found, other = settings(policies), settings(policies, "e")
    assert (found.topic.max_delay_ms, other.topic.max_delay_ms) == (3 * HOUR_MS, 2 * HOUR_MS)
    assert (found.tick_ms, other.tick_ms) == (30, 30)
    assert verdict(found.rules, 4 * HOUR_MS, "a") == "later"
    assert verdict(found.rules, 4 * HOUR_MS, "b") == "MAX_DELAY_EXCEEDED"


def test_zero_is_no_limit_and_the_strictest_of_several_targets_counts() -> None:
    rules = settings(table(target__a={"max_delay": "0"}, target__b={"max_delay": "1m"})).rules
    assert verdict(rules, 1_000 * HOUR_MS, "a") == "later"
    assert verdict(rules, 2 * HOUR_MS) == "MAX_DELAY_EXCEEDED"
    assert verdict(rules, 60_001, "a", "b") == "MAX_DELAY_EXCEEDED"
    assert verdict(rules, 60_000, "a", "b") == "later"
    rejection = rules.decide([("deliver-after", b"60001"), ("deliver-to", b"b")], 0)
    assert rejection == Rejection(Reason.MAX_DELAY_EXCEEDED, "Exceeds max allowed delivery delay of 60000 milliseconds")


def test_the_delay_of_records_without_a_time_belongs_to_one_delay_topic() -> None:
    found = settings(table(topic__d={"delay": "5m"}))
    decided = found.rules.decide(None, 1_000)
    assert isinstance(decided, Schedule)
    assert decided.due_ms == 301_000
    assert settings(table(topic__d={"delay": "5m"}), "e").rules.delay_ms == 0
    assert effective(table(topic__d={"delay": "5m"}), CONFIG, "d")["delay"] == EffectiveValue("5m", "topic/d")
    with pytest.raises(ConfigError, match="policy default: delay: it belongs to one delay topic"):
        table(default={"delay": "5m"})
    # A limit is set for safety, so a delay above it must not cause its refusal.
    assert settings(table(default={"max_delay": "1m"}, topic__d={"delay": "5m"})).rules.max_delay_ms == 60_000


def test_the_retry_of_a_delay_topic_is_set_and_switched_off_by_policy() -> None:
    told = {"first": "2s", "factor": 1.5, "max": "1m", "jitter": 0, "attempts": 3, "dead_letter": "dead"}
    found = settings(table(topic__d={"retry": told}))
    assert found.rules.retry == Retry(2_000, 1_500, 60_000, 0, 3, "dead")
    assert effective(table(topic__d={"retry": told}), CONFIG, "d")["retry"] == EffectiveValue(told, "topic/d")
    assert settings(table(topic__d={"retry": {"attempts": 0}})).rules == settings(table()).rules
    retrying = CONFIG.model_copy(
        update={
            "delay_topics": tuple(
                each.model_copy(update={"retry": RetryConfig(**told)}) for each in CONFIG.delay_topics
            )
        }
    )
    assert settings_of(table(), retrying, retrying.delay_topics[0]).rules.retry == found.rules.retry
    off = settings_of(table(topic__d={"retry": {"attempts": 0}}), retrying, retrying.delay_topics[0])
    assert off.rules == settings(table()).rules
    with pytest.raises(ConfigError, match="policy default: retry: it belongs to one delay topic"):
        table(default={"retry": told})
    # A limit is set for safety, so a wait above it must not cause its refusal, and a delay gives way to the attempts.
    assert settings(table(default={"max_delay": "1s"}, topic__d={"retry": told, "delay": "5m"})).rules.retry is not None


def test_each_target_has_its_own_spread_and_the_largest_counts() -> None:
    policies = table(
        default={"spread": "1m"}, topic__d={"spread": "30s"}, target__a={"spread": "2m"}, target__b={"spread": "0"}
    )
    rules = settings(policies).rules
    assert [rules.spread_ms_of(each) for each in [("out",), ("a",), ("b",), ("b", "out"), ("out", "a")]] == [
        *(30_000, 120_000, 0),
        *(30_000, 120_000),
    ]
    assert settings(policies, "e").rules.spread_ms_of(("out",)) == 60_000
    assert not settings(policies, "e").rules.target_rules, "a target that it does not deliver to changes nothing"
    assert effective(policies, CONFIG, "d", "a")["spread"] == EffectiveValue("2m", "target/a")
    assert effective(policies, CONFIG, "d")["spread"] == EffectiveValue("30s", "topic/d")
    with pytest.raises(ConfigError, match="policy default: spread"):
        table(default={"spread": "2d"})


def test_a_disabled_topic_rejects_or_releases_at_once() -> None:
    assert verdict(settings(table(topic__d={"enabled": False})).rules, 5) == "DELAY_DISABLED"
    at_once = settings(table(topic__d={"enabled": False}, default={"when_disabled": "release"})).rules
    assert verdict(at_once, 5) == verdict(at_once, 9 * HOUR_MS) == "at once"
    assert verdict(at_once, 5, "nowhere") == "TARGET_NOT_ALLOWED"
    assert Rules.from_json(at_once.to_json()) == at_once


def test_a_disabled_target_is_rejected_also_together_with_others() -> None:
    rules = settings(table(target__a={"enabled": False})).rules
    verdicts = [verdict(rules, 5), verdict(rules, 5, "a"), verdict(rules, 5, "b", "a")]
    assert verdicts == ["later", "DELAY_DISABLED", "DELAY_DISABLED"]
    assert Rules.from_json(rules.to_json()) == rules


def test_a_policy_of_a_target_concerns_only_delay_topics_that_may_deliver_there() -> None:
    policies = table(target__a={"max_delay": "1m", "timestamp": "due", "expire_after": "1m", "paused": True})
    assert settings(policies, "e") == settings(NO_POLICIES, "e")


def test_rates_and_pauses_of_targets_name_the_delay_topics_that_share_them() -> None:
    policies = table(target__out={"records_per_second": 5}, target__b={"bytes_per_second": "1KiB", "paused": True})
    assert settings(policies).gated == {
        "out": TargetLimit(5, 0, False, ("d", "e")),
        "b": TargetLimit(0, 1_024, True, ("d",)),
    }
    assert not settings(table(target__out={"records_per_second": 0, "paused": False})).gated


def test_a_shorter_allow_list_holds_at_release() -> None:
    before, after = settings(NO_POLICIES).rules, settings(table(topic__d={"allowed_targets": ["b"]})).rules
    assert (before.allowed("a"), after.allowed("a"), after.allowed("b")) == (True, False, True)


def test_effective_values_tell_where_they_come_from() -> None:
    policies = table(default={"tick": "30ms", "paused": True}, topic__d={"paused": False}, target__a={"max_delay": "0"})
    found = effective(policies, CONFIG, "d")
    assert found["tick"] == EffectiveValue("30ms", "default")
    assert found["paused"] == EffectiveValue(False, "topic/d")
    assert found["max_delay"] == EffectiveValue("1h", "configuration")
    of_target = effective(policies, CONFIG, "d", "a")
    assert of_target["max_delay"] == EffectiveValue("0", "target/a")
    assert "tick" not in of_target
    with pytest.raises(ConfigError, match=r"x is not a configured delay topic .d, e."):
        effective(policies, CONFIG, "x")


@pytest.mark.parametrize(
    ("key", "stops", "goes_on"), [("paused", {"paused": True}, False), ("enabled", {"enabled": False}, True)]
)
def test_a_delay_topic_that_stops_stops_each_target(key: str, stops: dict[str, Any], goes_on: bool) -> None:
    for scope in ("topic__d", "default"):
        policies = table(**{scope: stops}, target__a={key: goes_on, "max_delay": "2m"})
        stopped = settings(policies)
        assert stopped.paused or verdict(stopped.rules, 5, "a") == "DELAY_DISABLED"
        found = effective(policies, CONFIG, "d", "a")
        assert found[key] == EffectiveValue(not goes_on, scope.replace("__", "/"))
        assert found["max_delay"] == EffectiveValue("2m", "target/a")
    both = table(topic__d=stops, target__a=stops)
    assert effective(both, CONFIG, "d", "a")[key] == EffectiveValue(not goes_on, "target/a")
    other = table(topic__d={key: goes_on}, target__a=stops)
    assert effective(other, CONFIG, "d", "a")[key] == EffectiveValue(not goes_on, "target/a")
    assert effective(other, CONFIG, "d", "b")[key] == EffectiveValue(goes_on, "topic/d")


def test_the_pause_that_stops_a_target_is_shown_with_its_reason() -> None:
    policies = table(topic__d={"paused": True, "paused_reason": "moved"}, target__a={"paused": False})
    assert effective(policies, CONFIG, "d", "a")["paused_reason"] == EffectiveValue("moved", "topic/d")


def test_a_disabled_target_rejects_where_its_delay_topic_would_release() -> None:
    for of_topic in ({"when_disabled": "release"}, {"when_disabled": "release", "enabled": False}):
        policies = table(topic__d=of_topic, target__a={"enabled": False})
        assert verdict(settings(policies).rules, 5, "a") == "DELAY_DISABLED"
        assert effective(policies, CONFIG, "d", "a")["when_disabled"] == EffectiveValue("reject", "target/a")
        assert effective(policies, CONFIG, "d", "b")["when_disabled"] == EffectiveValue("release", "topic/d")


def test_what_nobody_sets_is_told_apart() -> None:
    def set_by_somebody(topic: str, target: str = "", **policies: dict[str, Any]) -> set[str]:
        found = effective(table(**policies), CONFIG, topic, target)
        return {key for key, each in found.items() if not each.is_default}

    assert set_by_somebody("e") == {"default_target"}
    assert set_by_somebody("d") == {"default_target", "allowed_targets", "max_delay"}
    # A policy sets a key, though to its default.
    assert set_by_somebody("e", default={"spread": "0"}) == {"default_target", "spread"}
    assert set_by_somebody("e", "out") == set()
    paused = {"paused", "paused_until", "paused_reason"}
    assert set_by_somebody("e", "out", target__out={"paused": True}) == paused


@pytest.mark.parametrize(
    ("scope", "values", "told"),
    [
        (topic("x"), {"tick": "1ms"}, "policy topic/x: x is not a configured delay topic .d, e."),
        (target("d.rejected"), {"max_delay": "1h"}, "the router's own and never a target"),
        (topic("d"), {"default_target": "e"}, "policy topic/d: with it delay topic d cannot work: default_target 'e'"),
    ],
)
def test_what_no_delay_topic_can_work_with_is_refused(scope: Scope, values: dict[str, Any], told: str) -> None:
    policies = with_policy(NO_POLICIES, scope, policy_of(scope, values))
    with pytest.raises(ConfigError, match=told):
        refuse_impossible(policies, CONFIG, scope)


def test_what_cannot_be_read_keeps_what_is_known_of_its_scope() -> None:
    known = without_reading(table(topic__d={"tick": "30ms"}), "topic/d", [topic("d")], "damaged")
    assert (settings(known).tick_ms, settings(known).is_doubtful) == (30, False)
    assert known.unreadable == {"topic/d": "damaged"}
    unknown = without_reading(NO_POLICIES, "topic/d", [topic("d")], "damaged")
    assert (settings(unknown).is_doubtful, settings(unknown, "e").is_doubtful) == (True, False)
    assert settings(without_reading(NO_POLICIES, "default", [DEFAULT], "damaged"), "e").is_doubtful
    mended = with_policy(unknown, topic("d"), None)
    assert mended.unreadable == {}
    assert not settings(mended).is_doubtful


def test_a_due_time_is_decided_alike_with_and_without_policies_that_do_not_concern_it() -> None:
    decision = settings(table(target__a={"max_delay": "2h"})).rules.decide([("deliver-after", b"5")], 10)
    assert isinstance(decision, Schedule)
    assert decision == settings(NO_POLICIES).rules.decide([("deliver-after", b"5")], 10)

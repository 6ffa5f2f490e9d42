"""Pauses that end by themselves, and how they are shown."""

from typing import Any

import pytest

from sidecar.config.model import Config
from sidecar.config.units import parse_instant
from sidecar.policies.pauses import MOST_TOLD, in_force, next_end_ms, why_paused
from sidecar.policies.policy import DEFAULT, Policy, Scope, plain_of, policy_of, target_scope, topic_scope
from sidecar.policies.settings import PolicySettings
from sidecar.policies.table import EffectiveValue, PolicyTable, effective

CONFIG = Config.model_validate(
    {"kafka": {"bootstrap.servers": "x:1"}, "delay_topics": [{"name": "d", "allowed_targets": ["*"]}]}
)
UNTIL = "2030-01-31T08:00:00Z"
END_MS = parse_instant(UNTIL)
ENDS: dict[str, Any] = {"paused": True, "paused_until": UNTIL, "paused_reason": "billing is moved"}
D = topic_scope("d")


def policies(**said: dict[str, Any]) -> dict[Scope, Policy]:
    scopes = {Scope.parse(name.replace("__", "/")): values for name, values in said.items()}
    return {scope: policy_of(scope, values) for scope, values in scopes.items()}


@pytest.mark.parametrize(("now_ms", "holds"), [(END_MS - 1, True), (END_MS, False), (END_MS + 1, False)])
def test_what_has_ended_is_as_if_it_had_never_been_set(now_ms: int, holds: bool) -> None:
    found = in_force(policies(default={"paused": True}, topic__d={**ENDS, "max_delay": "1h"}), now_ms)
    assert plain_of(found[D]) == ({**ENDS, "max_delay": "1h"} if holds else {"max_delay": "1h"})
    assert plain_of(found[DEFAULT]) == {"paused": True}, "nobody has said when it ends"


def test_the_next_end_is_the_first_that_is_to_come() -> None:
    later = {**ENDS, "paused_until": "2031-01-01T00:00:00Z"}
    told = policies(topic__d=ENDS, target__a=later, default={"paused": True})
    assert next_end_ms(told, END_MS - 1) == END_MS
    assert next_end_ms(told, END_MS) == parse_instant("2031-01-01T00:00:00Z")
    assert next_end_ms(policies(default={"paused": True}), 0) is None


def test_people_are_told_what_is_paused_by_whom_until_when_and_why() -> None:
    told = policies(default={"paused": True}, topic__d=ENDS, target__a={"paused": True}, target__b={"max_delay": "1h"})
    assert why_paused(told, "d", ["a", "b", "c"]) == (
        f"paused until {UNTIL} by policy topic/d: billing is moved; target a is paused by policy target/a"
    )
    assert why_paused(told, "e", []) == "paused by policy default"
    assert why_paused(policies(default={"paused": True}, topic__d={"paused": False}), "d", []) == ""
    many = {target_scope(f"t{n}"): policy_of(target_scope(f"t{n}"), {"paused": True}) for n in range(MOST_TOLD + 2)}
    assert why_paused(many, "d", [scope.name for scope in many]).endswith("; and 2 more")


class Told:
    """Policies as they were written."""

    def __init__(self, **said: dict[str, Any]) -> None:
        self.table = PolicyTable(policies(**said))

    def settle(self) -> None:
        """Do nothing: there is nothing to wait for."""


def test_a_partition_is_released_from_again_once_the_time_has_come_and_no_clock_takes_it_back() -> None:
    told = Told(topic__d=ENDS, target__a=ENDS)
    source = PolicySettings(told, CONFIG, CONFIG.delay_topics[0])
    before = source.version(END_MS - 1)
    settings = source.read()
    assert (settings.paused, settings.gated["a"].paused) == (True, True)
    assert source.version(END_MS - 1) is before
    after = source.version(END_MS)
    assert after is not before
    settings = source.read()
    assert (settings.paused, settings.gated, settings.why_paused) == (False, {}, "")
    assert source.version(END_MS - 10_000) is after, "a clock that was set back"
    told.table = PolicyTable(policies(topic__d={**ENDS, "max_delay": "1h"}, target__a=ENDS))
    assert source.version(END_MS - 10_000) is not after
    settings = source.read()
    assert (settings.paused, settings.gated) == (False, {}), "another policy was changed, with the clock set back"
    again = {**ENDS, "paused_until": "2030-01-31T08:00:01Z"}
    told.table = PolicyTable(policies(topic__d=again))
    assert source.version(END_MS - 10_000)
    assert source.read().paused, "a new pause"
    assert source.version(END_MS + 1_000)
    assert not source.read().paused
    told.table = PolicyTable(policies(default={"paused": True}))
    assert source.version(END_MS) is not after
    assert source.read().paused


def test_what_is_said_of_a_pause_is_shown_of_the_policy_that_pauses() -> None:
    config = {"paused_until": "", "paused_reason": ""}

    def shown(target: str = "", **said: dict[str, Any]) -> dict[str, EffectiveValue]:
        return {key: effective(PolicyTable(policies(**said)), CONFIG, "d", target)[key] for key in ("paused", *config)}

    of_default = {key: EffectiveValue(value, "default") for key, value in ENDS.items()}
    assert shown(default=ENDS) == of_default
    nothing = {key: EffectiveValue("", "topic/d") for key in config}
    assert shown(default=ENDS, topic__d={"paused": True}) == {"paused": EffectiveValue(True, "topic/d"), **nothing}
    of_target = {"paused": EffectiveValue(True, "target/a"), **{key: EffectiveValue("", "target/a") for key in config}}
    assert shown("a", default=ENDS, target__a={"paused": True}) == of_target

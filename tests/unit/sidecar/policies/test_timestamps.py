"""The targets whose records get another timestamp than that of release, by configuration and by policies."""

from typing import Any

from sidecar.config.model import Config
from sidecar.policies.policy import Scope, policy_of
from sidecar.policies.table import NO_POLICIES, PolicyTable, with_policy
from sidecar.policies.timestamps import Stamp, stamps

CONFIG = Config.model_validate(
    {
        "kafka": {"bootstrap.servers": "x:1"},
        "delay_topics": [
            {"name": "d", "default_target": "out", "allowed_targets": ["a", "b.*"]},
            {"name": "e", "default_target": "out", "timestamp": "source"},
        ],
    }
)


def table(policies: dict[str, dict[str, Any]]) -> PolicyTable:
    made = NO_POLICIES
    for name, values in policies.items():
        scope = Scope.parse(name)
        made = with_policy(made, scope, policy_of(scope, values))
    return made


def stamped(**policies: dict[str, Any]) -> list[Stamp]:
    """Return the stamps under policies by scope, with ``__`` for the slash."""
    return [*stamps(table({name.replace("__", "/"): values for name, values in policies.items()}), CONFIG)]


def test_by_configuration() -> None:
    assert stamped() == [Stamp("e", "out", "source", "configuration")]


def test_a_policy_of_a_target_says_so_for_each_delay_topic_that_may_deliver_there() -> None:
    by_policy = {"target__out": {"timestamp": "due"}, "target__b.1": {"timestamp": "due"}}
    assert stamped(**by_policy, target__elsewhere={"timestamp": "due"}) == [
        Stamp("d", "out", "due", "policy target/out"),
        Stamp("d", "b.1", "due", "policy target/b.1"),
        Stamp("e", "out", "due", "policy target/out"),
    ]


def test_the_nearest_scope_wins() -> None:
    everywhere = {"default": {"timestamp": "due"}, "target__out": {"timestamp": "release"}}
    assert stamped(**everywhere) == [Stamp("d", "a", "due", "policy default")]
    assert stamped(**everywhere, topic__d={"timestamp": "source"}) == [Stamp("d", "a", "source", "policy topic/d")]
    assert stamped(topic__e={"timestamp": "release"}) == []


def test_targets_that_a_policy_names_count_as_those_of_the_configuration() -> None:
    assert stamped(topic__e={"default_target": "new"}) == [Stamp("e", "new", "source", "configuration")]

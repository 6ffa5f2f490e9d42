"""The changes of policies by an operator, with the policies topic in memory; and the same operations over HTTP."""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from index.errors import ConfigError
from sidecar.config.model import Config
from sidecar.operations import desk
from sidecar.operations.asking import api_client
from sidecar.operations.asking.api_client import ApiClient
from sidecar.operations.desk import IrreconcilableError, Operations
from sidecar.policies.origin import NOBODY, ChangeOrigin
from sidecar.policies.policy import DEFAULT, Policy, Scope, plain_of, policy_of, target_scope, topic_scope
from sidecar.policies.table import NO_POLICIES, with_policy

CONFIG = Config.model_validate(
    {
        "kafka": {"bootstrap.servers": "x:1"},
        "delay_topics": [{"name": "d", "default_target": "out", "allowed_targets": ["billing.*"]}],
    }
)

NOW_MS = 1_000_000


class InMemory:
    """Policies, and the topic they are written to."""

    def __init__(self) -> None:
        self.table = NO_POLICIES
        self.origins: list[ChangeOrigin] = []
        self.looks = 0

    def settle(self) -> None:
        self.looks += 1

    def write(self, _: Config, scope: Scope, policy: Policy | None, origin: ChangeOrigin) -> None:
        self.table = with_policy(self.table, scope, policy)
        self.origins.append(origin)

    def plain(self) -> dict[str, dict[str, Any]]:
        return {str(scope): plain_of(policy) for scope, policy in self.table.policies.items()}


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> InMemory:
    made = InMemory()
    monkeypatch.setattr(desk, "write_policy", made.write)
    monkeypatch.setattr(desk, "topic_facts", lambda _, names: dict.fromkeys(names, "there"))
    return made


@pytest.fixture
def operations(policies: InMemory) -> Operations:
    nobody: Any = None
    return Operations(CONFIG, nobody, policies, nobody, now_ms=lambda: NOW_MS)


def test_a_change_says_in_whose_name_it_is(operations: Operations, policies: InMemory) -> None:
    alice, token = (
        ChangeOrigin("alice", "command", "host"),
        ChangeOrigin("token 0123 (operate)", "admin API", "10.0.0.1"),
    )
    operations.by(alice).change_policy(DEFAULT, {"max_delay": "1h"})
    operations.by(token).switch(target_scope("out"), "paused", on=True)
    operations.by(token).remove_policy(DEFAULT)
    operations.replace_policy(DEFAULT, {"tick": "1ms"})
    assert policies.origins == [alice, token, token, NOBODY]


def test_a_target_is_paused_and_resumed_beside_what_else_is_set(operations: Operations, policies: InMemory) -> None:
    operations.change_policy(target_scope("billing.eu"), {"max_delay": "1h"})
    operations.switch(target_scope("billing.eu"), "paused", on=True)
    operations.switch(target_scope("out"), "paused", on=True)
    assert policies.plain() == {
        "target/billing.eu": {"max_delay": "1h", "paused": True},
        "target/out": {"paused": True},
    }
    operations.switch(target_scope("billing.eu"), "paused", on=False)
    operations.switch(target_scope("out"), "paused", on=False)
    operations.switch(target_scope("out"), "paused", on=False)
    assert policies.plain() == {"target/billing.eu": {"max_delay": "1h"}}


def test_a_target_is_not_paused_while_policies_contradict_the_configuration(
    operations: Operations, policies: InMemory
) -> None:
    """Such a policy was right for the configuration that routers had when it was written."""
    contradicting = policy_of(topic_scope("d"), {"default_target": "d"})
    policies.table = with_policy(policies.table, topic_scope("d"), contradicting)
    with pytest.raises(IrreconcilableError, match="the policies of d cannot be reconciled"):
        operations.switch(target_scope("out"), "paused", on=True)


def test_a_target_that_nothing_goes_to_is_a_slip_of_the_pen(operations: Operations, policies: InMemory) -> None:
    with pytest.raises(ConfigError, match="no delay topic of this router may deliver to bilings; see allowed_targets"):
        operations.switch(target_scope("bilings"), "paused", on=True)
    operations.change_policy(topic_scope("d"), {"allowed_targets": ["bilings"]})
    operations.switch(target_scope("bilings"), "paused", on=True)
    operations.change_policy(topic_scope("d"), {"allowed_targets": []})
    operations.switch(target_scope("bilings"), "paused", on=False)
    assert "target/bilings" not in policies.plain()


def test_a_pause_may_end_by_itself_and_a_new_one_has_nothing_of_it(operations: Operations, policies: InMemory) -> None:
    operations.switch(target_scope("out"), "paused", on=True, until_ms=NOW_MS + 1_000, reason="moved")
    said = {"paused": True, "paused_until": "1970-01-01T00:16:41Z", "paused_reason": "moved"}
    assert policies.plain() == {"target/out": said}
    operations.switch(target_scope("out"), "paused", on=True, reason="broken")
    assert policies.plain() == {"target/out": {"paused": True, "paused_reason": "broken"}}
    operations.switch(target_scope("out"), "paused", on=False)
    assert policies.plain() == {}
    with pytest.raises(ConfigError, match="paused_until: 1970-01-01T00:16:40Z is over; name a later time"):
        operations.switch(target_scope("out"), "paused", on=True, until_ms=NOW_MS)


def test_a_pause_that_has_ended_is_forgotten_by_the_next_change(operations: Operations, policies: InMemory) -> None:
    said = {"paused": True, "paused_until": "1970-01-01T00:16:40Z"}
    for scope in (DEFAULT, topic_scope("d")):
        policies.table = with_policy(policies.table, scope, policy_of(scope, said))
    assert operations.effective("d")["paused"].value is False
    operations.change_policy(topic_scope("d"), {"max_delay": "1h"})
    operations.switch(topic_scope("d"), "paused", on=False)
    assert policies.plain() == {"default": said, "topic/d": {"max_delay": "1h"}}, "nothing to be an exception of"


def test_a_delay_topic_becomes_an_exception_where_all_are_paused(operations: Operations, policies: InMemory) -> None:
    operations.switch(topic_scope("d"), "paused", on=True)
    operations.switch(topic_scope("d"), "paused", on=False)
    assert policies.plain() == {}
    operations.change_policy(DEFAULT, {"paused": True})
    operations.switch(topic_scope("d"), "paused", on=False)
    assert policies.plain() == {"default": {"paused": True}, "topic/d": {"paused": False}}


def test_a_policy_that_readers_would_not_take_is_not_written(operations: Operations, policies: InMemory) -> None:
    patterns = [f"t{number:05}" for number in range(6_000)]
    with pytest.raises(ConfigError, match="longer than 65536 bytes"):
        operations.replace_policy(topic_scope("d"), {"allowed_targets": patterns})
    assert policies.plain() == {}


def test_a_reader_sees_a_change_of_these_operations_at_once(
    operations: Operations, policies: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "FRESH_FOR_S", 3_600)
    for _ in range(20):
        assert operations.policies() == ({}, {})
    assert policies.looks == 1
    operations.by(ChangeOrigin("alice")).change_policy(DEFAULT, {"tick": "1ms"})
    assert operations.policies() == ({"default": {"tick": "1ms"}}, {})


def _public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


WITHOUT_HTTP = {
    "by",
    "for_command",
    "start",
    "table",
    "history",
    "attempts",
    "routers",
    "record",
    "rejected_codes",
    "rejected_counts",
    "rejected_record",
    "replace_policy",
    "replace_schedules",
}
"""The operations that no command with ``--api`` uses."""


def test_the_client_of_the_api_has_every_operation_that_commands_use() -> None:
    assert _public(Operations) - _public(ApiClient) == WITHOUT_HTTP
    assert _public(ApiClient) - _public(Operations) == {"is_in_the_clear"}


@pytest.mark.parametrize("name", sorted(_public(Operations) - WITHOUT_HTTP))
def test_an_operation_over_http_has_the_same_parameters_and_returns_the_same(name: str) -> None:
    straight, over_http = getattr(Operations, name), getattr(ApiClient, name)
    assert _parameters(straight) == _parameters(over_http)
    # The client imports some types only for type checks, so that commands load fast.
    names = {**vars(desk), **vars(api_client)}
    assert get_type_hints(straight) == get_type_hints(over_http, names)


def _parameters(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]

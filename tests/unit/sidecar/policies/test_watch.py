"""What a process shows of policies that change while it runs."""

from typing import Any

from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

from sidecar.config.model import Config
from sidecar.policies.policy import Policy, Scope, topic_scope
from sidecar.policies.table import PolicyTable
from sidecar.policies.watch import PolicyWatch

CONFIG = Config.model_validate({"kafka": {"bootstrap.servers": "nobody.invalid:1"}})
CHANGED = "delay_router_policy_changed_timestamp_seconds"


def test_a_change_is_marked_with_its_time_and_what_was_there_at_the_start_is_none() -> None:
    registry = CollectorRegistry()
    # Never started, so it asks nobody.
    watch = PolicyWatch(CONFIG, AdminClient({**CONFIG.kafka}), registry)

    def changed() -> set[Any]:
        return {s.labels["policy"] for family in registry.collect() for s in family.samples if s.name == CHANGED}

    before: dict[Scope, Policy] = {topic_scope("d"): Policy(paused=True)}
    watch._publish(PolicyTable(before))
    assert changed() == set()
    watch._publish(PolicyTable({**before, topic_scope("e"): Policy(paused=True)}))
    assert changed() == {"topic/e"}
    watch._publish(PolicyTable({}))
    assert changed() == {"topic/d", "topic/e"}
    assert (registry.get_sample_value(CHANGED, {"policy": "topic/d"}) or 0) > 1_700_000_000

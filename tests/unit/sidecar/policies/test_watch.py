"""The metrics and log lines of a process about policies that change while it runs."""

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from sidecar.config.model import Config
from sidecar.kafka.client.admin import TopicFacts
from sidecar.policies import watch as watching
from sidecar.policies.origin import Change, ChangeOrigin
from sidecar.policies.policy import Policy, Scope, topic_scope
from sidecar.policies.table import NO_POLICIES, PolicyTable
from sidecar.policies.watch import PolicyWatch

CONFIG = Config.model_validate({"kafka": {"bootstrap.servers": "nobody.invalid:1"}})
CHANGED = "delay_router_policy_changed_timestamp_seconds"


def test_a_change_is_marked_with_its_time_and_what_was_there_at_the_start_is_none() -> None:
    registry = CollectorRegistry()
    # The watch is never started, so it sends no request.
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


def test_the_log_names_who_changed_a_policy_last_and_through_what() -> None:
    watch = PolicyWatch(CONFIG, AdminClient({**CONFIG.kafka}), CollectorRegistry())
    d, e, paused = topic_scope("d"), topic_scope("e"), Policy(paused=True)
    alice, bob = (
        ChangeOrigin("alice", "command", "ops-1"),
        ChangeOrigin("token 1f2e (operate)", "admin API", "10.1.2.3"),
    )
    changes = (Change(d, paused, alice, 1), Change(e, paused, alice, 2), Change(d, None, bob, 3))
    with capture_logs() as logs:
        watch._publish(PolicyTable({d: paused, e: paused}, changes=changes[:2]))
        watch._publish(PolicyTable({e: paused}, changes=changes))
        # The topic no longer says who removed this policy.
        watch._publish(PolicyTable({}))
    told = [tuple(each[key] for key in ("policy", "is_set", "by", "through", "address")) for each in logs]
    assert sorted(told[:2]) == [("topic/d", True, *alice), ("topic/e", True, *alice)]
    assert told[2:] == [("topic/d", False, *bob), ("topic/e", False, "", "", "")]


TOPIC = CONFIG.router.policies_topic


def facts(topic_id: str) -> dict[str, Any]:
    return {TOPIC: TopicFacts(TOPIC, topic_id, 1, 1, frozenset(), None)}


class Silent:
    """A reader that reaches the end some times, and hears nothing from then on."""

    table = NO_POLICIES

    def __init__(self, watch: PolicyWatch, ends: int, polls: int) -> None:
        self._watch = watch
        self._ends = ends
        self._polls = polls

    def poll(self, _: float) -> bool:
        self._ends, self._polls = self._ends - 1, self._polls - 1
        if self._polls == 0:
            self._watch.stop()
        return self._ends >= 0

    def look_again(self) -> None:
        """Ask for the end once more, in vain."""


@pytest.mark.parametrize(
    ("ends", "questions", "is_replaced"), [(0, 0, True), (1, 0, False), (1, 1, True)], ids=["start", "idle", "asked"]
)
def test_a_reader_that_hears_nothing_is_replaced_where_something_waits(
    ends: int, questions: int, *, is_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LOOK_AGAIN_S", 0.0)
    watch = PolicyWatch(CONFIG, AdminClient({**CONFIG.kafka}), CollectorRegistry())
    reader: Any = Silent(watch, ends, polls=100)
    monkeypatch.setattr(watch, "_asked", 0)
    if questions:
        monkeypatch.setattr(watch, "_answer", lambda _: setattr(watch, "_asked", questions))
    watch._keep_reading(reader, 0)
    assert watch._stopping.is_set() is not is_replaced


def test_a_topic_that_was_created_again_is_read_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader gets no error where the new topic is longer than the position in the old one."""
    watch = PolicyWatch(CONFIG, AdminClient({**CONFIG.kafka}), CollectorRegistry())
    d, e = topic_scope("d"), topic_scope("e")
    contents = iter([("old", {d: Policy(paused=True)}), ("new", {e: Policy(paused=True)})])
    read: list[str] = []

    class Reader:
        """Reads one incarnation of the topic; the topic is created again once the first one is read."""

        def __init__(self, *_: object) -> None:
            self.topic_id, policies = next(contents)
            self.table = PolicyTable(policies)

        def poll(self, _: float) -> bool:
            read.append(self.topic_id)
            watch.learn({TOPIC: None})
            watch.learn({"another topic": facts("else")[TOPIC]})
            if read.count("new") == 2:
                watch.stop()
            elif read.count("old") == 2:
                watch.learn(facts("new"))
            return True

        def close(self) -> None:
            """Close nothing."""

    monkeypatch.setattr(watching, "PolicyReader", Reader)
    present = iter([facts("old"), facts("new")])
    monkeypatch.setattr(watching, "topic_facts", lambda *_: next(present))
    with capture_logs() as logs:
        watch.run()
    assert read == ["old", "old", "new", "new"]
    assert watch.table.policies == {e: Policy(paused=True)}
    told = [each for each in logs if each["event"] == "policies_topic_created_again"]
    assert [(each["topic_id"], each["before"]) for each in told] == [("new", "old")]


def test_the_end_of_a_reader_answers_no_question_that_was_put_after_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = PolicyWatch(CONFIG, AdminClient({**CONFIG.kafka}), CollectorRegistry())
    steps: list[tuple[str, int]] = []

    class Reader:
        """Is always at its end; a take-over asks once it has begun to read."""

        table = NO_POLICIES

        def __init__(self, *_: object) -> None:
            watch._asked += 1

        def poll(self, _: float) -> bool:
            steps.append(("poll", watch._answered))
            if len(steps) == 3:
                watch.stop()
            return True

        def look_again(self) -> None:
            steps.append(("look again", watch._answered))

        def close(self) -> None:
            """Close nothing."""

    monkeypatch.setattr(watching, "PolicyReader", Reader)
    monkeypatch.setattr(watching, "topic_facts", lambda *_: facts("id"))
    watch.run()
    assert steps == [("poll", 0), ("look again", 0), ("poll", 0)]
    assert watch._answered == 1

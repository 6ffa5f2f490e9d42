"""A change of policies in a partition that is being served: some take effect at once, others with an epoch."""

from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from index.errors import RefusedError
from index.partition.partition import PartitionIndex
from index.pending.progress import Position, Progress
from index.rules.rule_history import RuleEpoch, RuleHistory
from index.rules.rules import Rules
from sidecar.config.model import Config
from sidecar.engine.context import PartitionContext
from sidecar.engine.ownership.ports import TopicSettings
from sidecar.engine.ownership.rule_changes import AGAIN_AFTER_S, RuleChanges
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import scheduled_size
from sidecar.engine.release.transaction import Request
from sidecar.metrics import Metrics
from sidecar.policies.policy import policy_of, topic_scope
from sidecar.policies.settings import PolicySettings
from sidecar.policies.table import NO_POLICIES, PolicyTable, with_policy, without_reading
from tests.support.hand_clock import HandClock

CONFIG = Config.model_validate(
    {"kafka": {"bootstrap.servers": "x:1"}, "delay_topics": [{"name": "d", "default_target": "out", "max_delay": "1h"}]}
)
RULES = CONFIG.rules_for(CONFIG.delay_topics[0])
SCOPE = topic_scope("d")
PROGRESS = Progress(cursor=90, watermark=Position(5, 7), sealed_to=40)


class Told:
    """Policies as the test sets them."""

    def __init__(self) -> None:
        self.table = NO_POLICIES

    def settle(self) -> None:
        """Do nothing: there is nothing to wait for."""

    def say(self, **values: Any) -> None:
        """Set the policy of the delay topic."""
        self.table = with_policy(self.table, SCOPE, policy_of(SCOPE, values))


def changes_of(told: Told, clock: HandClock | None = None) -> RuleChanges:
    topic = CONFIG.delay_topics[0]
    context = PartitionContext(topic, 0, "g", Metrics(), clock or HandClock())
    return RuleChanges(PolicySettings(told, CONFIG, topic), context)


def begun(told: Told, rules: Rules = RULES) -> RuleChanges:
    changes = changes_of(told)
    changes.begin(RuleHistory.beginning(0, rules))
    return changes


def ledger_at(progress: Progress, indexed_to: int) -> PartitionLedger:
    ledger: PartitionLedger = PartitionIndex(progress, scheduled_size)
    ledger.advance(indexed_to)
    return ledger


def joined(changes: RuleChanges, indexed_to: int = 100) -> Request | None:
    return changes.request(ledger_at(PROGRESS, indexed_to), ())


def begins(changes: RuleChanges, indexed_to: int = 100) -> RuleHistory:
    return begins_in(changes, ledger_at(PROGRESS, indexed_to))


def begins_in(changes: RuleChanges, ledger: PartitionLedger, held: Sequence[int] = ()) -> RuleHistory:
    request = changes.request(ledger, held)
    assert request is not None
    assert request.history is not None
    return request.history


def changed_twice() -> RuleChanges:
    """Make changes whose last rules wait for their epoch, behind an epoch that begins at 60."""
    told = Told()
    changes = changes_of(told)
    changes.begin(RuleHistory.beginning(0, RULES).with_epoch(60, Rules("d", default_target="other")))
    told.say(max_delay="2h")
    assert changes.look() is not None
    return changes


def committed(changes: RuleChanges, history: RuleHistory) -> RuleHistory:
    """Commit a history; return the one that is in force after it."""
    entered: list[RuleHistory] = []
    changes.on_entered = entered.append
    changes.committed(Request(changes, history=history), ())
    return entered[0]


class Impossible:
    """Settings that cannot be reconciled from the second version on."""

    def __init__(self, settings: TopicSettings) -> None:
        self.settings = settings
        self.versions: list[object] = [object()]

    def version(self, _now_ms: int) -> object:
        return self.versions[-1]

    def read(self) -> TopicSettings:
        if len(self.versions) > 1:
            raise ValueError("target out is not allowed")
        return self.settings


def test_policies_that_cannot_be_reconciled_change_nothing_and_begin_nothing() -> None:
    source = Impossible(begun(Told()).settings)
    context = PartitionContext(CONFIG.delay_topics[0], 0, "g", Metrics(), HandClock())
    changes = RuleChanges(source, context)
    source.versions.append(object())
    with capture_logs() as logs:
        assert changes.look() is None
        assert changes.look() is None
    assert [(each["event"], each["why"]) for each in logs] == [("policies_impossible", "target out is not allowed")]
    assert changes.settings == source.settings
    with pytest.raises(RefusedError, match="the policies of d cannot be: target out is not allowed"):
        RuleChanges(source, context)


def test_a_change_that_the_transaction_left_out_is_requested_again() -> None:
    told = Told()
    changes = begun(told)
    told.say(max_delay="2h")
    assert changes.look() is not None
    request = joined(changes)
    assert request is not None
    assert not request.can_be_left_out
    changes.left_out(request)
    changes.refused(request, "no room")
    assert joined(changes) == request


def test_without_a_change_nothing_is_done() -> None:
    told = Told()
    changes = begun(told)
    assert changes.look() is None
    told.table = PolicyTable()
    assert changes.look() is None, "another table that says the same"
    assert joined(changes) is None


def test_new_rules_begin_where_indexing_stands_and_old_ones_stay_for_what_is_in_memory() -> None:
    told = Told()
    changes = begun(told)
    told.say(max_delay="2h", paused=True)
    settings = changes.look()
    assert settings is not None
    assert settings.paused
    history = begins(changes)
    assert history == RuleHistory.beginning(0, RULES).with_epoch(100, settings.rules)
    assert begins(changes, 120).last.from_offset == 120, "until it is committed, it goes on moving"
    assert committed(changes, history) == history
    assert joined(changes) is None


def test_rules_of_before_stay_while_the_bucket_that_is_filled_begins_under_them() -> None:
    changes = changed_twice()
    ledger = ledger_at(PROGRESS, 100)
    ledger.plan(1, 10, 1_000)
    ledger.confirm()
    assert ledger.committed.sealed_to == 100
    assert [epoch.from_offset for epoch in begins_in(changes, ledger).epochs] == [0, 60, 100]


def test_rules_of_before_stay_while_a_record_that_they_decided_is_held() -> None:
    changes = changed_twice()
    ledger = ledger_at(PROGRESS._replace(cursor=90, sealed_to=90), 100)
    for held, starts in [((70,), [60, 100]), ((59, 70), [0, 60, 100])]:
        assert [epoch.from_offset for epoch in begins_in(changes, ledger, held).epochs] == starts


def test_what_is_decided_at_release_needs_no_epoch() -> None:
    told = Told()
    changes = begun(told)
    told.say(paused=True, expire_after="1m", tick="1ms", timestamp="due", placement="inline")
    assert changes.look() is not None
    assert joined(changes) is None


def test_a_change_taken_back_before_it_was_committed_never_was() -> None:
    told = Told()
    changes = begun(told)
    told.say(max_delay="2h")
    assert changes.look() is not None
    told.say()
    assert changes.look() is not None
    assert joined(changes) is None


def test_what_cannot_be_read_at_all_leaves_the_rules_of_the_state() -> None:
    told = Told()
    told.table = without_reading(NO_POLICIES, "topic/d", [SCOPE], "damaged")
    stored = Rules("d", default_target="out", max_delay_ms=1)
    changes = begun(told, stored)
    assert changes.settings.is_doubtful
    assert changes.settings.rules == stored
    told.table = without_reading(told.table, "default", [], "damaged, too")
    assert changes.look() is None
    assert joined(changes) is None
    told.say(max_delay="2h")
    assert changes.look() is not None
    assert begins(changes).in_force.max_delay_ms == 7_200_000


def test_a_change_waits_while_the_state_has_no_room_for_one_more_epoch() -> None:
    told, clock = Told(), HandClock()
    changes = changes_of(told, clock)
    many = tuple(RuleEpoch(41 + n, Rules("d", allowed_targets=(f"{'x' * 200}{n % 2}",))) for n in range(4_500))
    changes.begin(RuleHistory((RuleEpoch(0, RULES), *many)))
    told.say(max_delay="2h")
    assert changes.look() is not None
    with capture_logs() as logs:
        assert joined(changes, 5_000) is None
        clock.go_on(AGAIN_AFTER_S - 0.1)
        assert joined(changes, 5_000) is None
    assert [each["event"] for each in logs] == ["rules_not_changed"]
    assert logs[0]["epochs"] == 4_502
    clock.go_on(0.1)
    history = begins_in(changes, ledger_at(PROGRESS._replace(cursor=5_000, sealed_to=4_999), 5_000))
    assert len(history.epochs) == 2
    everything = committed(changes, history)
    assert len(everything.epochs) == 4_502, "what the state forgets may still be asked for by a load under way"

"""What a new owner concludes from what it reads one after the other, while somebody else may go on writing."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from index.errors import RefusedError
from index.progress import Position, Progress
from index.rule_history import RuleHistory
from index.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.partition import takeover
from snapshots.state import PartitionState

TOPIC = DelayTopicConfig(name="d", default_target="out")
RULES = Rules("d", default_target="out")
STORED = PartitionState(Progress(15, Position(7, 3), 4), "id", RuleHistory.beginning(0, RULES))
NOTHING: Any = None


def origin(monkeypatch: pytest.MonkeyPatch, ends: list[int]) -> takeover.Origin:
    """Where it begins when the log of the delay topic ends there each time it is asked for."""
    told: Iterator[int] = iter(ends)

    class Group:
        class router:  # noqa: N801
            group_id = "g"

    config: Any = Group
    monkeypatch.setattr(takeover, "topic_id", lambda *_: "id")
    monkeypatch.setattr(takeover, "log_range", lambda _, name, __: (0, next(told) if name == TOPIC.name else 0))
    monkeypatch.setattr(takeover, "_read_state", lambda *_: STORED)
    return takeover.read_origin(config, TOPIC, 0, NOTHING, RULES)


def test_a_log_that_ends_behind_the_cursor_is_whole_and_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert origin(monkeypatch, [15]).progress == STORED.progress


def test_a_cursor_that_somebody_has_moved_meanwhile_is_no_truncated_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """As tests/faults/test_zombies.py meets it: stopped after fencing, and going on beside the new owner."""
    assert origin(monkeypatch, [10, 20]).progress == STORED.progress


def test_a_truncated_log_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match="ends at offset 11, before the cursor 15: its log was truncated"):
        origin(monkeypatch, [10, 11])


def test_who_gets_no_answer_begins_with_the_bootstrap_servers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client may know addresses only that are no more."""
    now_s = [0.0]

    class Unanswered:
        def init_transactions(self, timeout_s: float) -> None:
            now_s[0] += timeout_s
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))

    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    producer: Any = Unanswered()
    with pytest.raises(KafkaException, match="no answer"):
        takeover.fence(producer, lambda: False)
    assert takeover.FENCE_WITHIN_S < now_s[0] < 2 * takeover.FENCE_WITHIN_S

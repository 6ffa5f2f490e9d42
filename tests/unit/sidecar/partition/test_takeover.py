"""What a new owner concludes from what it reads one after the other, while somebody else may go on writing."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from index.errors import RefusedError, StateLostError
from index.progress import BEFORE_ALL, Position, Progress
from index.rule_history import RuleHistory
from index.rules import Rules
from sidecar.backfill.restoring import Restored
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.partition import takeover
from sidecar.release.writer import PartitionWriter
from snapshots.inventory import NOTHING_STORED, Inventory, InventoryKeeper
from snapshots.manifest import manifest_key
from snapshots.state import PROGRESS_KEY, RULES_KEY, PartitionState, fold_state
from tests.support.stored import MANIFEST

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


LOST = StateLostError("buckets 3 are missing from the state topic: part of the state was lost")


def _of_lost_state(monkeypatch: pytest.MonkeyPatch, restored: Restored | None, why_not: str = "") -> takeover.Origin:
    def lost(*_: object) -> None:
        raise LOST

    found = {PROGRESS_KEY, RULES_KEY, manifest_key(0), manifest_key(4), b"held/7/0", b"owed/t/0/3/0/1"}
    monkeypatch.setattr(takeover, "_read_state", lost)
    monkeypatch.setattr(takeover, "topic_id", lambda *_: "id")
    monkeypatch.setattr(takeover, "log_range", lambda *_: (0, 20))
    monkeypatch.setattr(takeover, "_staged", lambda *_: [])
    monkeypatch.setattr(takeover, "restored_from", lambda *_: (restored, why_not))
    monkeypatch.setattr(takeover, "state_keys", lambda *_: found)
    return takeover.read_origin(NOTHING, TOPIC, 0, NOTHING, RULES)


def test_a_state_that_has_lost_a_part_is_refused_with_the_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=f"^state topic d.delay-state/0: {LOST}") as refused:
        _of_lost_state(monkeypatch, None, "it is of another topic")
    for way_out in (
        "Restore the state topic",
        "python -m spark_backfill rebuild",
        "delay-router start-over d/0",
        "(There is something to restore the state from, but it is of another topic.)",
    ):
        assert way_out in str(refused.value)


def test_what_is_left_of_a_lost_state_is_removed_where_a_job_has_made_it_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    restored = Restored(
        Progress(10_000, BEFORE_ALL, 10_000, 0, 43),
        RuleHistory.beginning(0, RULES),
        (MANIFEST,),
        ((b"bucket/job/0", 5),),
    )
    origin = _of_lost_state(monkeypatch, restored)
    assert (origin.progress, origin.is_stored, origin.held) == (restored.progress, False, ())
    assert sorted(origin.stale) == [manifest_key(0), manifest_key(4), b"held/7/0", b"owed/t/0/3/0/1"]

    written: list[tuple[bytes | None, bytes | None]] = []

    class Client:
        def begin_transaction(self) -> None:
            pass

        def produce(self, topic: str, value: bytes | None, key: bytes | None, *_: object) -> None:
            if topic == TOPIC.state:
                written.append((key, value))

    producer: Any = Client()
    writer = PartitionWriter(producer, TOPIC, 0, RULES, "id", InventoryKeeper(origin.buckets, origin.held))
    takeover.write_origin(writer, origin)
    left = [(manifest_key(0), b""), (b"held/7/0", b""), (b"owed/t/0/3/0/1", b""), (manifest_key(4), b"")]
    found = fold_state([*left, *written])
    assert found is not None
    assert (found.progress, found.buckets, found.held) == (restored.progress, (MANIFEST,), ())
    assert found.inventory == Inventory((MANIFEST.bucket_id,))


@pytest.mark.parametrize(("inventory", "starts_at"), [(None, 9), (NOTHING_STORED, 0)])
def test_only_of_a_state_that_does_not_say_what_belongs_to_it_the_beginning_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, inventory: Inventory | None, starts_at: int
) -> None:
    monkeypatch.setattr(takeover, "topic_id", lambda *_: "id")
    monkeypatch.setattr(takeover, "log_range", lambda _, name, __: (0, 15) if name == TOPIC.name else (9, 20))
    monkeypatch.setattr(takeover, "_read_state", lambda *_: replace(STORED, inventory=inventory))
    assert takeover.read_origin(NOTHING, TOPIC, 0, NOTHING, RULES).state_starts_at == starts_at

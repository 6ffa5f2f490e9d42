"""Records that a delay topic must still keep, compared with its retention."""

from collections.abc import Sequence

import pytest

from index.buckets.bucket import Manifest
from index.pending.progress import Behind, Position, Progress
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.cluster.topics.findings import Level
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.operations.asking.needed_records import NeededRecord, compared, needed_from
from snapshots.state.state import StoredState
from tests.support.manifests import manifest

TOPIC = DelayTopicConfig(name="orders.delay", default_target="orders", max_delay="7d")
NOW_MS = 1_900_000_000_000
KEEPS_MS = 60_000
HISTORY = RuleHistory.beginning(0, Rules(topic="orders.delay", default_target="orders"))


def needed(*ages_ms: int) -> list[NeededRecord]:
    return [NeededRecord(number, 10 * number, NOW_MS - age_ms) for number, age_ms in enumerate(ages_ms)]


@pytest.mark.parametrize("ages_ms", [(), (0,), (KEEPS_MS, 5)])
def test_what_is_young_enough_is_kept(ages_ms: Sequence[int]) -> None:
    assert compared(TOPIC, "b:9092", needed(*ages_ms), KEEPS_MS, NOW_MS).level is Level.OK


def test_an_older_record_is_an_error_that_names_its_place_and_the_command() -> None:
    found = compared(TOPIC, "b:9092", needed(5, 3_600_000, KEEPS_MS + 1), KEEPS_MS, NOW_MS)
    assert found.is_error
    assert found.thing == "delay topic orders.delay"
    assert found.message.startswith("retention.ms=60000 keeps 1m, but older records are still needed: ")
    # The oldest record comes first.
    assert "orders.delay/1 offset 10 (1h old), orders.delay/2 offset 20 (1m old); brokers may" in found.message
    assert "--alter" in found.remedy
    assert f"retention.ms={14 * 86_400_000}" in found.remedy


def test_only_the_first_partitions_are_named() -> None:
    found = compared(TOPIC, "b:9092", needed(*[KEEPS_MS + 1_000] * 5), KEEPS_MS, NOW_MS)
    assert "orders.delay/2 offset 20 (1m 1s old) and 2 partitions more;" in found.message


def test_a_record_older_than_the_retention_that_is_wanted_is_to_be_kept_for_ever() -> None:
    found = compared(TOPIC, "b:9092", needed(30 * 86_400_000), KEEPS_MS, NOW_MS)
    assert "retention.ms=-1" in found.remedy


def stored(*buckets: Manifest, watermark: Position, catching_up: bool = False) -> StoredState:
    behind = tuple(Behind(bucket.bucket_id, Position(0, 0)) for bucket in buckets) if catching_up else ()
    progress = Progress(100, watermark, 90, 1, 9, catching_up=behind)
    return StoredState(progress, "id", HISTORY, buckets)


def test_what_is_needed_is_told_by_the_state() -> None:
    pointers = manifest(1, [(5_000, 20), (6_000, 25)], needs_from=20)
    inline = manifest(2, [(5_000, 40)])
    assert needed_from(stored(watermark=Position(0, 0))) == 90
    assert needed_from(stored(inline, watermark=Position(0, 0))) == 90
    assert needed_from(stored(pointers, inline, watermark=Position(5_500, 0))) == 20
    # Every record of the pointers has left.
    assert needed_from(stored(pointers, inline, watermark=Position(6_000, 25))) == 90
    assert needed_from(stored(pointers, watermark=Position(6_000, 25), catching_up=True)) == 20

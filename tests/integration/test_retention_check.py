"""Tests of ``check`` and a take-over against the effective settings of topics: trimming, retention, placement."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from index.buckets.bucket import Placement, SegmentRef
from sidecar.config.retention import Retention
from sidecar.dev.local_kafka import Cluster
from sidecar.kafka.client.admin import TopicFacts, topic_facts
from tests.integration.command import Command, command_for
from tests.integration.one_worker import one_worker, stored_manifests
from tests.integration.scenario import ONE_SEAL, wait_until

DAY_MS = 86_400_000


@pytest.fixture
def make(kafka: Cluster, unique_name: Callable[[str], str], tmp_path: Path) -> Callable[[str], Command]:
    """Return a function that creates the topics for a delay topic with these additional keys."""

    def made(extra: str) -> Command:
        command = command_for(tmp_path, kafka.bootstrap, unique_name, extra=extra)
        result = command("init", "--partitions", 1, "--create-targets")
        assert result.exit_code == 0, result.output
        return command

    return made


def alter(admin: AdminClient, topic: str, settings: dict[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(10)


def send_in_due_order(command: Command, values: Sequence[bytes]) -> None:
    """Send records that are due in an hour, in offset order, so that pointers cost nothing."""
    producer = Producer({"bootstrap.servers": command.config.kafka["bootstrap.servers"]})
    due_ms = time.time_ns() // 1_000_000 + 3_600_000
    for number, value in enumerate(values):
        producer.produce(command.topic, value, headers=[("deliver-at", b"%d" % (due_ms + number))])
    assert producer.flush(30) == 0


def about(command: Command, thing: str) -> list[tuple[str, str]]:
    """Return (level, message) of each finding of check about a topic."""
    return [(found["level"], found["message"]) for found in command.json("check") if found["thing"].startswith(thing)]


def test_snapshots_topic_may_be_trimmed_and_is_never_removed_by_age(
    make: Callable[[str], Command], kafka_admin: AdminClient
) -> None:
    command = make("")
    snapshots = f"{command.topic}.delay-snapshots"
    facts = topic_facts(kafka_admin, [snapshots])[snapshots]
    assert isinstance(facts, TopicFacts)
    assert facts.settings is not None
    assert facts.settings["cleanup.policy"] == "compact,delete"
    assert (facts.number("retention.ms", 0), facts.number("retention.bytes", 0)) == (-1, -1)
    assert about(command, "snapshots topic") == [("ok", "1 partition, compact,delete")]
    for settings, level, message in (
        ({"cleanup.policy": "delete,compact"}, "ok", ""),
        ({"cleanup.policy": "compact"}, "warn", "refuses DeleteRecords"),
        ({"cleanup.policy": "delete"}, "warn", "tombstones of released segments are never cleaned"),
        ({"cleanup.policy": "compact,delete", "retention.ms": "604800000"}, "error", "with retention.ms=604800000"),
        ({"retention.ms": "-1", "retention.bytes": "1000"}, "error", "segments of pending records would be removed"),
    ):
        alter(kafka_admin, snapshots, settings)
        ((found_level, found_message),) = about(command, "snapshots topic")
        assert found_level == level, found_message
        assert message in found_message
    state = f"{command.topic}.delay-state"
    alter(kafka_admin, state, {"cleanup.policy": "compact,delete"})
    assert about(command, "state topic")[0][0] == "error"


@pytest.mark.parametrize(
    ("placement", "retention_ms", "level", "message"),
    [
        ("pointer", DAY_MS, "error", "keeps 1d, but max_delay is 7d and placement is pointer"),
        # tests/unit/sidecar/cluster/topics/test_retention.py has all other cases.
        ("auto", -1, "ok", "kept for ever"),
    ],
)
def test_retention_by_placement(
    make: Callable[[str], Command],
    kafka_admin: AdminClient,
    placement: str,
    retention_ms: int,
    level: str,
    message: str,
) -> None:
    command = make(f'placement = "{placement}"\n')
    alter(kafka_admin, command.topic, {"retention.ms": str(retention_ms)})
    found_level, found_message = about(command, "delay topic")[0]
    assert (found_level, message in found_message) == (level, True), found_message
    assert command("check").exit_code == (1 if level == "error" else 0)


@pytest.mark.parametrize(("retention_ms", "expected"), [(DAY_MS, Placement.INLINE), (-1, Placement.POINTER)])
def test_auto_looks_at_retention_when_it_takes_over(
    make: Callable[[str], Command], kafka_admin: AdminClient, retention_ms: int, expected: Placement
) -> None:
    command = make(f"seal_records = {ONE_SEAL}\n")
    alter(kafka_admin, command.topic, {"retention.ms": str(retention_ms)})
    send_in_due_order(command, [b"v"] * ONE_SEAL)
    with one_worker(command.config) as worker:
        wait_until(lambda: worker.status.buckets > 0 and worker.status.sealed_to >= ONE_SEAL, "everything is sealed")
        assert worker.status.retention_ms == retention_ms
    placements = {ref.placement for manifest in stored_manifests(command.config) for ref in manifest.segments}
    assert placements == {expected}


def test_retention_that_is_lowered_while_records_are_pending_is_an_error(
    make: Callable[[str], Command], kafka_admin: AdminClient
) -> None:
    command = make(f"seal_records = {ONE_SEAL}\n")
    send_in_due_order(command, [b"v"] * ONE_SEAL)
    sent_s = time.monotonic()
    with one_worker(command.config) as worker:
        wait_until(lambda: worker.status.sealed_to >= ONE_SEAL, "everything is sealed as pointers")
    assert command("check").exit_code == 0
    # The records were written with a retention of weeks. Brokers check after five minutes, so nothing is gone yet.
    retention_ms = 2_000
    alter(kafka_admin, command.topic, {"retention.ms": str(retention_ms)})
    time.sleep(max(0.0, sent_s + retention_ms / 1_000 + 1 - time.monotonic()))
    checked = command("check")
    assert checked.exit_code == 1
    errors = [message for level, message in about(command, "delay topic") if level == "error"]
    assert len(errors) == 1, errors
    assert f"older records are still needed: {command.topic}/0 offset 0 (" in errors[0]
    alter(kafka_admin, command.topic, {"retention.ms": str(30 * DAY_MS)})
    assert command("check").exit_code == 0
    assert "keeps every record that is still needed" in about(command, "delay topic")[-1][1]


def test_pointers_are_written_inline_after_retention_was_lowered_while_the_router_runs(
    make: Callable[[str], Command], kafka_admin: AdminClient
) -> None:
    command = make(f"seal_records = {ONE_SEAL}\n")
    send_in_due_order(command, [bytes(900_000 if number == 250 else 500) for number in range(ONE_SEAL)])
    retention_ms = 2_000
    with one_worker(command.config) as worker:
        wait_until(lambda: worker.status.sealed_to >= ONE_SEAL, "everything is sealed as pointers")
        assert Placement.POINTER in {ref.placement for ref in segments(command)}
        alter(kafka_admin, command.topic, {"retention.ms": str(retention_ms)})
        worker.loop.retention = Retention(retention_ms)
        wait_until(
            lambda: all(ref.placement is Placement.INLINE for ref in segments(command)), "all segments are inline"
        )
        assert worker.count("seal_failures") == 0
    (bucket,) = stored_manifests(command.config)
    assert bucket.entries == ONE_SEAL
    assert bucket.needs_from == 250, "a record that fits into no segment stays in the delay topic"
    assert len(bucket.segments) <= 4


def segments(command: Command) -> list[SegmentRef]:
    """Return the segments of all buckets in the state topic."""
    return [ref for each in stored_manifests(command.config) for ref in each.segments]

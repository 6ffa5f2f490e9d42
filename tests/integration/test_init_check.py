"""Tests of ``init``, ``check`` and ``start-over`` against a real broker."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from index.pending.progress import start_of
from sidecar.cluster.topics import check, start_over
from sidecar.dev.local_kafka import Cluster
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import TopicFacts, log_range, topic_facts
from sidecar.policies.policy import policy_of, target_scope
from sidecar.policies.topic import write_policy
from snapshots.state.claim import claim_key, encode_claim
from snapshots.state.state import PROGRESS_KEY, RULES_KEY
from tests.integration.command import Command, command_for
from tests.integration.one_worker import origin_of as origin_at
from tests.support.topics import create_topic

DAY_MS = 86_400_000


@pytest.fixture
def command(kafka: Cluster, unique_name: Callable[[str], str], tmp_path: Path) -> Command:
    """Return commands for a delay topic that does not exist yet."""
    return command_for(tmp_path, kafka.bootstrap, unique_name, extra='max_delay = "30d"\n')


def facts_of(admin: AdminClient, name: str) -> TopicFacts:
    facts = topic_facts(admin, [name])[name]
    assert isinstance(facts, TopicFacts), f"{name} does not exist"
    return facts


def problems(found: list[dict[str, str]], level: str) -> list[dict[str, str]]:
    return [finding for finding in found if finding["level"] == level]


def alter(admin: AdminClient, topic: str, **settings: object) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(10)


def test_check_names_what_is_missing_and_the_command_that_mends_it(command: Command) -> None:
    assert command("check").exit_code == 1
    (missing,) = problems(command.json("check"), "error")
    assert (missing["thing"], missing["message"]) == (f"delay topic {command.topic}", "does not exist")
    assert (missing["remedy"], missing["topic"]) == ("delay-router init", command.topic)


def test_check_tells_which_targets_get_records_past_the_delay_topic(command: Command, kafka: Cluster) -> None:
    command("init", "--partitions", 2, "--create-targets")
    target = f"{command.topic}-target"
    assert [each for each in command.json("check") if "producers" in each["message"]] == []
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    released: list[tuple[str, str | bytes | None]] = [("delay-source", b"orders.delay/0/1"), ("deliver-at", b"1")]
    for number in range(150):
        producer.produce(target, b"released", partition=0, headers=released)
        producer.produce(target, b"plain", partition=1, headers=[("trace", str(number).encode())])
    for _ in range(3):
        producer.produce(target, b"by mistake", partition=1, headers=[("Deliver-After", b"1h")])
    assert producer.flush(20) == 0
    (bypassed,) = [each for each in command.json("check") if "producers" in each["message"]]
    assert (bypassed["level"], bypassed["thing"]) == ("warn", f"target topic {target}")
    assert bypassed["message"].startswith(f"producers write deliver-after to {target} itself")
    assert "3 of the newest 200 records" in bypassed["message"]
    assert bypassed["message"].endswith(f"{target}/1/152")
    assert bypassed["remedy"] == f"write to {command.topic}"
    assert command("check").exit_code == 0, "a warning"


def test_init_creates_everything_spelled_out_and_is_idempotent(command: Command, kafka_admin: AdminClient) -> None:
    first = command.json("init", "--partitions", 3, "--create-targets")
    assert {row["action"] for row in first["topics"]} == {"created"}
    topic = command.topic
    beside = [
        f"{topic}.{name}" for name in ("delay-state", "delay-snapshots", "rejected", "delay-backfill", "receipts")
    ]
    names = [topic, *beside, f"{topic}-target"]
    assert sorted(row["name"] for row in first["topics"]) == sorted(
        [*names, f"__{topic}.policies", f"__{topic}.status"]
    )
    delay, state, snapshots, rejected, backfill, receipts, target = (facts_of(kafka_admin, name) for name in names)
    assert {each.partitions for each in (delay, state, snapshots, backfill, receipts)} == {3}
    assert delay.settings is not None
    assert delay.number("retention.ms", 0) == 37 * DAY_MS
    stamped = [(each.settings or {})["message.timestamp.type"] for each in (delay, target)]
    assert stamped == ["LogAppendTime", "LogAppendTime"]
    # The router trims the snapshots topic, which brokers refuse for a topic that is only compacted.
    for compacted, policy in ((state, "compact"), (snapshots, "compact,delete")):
        assert compacted.settings is not None
        assert compacted.settings["cleanup.policy"] == policy
        assert compacted.number("segment.ms", 0) == 3_600_000
    for kept in (rejected, receipts):
        assert kept.number("max.message.bytes", 0) == delay.number("max.message.bytes", 0) + 65_536

    second = command("init", "--partitions", 3, "--create-targets")
    assert second.exit_code == 0, second.output
    given = f"--config {command.file}"
    assert second.output.splitlines()[-1] == f"next: delay-router check {given}, then delay-router run {given}"
    again = command.json("init")
    assert {row["action"] for row in again["topics"]} == {"exists"}
    assert command("check").exit_code == 0, command("check").output
    assert not problems(command.json("check"), "warn")


def test_all_topics_of_many_partitions_are_there_when_init_has_ended(command: Command, kafka: Cluster) -> None:
    rows = command.json("init", "--partitions", 100, "--create-targets")["topics"]
    there = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=20).topics
    assert {row["action"] for row in rows} == {"created"}
    assert len(rows) == 9
    for row in rows:
        assert len(there[row["name"]].partitions) == row["partitions"], row
    assert command("check").exit_code == 0


def test_targets_are_created_only_when_asked_for(command: Command, kafka_admin: AdminClient) -> None:
    first = command("init")
    assert first.exit_code == 0
    target = f"{command.topic}-target"
    *_, said, next_step = first.output.splitlines()
    assert said.startswith("      mend: delay-router init --create-targets, or kafka-topics.sh ")
    assert f"warn  target topic {target}: does not exist; it is the default_target of {command.topic}" in first.output
    given = f"--config {command.file}"
    steps = ", then ".join(f"delay-router {step} {given}" for step in ("init --create-targets", "check", "run"))
    assert next_step == f"next: {steps}"
    assert topic_facts(kafka_admin, [target]) == {target: None}
    (missing,) = problems(command.json("check"), "error")
    assert missing["thing"] == f"target topic {target}"
    assert missing["remedy"].endswith(f"--create --topic {target}")


def test_missing_allowed_target_is_only_a_warning(
    kafka: Cluster, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    other = unique_name("other")
    command = command_for(tmp_path, kafka.bootstrap, unique_name, extra=f'allowed_targets = ["{other}", "any.*"]')
    command("init", "--create-targets")
    assert not problems(command.json("check"), "warn")
    command.file.write_text(command.file.read_text().replace(other, f"{other}-not-there"))
    assert command("check").exit_code == 0
    (finding,) = problems(command.json("check"), "warn")
    assert finding["thing"] == f"target topic {other}-not-there"


def test_partition_count_of_state_topic(command: Command, kafka_admin: AdminClient) -> None:
    command("init", "--partitions", 1, "--create-targets")
    kafka_admin.create_partitions([NewPartitions(command.topic, 2)])[command.topic].result(10)
    found = problems(command.json("check"), "error")
    assert {finding["thing"].split()[0] for finding in found} == {"state", "snapshots", "receipts"}
    assert all("1 partition, but the delay topic has 2" in finding["message"] for finding in found)
    assert found[0]["remedy"] == "delay-router init"
    grown = {row["name"]: row["partitions"] for row in command.json("init")["topics"] if row["action"] == "grown"}
    beside = ("delay-state", "delay-snapshots", "delay-backfill", "receipts")
    assert grown == {f"{command.topic}.{name}": 2 for name in beside}
    assert command("check").exit_code == 0


def test_state_topic_with_too_many_partitions_cannot_shrink(command: Command, kafka_admin: AdminClient) -> None:
    create_topic(kafka_admin, f"{command.topic}.delay-state", partitions=2, config={"cleanup.policy": "compact"})
    result = command("init", "--partitions", 1)
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].startswith("next: mend each finding marked error")
    assert "2 partitions, but the delay topic has 1" in result.output
    assert "name another state topic" in result.output


def test_retention_against_max_delay(command: Command, kafka_admin: AdminClient) -> None:
    command("init", "--create-targets")
    alter(kafka_admin, command.topic, retention_ms=7 * DAY_MS)
    # Placement `auto` puts payload into segments then, so only a record too large for a segment is in danger.
    assert not problems(command.json("check"), "error")
    (finding,) = [each for each in problems(command.json("check"), "warn") if "keeps 7d" in each["message"]]
    assert finding["thing"] == f"delay topic {command.topic}"
    alter(kafka_admin, command.topic, retention_ms=30 * DAY_MS + 1_000, retention_bytes=1 << 30)
    assert not problems(command.json("check"), "error")
    messages = [finding["message"] for finding in problems(command.json("check"), "warn")]
    assert any("little is left for an outage" in message for message in messages)
    assert any("retention.bytes=1073741824 removes records by size" in message for message in messages)


def test_policies_that_would_lose_records(command: Command, kafka_admin: AdminClient) -> None:
    command("init", "--create-targets")
    alter(kafka_admin, command.topic, cleanup_policy="compact")
    alter(kafka_admin, f"{command.topic}.delay-state", cleanup_policy="compact,delete")
    found = {finding["thing"].split()[0]: finding for finding in problems(command.json("check"), "error")}
    assert "share a key" in found["delay"]["message"]
    assert "removed by age" in found["state"]["message"]
    assert found["state"]["remedy"].endswith("--add-config cleanup.policy=compact")


def test_settings_that_only_hurt_are_warnings(command: Command, kafka_admin: AdminClient) -> None:
    command("init", "--create-targets")
    alter(kafka_admin, f"{command.topic}.delay-state", segment_ms=7 * DAY_MS)
    alter(kafka_admin, f"{command.topic}-target", max_message_bytes=1_000)
    assert command("check").exit_code == 0
    messages = [finding["message"] for finding in problems(command.json("check"), "warn")]
    assert "segment.ms=604800000 instead of 3600000" in messages
    assert any(message.startswith("takes 1000 bytes and ") for message in messages)


def test_targets_whose_brokers_overwrite_what_is_stamped(command: Command, kafka_admin: AdminClient) -> None:
    command("init")
    target = f"{command.topic}-target"
    by_policy = target_scope(target)
    write_policy(command.config, by_policy, policy_of(by_policy, {"timestamp": "due"}))
    command("init", "--create-targets")
    assert (facts_of(kafka_admin, target).settings or {})["message.timestamp.type"] == "CreateTime"
    assert not problems(command.json("check"), "warn")
    alter(kafka_admin, target, message_timestamp_type="LogAppendTime")
    assert command("check").exit_code == 0
    (finding,) = problems(command.json("check"), "warn")
    assert (finding["thing"], finding["topic"]) == (f"target topic {target}", command.topic)
    assert finding["message"].endswith(f'(timestamp = "due", policy target/{target})')


def test_existing_topics_are_never_altered(command: Command, kafka_admin: AdminClient) -> None:
    create_topic(kafka_admin, command.topic, partitions=2, config={"retention.ms": str(60 * DAY_MS)})
    assert command("init", "--partitions", 5).exit_code == 0
    facts = facts_of(kafka_admin, command.topic)
    assert (facts.partitions, facts.number("retention.ms", 0)) == (2, 60 * DAY_MS)
    assert facts_of(kafka_admin, f"{command.topic}.delay-state").partitions == 2
    told = [finding["message"] for finding in command.json("check")]
    notes = [message for message in told if "CreateTime:" in message]
    assert notes == ["message.timestamp.type=CreateTime: deliver-after counts from the producer's own clock"]
    assert any(message.startswith("one replica") for message in told) is (facts.replication_factor == 1)


def test_topic_that_cannot_be_created(command: Command) -> None:
    result = command.json("init", "--replication-factor", 99)
    (failed,) = [finding for finding in result["findings"] if finding["level"] == "error"]
    assert failed["thing"] == f"delay topic {command.topic}"
    assert "cannot be created" in failed["message"]
    assert [row["action"] for row in result["topics"]] == ["failed"]


def test_findings_raise_when_the_cluster_does_not_answer(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "REQUEST_TIMEOUT_S", 1.0)
    away = AdminClient({"bootstrap.servers": "127.0.0.1:1"}, logger=None)
    with pytest.raises(Exception, match=r"timed out|Failed"):
        check.findings(command.config, away)


def write_state(bootstrap: str, topic: str, records: dict[bytes, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in records.items():
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(10) == 0


def origin_of(command: Command) -> Any:
    return origin_at(command.config)


def test_check_warns_of_a_state_that_another_group_has_claimed(command: Command, kafka: Cluster) -> None:
    command("init", "--partitions", 2, "--create-targets")
    own = command.config.router.group_id
    assert not any(own in each["message"] for each in problems(command.json("check"), "warn"))
    write_state(kafka.bootstrap, f"{command.topic}.delay-state", {claim_key("old-name"): encode_claim()})
    (warning,) = [each for each in problems(command.json("check"), "warn") if own in each["message"]]
    assert warning["message"].startswith("the state of 1 of 2 partitions belongs to routers of group old-name, and")


def test_start_over_without_yes_changes_nothing(command: Command, kafka: Cluster, kafka_admin: AdminClient) -> None:
    command("init", "--partitions", 1)
    state = f"{command.topic}.delay-state"
    write_state(kafka.bootstrap, state, {PROGRESS_KEY: b"damaged"})
    before = log_range(kafka_admin, state, 0)
    result = command("start-over", f"{command.topic}/0")
    assert result.exit_code == 0
    assert f"{state}/0 (2 keys) will be replaced" in result.output
    assert "RELEASED AGAIN" in result.output
    assert "Nothing was done" in result.output
    old_name = command("init", "--start-over", f"{command.topic}/0")
    assert old_name.exit_code == 0
    assert f"delay-router start-over {command.topic}/0" in old_name.stderr
    assert old_name.stdout == result.stdout
    assert log_range(kafka_admin, state, 0) == before


def test_start_over_mends_damaged_state_in_one_transaction(
    command: Command, kafka: Cluster, kafka_admin: AdminClient
) -> None:
    command("init", "--partitions", 1)
    state = f"{command.topic}.delay-state"
    write_state(kafka.bootstrap, command.topic, {b"a": b"1", b"b": b"2"})
    write_state(kafka.bootstrap, state, {PROGRESS_KEY: b"damaged"})
    with pytest.raises(Exception, match="cannot be trusted"):
        origin_of(command)
    done = command.json("start-over", f"{command.topic}/0", "--yes")
    assert done == {
        "topic": command.topic,
        "partition": 0,
        "log_start": 0,
        "log_end": 2,
        "state_keys": 2,
        "series_going_on": 0,
        "series_ending": 0,
        "done": True,
    }
    assert origin_of(command).progress == start_of(0)


def test_start_over_removes_keys_it_does_not_know(command: Command, kafka: Cluster, kafka_admin: AdminClient) -> None:
    command("init", "--partitions", 1)
    state = f"{command.topic}.delay-state"
    write_state(kafka.bootstrap, state, {b"of-another-version": b"x", b"removed-before": None})
    assert command.json("start-over", f"{command.topic}/0", "--yes")["state_keys"] == 3
    config = command.config
    keys = start_over.state_keys(config, config.delay_topics[0], 0, kafka_admin)
    assert keys == {PROGRESS_KEY, RULES_KEY}


def test_start_over_after_the_delay_topic_was_created_again(command: Command, kafka_admin: AdminClient) -> None:
    command("init", "--partitions", 1)
    command("start-over", f"{command.topic}/0", "--yes")
    kafka_admin.delete_topics([command.topic])[command.topic].result(10)
    deadline_tries = 100
    while topic_facts(kafka_admin, [command.topic])[command.topic] is not None:
        deadline_tries -= 1
        assert deadline_tries, "the topic is still there"
    command("init", "--partitions", 1)
    with pytest.raises(Exception, match="created again"):
        origin_of(command)
    assert command("start-over", f"{command.topic}/0", "--yes").exit_code == 0
    assert origin_of(command).progress == start_of(0)


def test_start_over_fences_the_owner(command: Command, kafka_admin: AdminClient) -> None:
    command("init", "--partitions", 1)
    owner = clients.producer(command.config, clients.transactional_id(command.config, command.topic, 0))
    owner.init_transactions(30)
    owner.begin_transaction()
    owner.produce(f"{command.topic}.delay-state", b"late", b"late", partition=0)
    assert command("start-over", f"{command.topic}/0", "--yes").exit_code == 0
    with pytest.raises(Exception, match=r"_FENCED|PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        owner.commit_transaction(30)
    assert origin_of(command).progress == start_of(0)


@pytest.mark.parametrize("place", ["{topic}", "{topic}/x", "{topic}/7", "elsewhere/0", "/0"])
def test_start_over_of_something_else_is_wrong_usage(command: Command, place: str) -> None:
    command("init", "--partitions", 1)
    result = command("start-over", place.format(topic=command.topic), "--yes")
    assert result.exit_code == 2, result.output


def test_start_over_before_init_says_so(command: Command) -> None:
    result = command("start-over", f"{command.topic}/0", "--yes")
    assert result.exit_code == 1
    assert "run: delay-router init" in result.stderr

"""Tests that ``delay-router send`` writes records to a real broker as the contract specifies."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from sidecar.dev.local_kafka import Cluster
from sidecar.kafka.client.admin import log_range
from tests.integration.command import Command, command_for
from tests.support.topics import create_topic


@pytest.fixture
def command(kafka: Cluster, kafka_admin: AdminClient, unique_name: Callable[[str], str], tmp_path: Path) -> Command:
    """Return commands for a delay topic with one partition."""
    made = command_for(tmp_path, kafka.bootstrap, unique_name, extra='allowed_targets = ["other"]')
    create_topic(kafka_admin, made.topic)
    create_topic(kafka_admin, f"{made.topic}-target")
    return made


def read(kafka: Cluster, topic: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "reads-send", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages: list[Message] = []
        deadline = time.monotonic() + 20
        while len(messages) < count and time.monotonic() < deadline:
            messages += [message for message in consumer.consume(count, 0.2) if message.error() is None]
        return messages
    finally:
        consumer.close()


def test_record_carries_what_was_asked_for(command: Command, kafka: Cluster) -> None:
    result = command(
        "send", command.topic, "--at", "2030-01-01T00:00:00Z", "--to", "other", "--key", "k", "--deliver-key", "dk",
        "--partition", "3", "--id", "job-1", "--expire-after", "1h", "--header", "a=1",
        "--header", "a=2=3", "--value", "hé", "--force",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (message,) = read(kafka, command.topic, 1)
    assert (message.key(), message.value()) == (b"k", "hé".encode())
    assert message.headers() == [
        ("deliver-at", b"2030-01-01T00:00:00Z"),
        ("deliver-to", b"other"),
        ("deliver-key", b"dk"),
        ("deliver-partition", b"3"),
        ("deliver-id", b"job-1"),
        ("deliver-expire-after", b"3600000"),
        ("a", b"1"),
        ("a", b"2=3"),
    ]


def test_place_and_due_time_are_printed(command: Command) -> None:
    result = command("send", command.topic, "--after", "1h", "--value", "x")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{command.topic}/0/0 due 20")
    assert result.stdout.endswith("Z\n")
    before_ms = time.time_ns() // 1_000_000
    (sent,) = command.json("send", command.topic, "--after", "PT1H", "--value", "x")
    assert (sent["partition"], sent["offset"]) == (0, 1)
    assert 3_600_000 <= sent["due_ms"] - before_ms < 3_660_000
    assert "due at once" in command("send", command.topic, "--value", "x").stdout


@pytest.mark.parametrize(("at", "told"), [("12345", "1970-01-01 00:00:12.345Z"), ("2001-01-01T00:00:00Z", "2001-01")])
def test_an_instant_that_is_past_is_warned_of(command: Command, at: str, told: str) -> None:
    result = command("send", command.topic, "--at", at, "--value", "x")
    assert result.exit_code == 0, result.output
    assert f"warning: --at {at} is {told}" in result.stderr
    assert "warning" not in command("send", command.topic, "--after", "1h", "--value", "x").stderr
    assert "warning" not in command("send", command.topic, "--value", "x").stderr


def test_how_long_after_its_time_a_record_may_leave_is_told(
    kafka: Cluster, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    command = command_for(tmp_path, kafka.bootstrap, unique_name, extra='spread = "30s"')
    assert command("init").exit_code == 0
    later = command("send", command.topic, "--after", "1h", "--value", "x")
    assert later.stdout.endswith("Z, and spread over the 30s behind that\n"), later.output
    assert command("send", command.topic, "--value", "x").stdout.endswith("due at once\n")


def test_human_durations_become_milliseconds(command: Command, kafka: Cluster) -> None:
    for after in ("10s", "500", "PT15M", "500ms"):
        assert command("send", command.topic, "--after", after, "--null").exit_code == 0
    messages = read(kafka, command.topic, 4)
    assert [message.headers() for message in messages] == [
        [("deliver-after", b"10000")],
        [("deliver-after", b"500")],
        [("deliver-after", b"PT15M")],
        [("deliver-after", b"500")],
    ]
    assert all(message.value() is None and message.key() is None for message in messages)


def test_values_from_file_stdin_and_lines(command: Command, kafka: Cluster, tmp_path: Path) -> None:
    binary = tmp_path / "value"
    binary.write_bytes(b"\x00\xff\n")
    assert command("send", command.topic, "--value-file", binary).exit_code == 0
    assert command("send", command.topic, "--value-file", "-", stdin=b"\x01\n").exit_code == 0
    lines = command("send", command.topic, "--lines", "--key", "k", stdin=b"one\n\r\nthree")
    assert lines.exit_code == 0
    assert len(lines.stdout.splitlines()) == 3
    assert command("send", command.topic, "--value", "").exit_code == 0
    values = [message.value() for message in read(kafka, command.topic, 6)]
    assert values == [b"\x00\xff\n", b"\x01\n", b"one", b"", b"three", b""]


def test_what_would_be_rejected_is_sent_only_by_force(command: Command, kafka: Cluster) -> None:
    refused = command("send", command.topic, "--to", "forbidden", "--value", "1")
    assert refused.exit_code == 1
    assert "will be rejected: TARGET_NOT_ALLOWED: " in refused.stderr
    forced = command("send", command.topic, "--to", "forbidden", "--value", "2", "--force")
    assert forced.exit_code == 0
    assert "to be rejected (TARGET_NOT_ALLOWED)" in forced.stdout
    assert [message.value() for message in read(kafka, command.topic, 1)] == [b"2"]


def test_topic_that_does_not_exist_is_one_clear_line(command: Command) -> None:
    result = command("send", f"{command.topic}x", "--value", "x")
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: {command.topic}x: there is no such topic, and none is configured; did you mean '{command.topic}'?\n"
    )


def test_what_no_delay_topic_is_gets_no_record(command: Command, kafka: Cluster, kafka_admin: AdminClient) -> None:
    target, elsewhere = f"{command.topic}-target", f"{command.topic}-of-others"
    create_topic(kafka_admin, elsewhere)
    for topic, forced, code in (
        (target, (), 2),
        (target, ("--force",), 2),
        (f"{command.topic}.receipts", ("--force",), 2),
        (elsewhere, (), 2),
        (elsewhere, ("--force",), 0),
    ):
        result = command("send", topic, "--value", "x", "--after", "1h", *forced)
        assert result.exit_code == code, (topic, result.output)
        assert code == 0 or f"did you mean {command.topic}?" in result.stderr
    assert len(read(kafka, elsewhere, 1)) == 1
    assert log_range(kafka_admin, target, 0) == (0, 0)


def test_target_that_does_not_exist_is_warned_of(command: Command) -> None:
    result = command("send", command.topic, "--after", "1h", "--to", "other", "--value", "x")
    assert result.exit_code == 0, result.output
    assert result.stderr == "warning: target topic other does not exist: create it before the record is due\n"

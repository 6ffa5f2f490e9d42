"""Tests that the other side's programs write the records of RECIPES.md, and that the router decides them so."""

import base64
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from index.pending.progress import Position, Progress
from index.protocol.headers import NATIVE, Headers, StrippedNames
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE, BY_KEY, KEEP_KEY, Action, Control, Schedule
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config, load
from sidecar.dev.local_kafka import maven
from sidecar.engine.payload.records import Scheduled
from sidecar.engine.release.transaction import Transaction
from sidecar.kafka.writing.writer import PartitionWriter
from sidecar.kernel.choice import PYTHON
from tests.docs.documents import blocks
from tests.recipes import jars
from tests.support import java_programs
from tests.support.kernel import native_kernel
from tests.support.mock_broker import MockBroker
from tests.support.paths import ROOT

DOCUMENT: Final = ROOT / "RECIPES.md"
DUE_MS: Final = 1_795_276_800_000
SENT_MS: Final = 1_795_000_000_000
MINUTE_MS: Final = 60_000

Written = dict[str, tuple[str, Headers]]
"""The topic and headers of the record that a recipe makes, by case."""


def printed(language: str, containing: str) -> str:
    """Return the only block of the document that has this line."""
    (found,) = [each.text for each in blocks(DOCUMENT) if each.language == language and containing in each.text]
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Return the records of the other sides, all run in one JVM."""
    folder = tmp_path_factory.mktemp("recipes")
    recipes = {
        "constant": printed("properties", "InsertHeader"),
        "outbox": printed("properties", "EventRouter"),
        "field": printed("properties", "HeaderFrom$Value"),
    }
    for name, text in recipes.items():
        (folder / name).write_text(text, encoding="utf-8")
    cases = {"constant": "constant", "instant": "field", "timestamp": "field", "null": "field"}
    cases |= {"outbox": "outbox", "outbox-null": "outbox"}
    arguments = [f"{case}={folder / recipe}" for case, recipe in cases.items()]
    with java_programs.or_skip("the other side of the recipes"):
        java = [maven.java().path, "-XX:TieredStopAtLevel=1", "-cp", jars.compiled(folder)]
    call = [*java, "Driver", *arguments, "streams=", "unless=", "spring=", "spring-again=", "spring-fixed="]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: Written = {}
    for case, topic, lines in re.findall(r"= (\S+) (\S+)\n((?:[^=\n].*\n)*)", done.stdout):
        headers = [line.split("\t") for line in lines.splitlines()]
        found[case] = topic, [(name, None if raw == "null" else base64.b64decode(raw)) for name, raw in headers]
    return found


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Return the delay topics of the document."""
    topics = [each.text for each in blocks(DOCUMENT) if each.language == "toml"]
    file = tmp_path_factory.mktemp("config") / "delay-router.toml"
    file.write_text('[kafka]\n"bootstrap.servers" = "localhost:9092"\n' + "".join(topics), encoding="utf-8")
    return load(file, {})


def rules_of(config: Config, name: str) -> Rules:
    return config.rules_for(next(topic for topic in config.delay_topics if topic.name == name))


@pytest.mark.parametrize(
    ("case", "due_ms", "target"),
    [
        ("constant", SENT_MS + 15 * MINUTE_MS, "orders"),
        ("instant", DUE_MS, "orders"),
        ("timestamp", DUE_MS, "orders"),
        ("null", AT_ONCE, "orders"),
        ("outbox", DUE_MS, "orders"),
        ("outbox-null", AT_ONCE, "orders"),
        ("spring-fixed", SENT_MS + 15 * MINUTE_MS, "orders"),
        ("streams", SENT_MS + 24 * 60 * MINUTE_MS, "orders.unpaid"),
    ],
)
def test_the_router_takes_it_as_the_recipe_says(
    case: str, due_ms: int, target: str, written: Written, config: Config
) -> None:
    topic, headers = written[case]
    assert topic == "orders.delay"
    schedule = rules_of(config, topic).decide(headers, SENT_MS)
    assert isinstance(schedule, Schedule), schedule
    assert (schedule.due_ms, schedule.targets) == (due_ms, (target,))
    assert schedule.deliver_id == (b"4d47e190" if case.startswith("outbox") else None)


def test_a_payment_becomes_a_cancel_of_the_reminder(written: Written, config: Config) -> None:
    topic, headers = written["unless"]
    assert topic == "orders.delay"
    assert rules_of(config, topic).decide(headers, SENT_MS) == Control(Action.CANCEL, b"reminder-42")


@pytest.mark.parametrize(("case", "number", "minutes"), [("spring", 1, 1), ("spring-again", 3, 9)])
def test_a_listener_need_not_count_where_the_delay_topic_does(
    case: str, number: int, minutes: int, written: Written, config: Config
) -> None:
    topic, headers = written[case]
    assert topic == "orders.retry"
    assert [name for name, _ in headers if name.startswith("deliver-")] == []
    schedule = rules_of(config, topic).decide(headers, SENT_MS)
    assert isinstance(schedule, Schedule), schedule
    assert (schedule.due_ms, schedule.targets) == (SENT_MS + minutes * MINUTE_MS, ("orders",))
    assert schedule.attempt is not None
    assert schedule.attempt.number == number


def test_retry_topics_of_spring_are_read_by_an_alias(config: Config) -> None:
    # Spring's BigInteger writes a number with the minimum of bytes.
    timestamp = DUE_MS.to_bytes(6, "big")
    schedule = rules_of(config, "orders-retry").decide([("retry_topic-backoff-timestamp", timestamp)], SENT_MS)
    assert isinstance(schedule, Schedule)
    assert schedule.due_ms == DUE_MS


def test_dead_letters_wait_without_any_header_of_ours(config: Config) -> None:
    schedule = rules_of(config, "dlq.orders").decide([("__dlq.errors.topic", b"orders")], SENT_MS)
    assert isinstance(schedule, Schedule)
    assert (schedule.due_ms, schedule.targets) == (SENT_MS + 15 * MINUTE_MS, ("orders",))


@pytest.mark.parametrize("native", [False, True], ids=["python", "kernel"])
def test_the_bytes_of_a_schema_registry_pass_as_they_are(native: bool) -> None:
    kernel = native_kernel() if native else PYTHON
    # Magic byte, id of the schema, data that is no text.
    key, value = b"\0\0\0\0\x07\x0242", b"\0\0\0\x01\xa4\xff\0\xfe\x80" * 3
    schema_id = ("__value_schema_id", b"\x01" + bytes(range(16)))
    with MockBroker() as broker:
        stripped = StrippedNames(alias.name for alias in NATIVE)
        topic = DelayTopicConfig(name="orders.delay", default_target="orders")
        writer = PartitionWriter(broker.producer, topic, 0, stripped, "id", kernel)
        schedule = Schedule(DUE_MS, ("orders",), BY_KEY, KEEP_KEY, None, both_times=False)
        record = Record(key, value, [("deliver-at", b"%d" % DUE_MS), schema_id], SENT_MS)
        broker.producer.begin_transaction()
        entry = DUE_MS, 7, Scheduled(schedule, 100, record)
        writer.release_all(Transaction([entry], [], Progress(0, Position(0, 0), 0)))
        broker.producer.commit_transaction()
        (seen,) = broker.written("orders")
    assert (seen.key, seen.value) == (key, value)
    assert schema_id in seen.headers


@pytest.mark.parametrize("name", ["Later.java", "Unless.java", "Retries.java", "FixedWait.java"])
def test_the_document_shows_what_is_tested(name: str) -> None:
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    assert text in [each.text for each in blocks(DOCUMENT) if each.language == "java"]

"""Tests of the local Kafka: it stores records, and nodes come back with their data after a kill or pause."""

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from sidecar.dev import local_kafka
from sidecar.dev.local_kafka.settings import HOST, Address, free_addresses
from tests.conftest import MakeTopic, StartCluster
from tests.support.topics import create_topic

_TIMEOUT_S = 30.0


def _write(bootstrap: str, topic: str, value: bytes) -> int:
    """Produce one record with acks=all and return its offset."""
    offsets: list[int | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
    producer.produce(topic, value, partition=0, on_delivery=lambda _, message: offsets.append(message.offset()))
    assert producer.flush(_TIMEOUT_S) == 0
    assert offsets[0] is not None
    return offsets[0]


def _read(bootstrap: str, topic: str, offset: int) -> bytes | None:
    """Return the value of the record at an offset of partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(_TIMEOUT_S)
        assert message is not None, "nothing was read"
        assert message.error() is None, message.error()
        assert message.offset() == offset
        return message.value()
    finally:
        consumer.close()


def test_a_record_goes_in_and_out(kafka: local_kafka.Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic("in-out")
    offset = _write(kafka.bootstrap, topic, b"hello")
    assert _read(kafka.bootstrap, topic, offset) == b"hello"


def test_topics_are_not_made_by_writing_to_them(kafka: local_kafka.Cluster, kafka_admin: AdminClient) -> None:
    if kafka.origin == "given":
        pytest.skip("a given cluster keeps its own auto.create.topics.enable")
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "allow.auto.create.topics": True, "message.timeout.ms": 3000}
    )
    errors: list[object] = []
    producer.produce("nobody-made-me", b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(_TIMEOUT_S)
    assert errors[0] is not None
    assert "nobody-made-me" not in kafka_admin.list_topics(timeout=_TIMEOUT_S).topics


def test_data_survives_kill_stop_and_pause(kafka_factory: StartCluster) -> None:
    kafka = kafka_factory()
    node = kafka.nodes[0]
    create_topic(AdminClient({"bootstrap.servers": kafka.bootstrap}), "durable")
    offset = _write(kafka.bootstrap, "durable", b"before the crash")

    node.kill()
    assert not node.running
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0}).list_topics(timeout=1)
    node.start()
    assert _read(kafka.bootstrap, "durable", offset) == b"before the crash"

    node.stop()
    node.start()
    assert _read(kafka.bootstrap, "durable", offset) == b"before the crash"

    node.pause()
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0}).list_topics(timeout=1)
    node.resume()
    assert _read(kafka.bootstrap, "durable", offset) == b"before the crash"


def test_three_nodes_go_on_when_one_is_killed(kafka_factory: StartCluster) -> None:
    kafka = kafka_factory(3)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    create_topic(admin, "replicated", replication=3, config={"min.insync.replicas": "2"})
    partition = admin.list_topics("replicated", timeout=_TIMEOUT_S).topics["replicated"].partitions[0]
    assert len(partition.replicas) == 3
    first = _write(kafka.bootstrap, "replicated", b"one")

    leader = next(node for node in kafka.nodes if node.node_id == partition.leader)
    leader.kill()
    second = _write(kafka.bootstrap, "replicated", b"two")
    assert [_read(kafka.bootstrap, "replicated", offset) for offset in (first, second)] == [b"one", b"two"]

    leader.start()
    kafka.wait_ready()
    assert _read(leader.bootstrap, "replicated", second) == b"two"


_ORPHAN_MAKER = """
import os, signal
from sidecar.dev import local_kafka
from sidecar.dev.local_kafka.settings import HOST, Address, free_addresses
with local_kafka.cluster(own_nodes=True) as kafka:
    print(kafka.nodes[0].pid, kafka.logs_dir, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.usefixtures("needs_own_nodes")
def test_nothing_is_left_when_the_parent_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ORPHAN_MAKER], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout, done.stderr
    pid, logs = done.stdout.split()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (_exists(int(pid)) or Path(logs).parent.exists()):
        time.sleep(0.05)
    assert not _exists(int(pid))
    assert not Path(logs).parent.exists()


def _exists(pid: int) -> bool:
    """Say whether a process lives; a dead process that its new parent has not collected yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.usefixtures("needs_own_nodes")
def test_logs_are_kept_and_their_place_is_said_when_the_block_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ZeroDivisionError), local_kafka.cluster(own_nodes=True) as kafka:
        raise ZeroDivisionError
    assert kafka.logs_dir is not None
    try:
        assert str(kafka.logs_dir) in capsys.readouterr().err
        assert [path.name for path in kafka.logs_dir.iterdir()] == ["node-1.log"]
        assert list(kafka.logs_dir.parent.iterdir()) == [kafka.logs_dir], "the data of the broker was left behind"
        assert not kafka.nodes[0].running
    finally:
        shutil.rmtree(kafka.logs_dir.parent)


@pytest.mark.usefixtures("needs_own_nodes")
def test_a_port_that_somebody_takes_first_is_given_up_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, free_addresses(1)[0].port)) as other:
        taken = other.getsockname()[1]
        answers = iter([(Address(1, taken, free_addresses(1)[0].port),), free_addresses(1)])
        monkeypatch.setattr("sidecar.dev.local_kafka.own.free_addresses", lambda nodes: next(answers))
        with local_kafka.cluster(own_nodes=True) as kafka:
            assert kafka.bootstrap != f"{HOST}:{taken}"
            assert AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=_TIMEOUT_S).brokers

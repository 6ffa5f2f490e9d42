"""Runs the dead letters of a share group through a delay topic, on the first Kafka that has them."""

from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer

from sidecar.dev.local_kafka.maven import VERSION_VARIABLE
from tests.conftest import StartCluster
from tests.integration.scenario import Stage, wait_until
from tests.support import kafka_tools

VERSION: Final = "4.4.0"
GROUP: Final = "shipping"
ACCEPTS: Final = "errors.deadletterqueue.group.enable"
DELAY_MS: Final = 2_000


def consumed(consumer: ShareConsumer, acknowledge: AcknowledgeType) -> tuple[bytes | None, bytes | None, set[str]]:
    """Wait for one record and acknowledge it; return its key, its value and the names of its headers."""
    found = []

    def has_come() -> bool:
        for message in consumer.poll(0.5):
            assert message.error() is None
            consumer.acknowledge(message, acknowledge)
            found.append((message.key(), message.value(), set(dict(message.headers() or ()))))
        consumer.commit_sync()
        return bool(found)

    wait_until(has_come, "a record for the share group")
    (one,) = found
    return one


@pytest.mark.timeout(240)
def test_a_record_that_a_share_group_rejects_comes_back(
    kafka_factory: StartCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv(VERSION_VARIABLE, VERSION)
    cluster = kafka_factory(1)
    stage = Stage(cluster.bootstrap, tmp_path)
    request.addfinalizer(stage.print_logs)
    stage.word = f"dlq.{stage.word}"
    out = stage.target()
    dead = stage.delay("dead", config={ACCEPTS: "true"}, default_target=out, delay=f"{DELAY_MS}ms")
    names = {"topic.name": dead, "copy.record.enable": "true"}
    settings = {f"errors.deadletterqueue.{name}": value for name, value in names.items()}
    settings["share.auto.offset.reset"] = "earliest"
    kafka_tools.configure(cluster.bootstrap, "groups", GROUP, settings)
    client = {"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
    with stage.router() as router, ShareConsumer(client) as consumer:
        router.start_and_wait()
        consumer.subscribe([out])
        sent = stage.send(out, ("trace", b"1"), key=b"42", value=b"order")
        assert consumed(consumer, AcknowledgeType.REJECT) == (b"42", b"order", {"trace"})
        key, value, headers = consumed(consumer, AcknowledgeType.ACCEPT)
        assert (key, value) == (b"42", b"order")
        # RECIPES says that the headers of the record are gone.
        assert "trace" not in headers
        assert {"__dlq.errors.topic", "__dlq.errors.group", "delay-due", "delay-source"} <= headers
        rejected, again = stage.records(out)
        assert f"{out}/{rejected.partition}/{rejected.offset}" == sent
        assert again.timestamp_ms >= rejected.timestamp_ms + DELAY_MS
        assert router.stop() == 0

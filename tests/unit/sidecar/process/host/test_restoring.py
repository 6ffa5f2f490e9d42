"""Looks at the backfill topic: an error tells the remedy."""

from typing import NoReturn, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from index.errors import ClusterError
from sidecar.config.model import Config
from sidecar.kafka.reading.offset_reader import OffsetReader
from sidecar.process.host import restoring
from sidecar.process.host.restoring import look_at_backfills


def test_a_backfill_topic_that_may_not_be_read_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config.model_validate({"kafka": {"bootstrap.servers": "b:1"}, "delay_topics": [{"name": "d"}]})

    def denied(*_: object) -> NoReturn:
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    monkeypatch.setattr(restoring, "read_backfills", denied)
    with pytest.raises(ClusterError) as raised:
        look_at_backfills(
            config, config.delay_topics[0], 0, cast("AdminClient", None), lambda: 0, cast("OffsetReader", None)
        )
    assert raised.value.remedy.startswith("READ is missing: kafka-acls.sh --bootstrap-server b:1 ")
    assert raised.value.remedy.endswith("--topic d.delay-backfill")

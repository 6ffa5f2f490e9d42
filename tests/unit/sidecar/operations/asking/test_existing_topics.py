"""The delay topics that a command finds on a cluster where none is configured."""

import pytest

from index.errors import ConfigError
from sidecar.config.model import Config
from sidecar.operations.asking.existing_topics import with_topics_among

BARE = Config.model_validate({"kafka": {"bootstrap.servers": "b:9092"}})


def test_a_delay_topic_is_known_by_its_state_topic() -> None:
    existing = ["a.delay", "a.delay.delay-state", "b.delay", "gone.delay-state", "orders", "__consumer_offsets"]
    found = with_topics_among(BARE, [*existing, "odd.rejected", "odd.rejected.delay-state"])
    assert [topic.name for topic in found.delay_topics] == ["a.delay"]
    assert found.delay_topics[0].state == "a.delay.delay-state"
    assert BARE.delay_topics == ()


def test_a_cluster_without_any_is_an_error_that_names_the_brokers() -> None:
    with pytest.raises(ConfigError, match=r"and b:9092 shows none .*--config FILE"):
        with_topics_among(BARE, ["orders.delay", "orders"])

"""Writes the chart's example for Strimzi: topics and user of a router installed with ``ci/strimzi-values.yaml``.

They follow from the router's own code; ``python -m tests.helm.strimzi`` writes them anew, and a test fails if they are
old.
"""

from collections.abc import Iterator
from typing import Any, Final

import yaml

from sidecar.cluster.rights import acls
from sidecar.cluster.rights.strimzi import API_VERSION, kafka_user
from sidecar.cluster.topics import topics
from sidecar.cluster.topics.status_topic import wanted_status
from sidecar.cluster.topics.topics import WantedTopic
from sidecar.config.model import Config
from sidecar.kafka.client.admin import TopicFacts
from tests.helm import chart

FILE: Final = chart.CHART / "ci" / "strimzi.yaml"
VALUES: Final = chart.values("strimzi")

PARTITIONS: Final = 12
REPLICAS: Final = 3

_CLUSTER: Final = "my-cluster"
_HEAD: Final = """\
# The topics and the user of a router that is installed with strimzi-values.yaml, for Strimzi 0.49 or newer. A delay
# topic, its state, its snapshots, its backfill and its receipts have as many partitions each; more of one, more of all.
"""


def config() -> Config:
    """Return the configuration in these values."""
    given = yaml.safe_load(VALUES.read_text())["config"]
    return Config.model_validate(given)


def rendered() -> str:
    """Return the text of the file."""
    chosen = config()
    documents = [yaml.safe_dump(_kafka_topic(wanted), sort_keys=False) for wanted in wanted_topics(chosen)]
    user = "\n".join(kafka_user(acls.needed(chosen), chosen.bootstrap, "User:delay-router"))
    return _HEAD + "---\n".join([*documents, f"{user}\n"])


def wanted_topics(chosen: Config) -> Iterator[WantedTopic]:
    """Yield every topic that ``init --create-targets`` would make for the configuration."""
    for topic in chosen.delay_topics:
        for target in topic.named_targets():
            yield WantedTopic("target topic", target, PARTITIONS, REPLICAS, {"message.timestamp.type": "LogAppendTime"})
        delay = topics.wanted_delay_topic(topic, PARTITIONS, REPLICAS)
        yield delay
        facts = TopicFacts(delay.name, "", PARTITIONS, REPLICAS, frozenset(), delay.settings)
        yield from topics.wanted_beside(topic, facts)
    yield topics.wanted_policies(chosen.router.policies_topic, REPLICAS)
    yield wanted_status(chosen.router.status_topic, REPLICAS)


def _kafka_topic(wanted: WantedTopic) -> dict[str, Any]:
    """Return the resource of a topic, with a name that Kubernetes allows, which may differ from the topic's name."""
    return {
        "apiVersion": API_VERSION,
        "kind": "KafkaTopic",
        "metadata": {
            "name": wanted.name.replace("_", "-").lstrip("-"),
            "labels": {"strimzi.io/cluster": _CLUSTER},
        },
        "spec": {
            "topicName": wanted.name,
            "partitions": wanted.partitions,
            "replicas": wanted.replication_factor,
            "config": wanted.settings,
        },
    }


if __name__ == "__main__":
    FILE.write_text(rendered())

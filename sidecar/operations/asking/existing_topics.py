"""Finds the delay topics of a cluster, for a command that is given brokers and no configured delay topic."""

from collections.abc import Iterable

from index.errors import ConfigError
from index.rules.targets import of_scheme
from sidecar.cluster.topics import reach
from sidecar.cluster.topics.check_targets import delay_topics_of_others
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.client.admin import REQUEST_TIMEOUT_S


def with_existing_topics(config: Config) -> Config:
    """Return the configuration with the delay topics that exist on its cluster; raise ConfigError where none does."""
    return with_topics_among(config, reach.connect(config).list_topics(timeout=REQUEST_TIMEOUT_S).topics)


def with_topics_among(config: Config, existing: Iterable[str]) -> Config:
    """Return the configuration with the delay topics among these topics, as far as names of state topics tell."""
    there = {*existing}
    names = [name for name in delay_topics_of_others(config, there) if name in there and not of_scheme(name)]
    if not names:
        raise ConfigError(
            f"no delay topic is configured, and {config.bootstrap} shows none with a state topic of the default name;"
            " name a configuration: --config FILE"
        )
    topics = tuple(DelayTopicConfig.model_validate({"name": name}) for name in names)
    return config.model_copy(update={"delay_topics": topics})

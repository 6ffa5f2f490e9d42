"""Findings of ``check``, and facts for ``init``, that depend on the cluster and on the policies."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sidecar.cluster.topics import check, reach, topics
from sidecar.cluster.topics.findings import Finding, warn
from sidecar.config.model import Config
from sidecar.kafka.client.admin import topic_settings
from sidecar.kafka.client.commands import alter_command
from sidecar.kafka.client.errors import error_of, text_of
from sidecar.operations.asking import bypassing, needed_records, state_groups
from sidecar.operations.sizing import container_memory
from sidecar.policies.table import NO_POLICIES
from sidecar.policies.timestamps import Stamp, stamps
from sidecar.policies.topic import PoliciesOnDemand

NS_PER_MS: Final = 1_000_000
_TYPE: Final = "message.timestamp.type"
_WHAT: Final = {"due": "due time", "source": "time of sending"}


def report(config: Config) -> list[Finding]:
    """Return all findings; a cluster that does not answer is one of them."""
    try:
        client = reach.connect(config)
    except reach.UnreachableError as unreachable:
        return [*check.configuration_findings(config), unreachable.finding]
    try:
        found = [*check.findings(config, client), *_of_timestamps(config, client), *_of_topics(config, client)]
        return [*found, *bypassing.findings(config, client)]
    except KafkaException as exception:
        return [*check.configuration_findings(config), reach.unreachable(config, [error_of(exception).str()])]


def stamped_targets(config: Config) -> frozenset[str]:
    """Return the targets whose records get another timestamp than the time of release.

    Where the policies cannot be read, go by the configuration alone; findings of ``init`` and ``check`` tell why.
    """
    policies = PoliciesOnDemand(config)
    try:
        policies.settle()
        return frozenset(each.target for each in stamps(policies.table, config))
    except (KafkaException, ValueError):
        return frozenset(each.target for each in stamps(NO_POLICIES, config))


def timestamp_findings(
    bootstrap: str, stamped: Iterable[Stamp], settings: Mapping[str, dict[str, str] | None]
) -> Iterator[Finding]:
    """Yield a warning for each target where the brokers overwrite the timestamp that a delay topic stamps.

    ``settings`` has the settings of each topic. A target that does not exist or may not be described gets no warning.
    """
    for topic, target, mode, said_by in stamped:
        if (settings.get(target) or {}).get(_TYPE) == "LogAppendTime":
            found = warn(
                f"target topic {target}",
                f"{_TYPE}=LogAppendTime: brokers overwrite the {_WHAT[mode]} that {topic} stamps"
                f' (timestamp = "{mode}", {said_by})',
                alter_command(bootstrap, target, {_TYPE: "CreateTime"}),
            )
            yield replace(found, topic=topic)


def _of_topics(config: Config, client: AdminClient) -> Iterator[Finding]:
    answers = check.topic_answers(config, client)
    yield from state_groups.findings(config, answers)
    yield from needed_records.findings(config, answers, time.time_ns() // NS_PER_MS)
    memory = container_memory.finding(config, answers, container_memory.limit_bytes())
    if memory is not None:
        yield memory


def _of_timestamps(config: Config, client: AdminClient) -> Iterator[Finding]:
    policies = PoliciesOnDemand(config)
    try:
        policies.settle()
        stamped = [*stamps(policies.table, config)]
    except (KafkaException, ValueError) as exception:
        why = text_of(error_of(exception)) if isinstance(exception, KafkaException) else str(exception)
        yield warn(
            f"{topics.POLICIES} {config.router.policies_topic}",
            f"the policies for timestamps cannot be read: {why}",
            "see the policies: delay-router policy get",
        )
        return
    yield from timestamp_findings(
        config.bootstrap, stamped, topic_settings(client, dict.fromkeys(each.target for each in stamped))
    )

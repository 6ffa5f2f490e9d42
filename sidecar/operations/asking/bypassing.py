"""Finds the targets that get records from producers that should write to the delay topic; ``check`` warns of them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from confluent_kafka.admin import AdminClient

from sidecar.cluster.topics.check_targets import delay_topics_of_others
from sidecar.cluster.topics.findings import Finding, ok, warn
from sidecar.config.model import Config
from sidecar.kafka.client.admin import REQUEST_TIMEOUT_S
from sidecar.operations.status.target_tails import TargetTail, tails


def findings(config: Config, admin: AdminClient) -> Iterator[Finding]:
    """Read the newest records of all existing targets, and yield findings on records that bypass the delay topic."""
    existing = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    partitions = {name: len(topic.partitions) for name, topic in existing.items() if topic.partitions}
    targets = targets_of(config, partitions)
    read = tails(config, admin, {name: partitions[name] for name in targets})
    yield from told(targets, read)


def targets_of(config: Config, existing: Iterable[str]) -> dict[str, list[str]]:
    """Return each existing target with the delay topics that may deliver there.

    Delay topics of other routers are left out: control headers belong there.
    """
    known = [*existing]
    own = {topic.name for topic in config.delay_topics}
    never = own.union(delay_topics_of_others(config, known))
    rules = [(topic, config.rules_for(topic)) for topic in config.delay_topics]
    found: dict[str, list[str]] = {}
    for name in sorted({*known} - never):
        there = [topic for topic, its in rules if its.allowed(name)]
        if there:
            # Producers are likelier to mistake the default target for its delay topic than any other one.
            found[name] = [each.name for each in sorted(there, key=lambda each: each.default_target != name)]
    return found


def told(targets: Mapping[str, list[str]], read: Mapping[str, TargetTail]) -> Iterator[Finding]:
    """Yield a warning for each target with such records, and a finding for each target that could not be read."""
    for name, delay_topics in targets.items():
        tail, thing = read[name], f"target topic {name}"
        if tail.bypassing:
            message = (
                f"producers write {tail.header} to {name} itself, where it delays nothing: {tail.bypassing} of the"
                f" newest {tail.records} records that were read have such a header and no delay-source, the last one at"
                f" {tail.place}"
            )
            yield replace(warn(thing, message, f"write to {' or '.join(delay_topics)}"), topic=delay_topics[0])
        if tail.unread:
            message = (
                f"its newest records could not all be read ({tail.unread}), so it is not known whether producers write"
                " deliver-* headers to it"
            )
            yield replace(ok(thing, message), topic=delay_topics[0])

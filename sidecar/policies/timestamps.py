"""Which targets are to get records with another timestamp than that of their release, and what says so."""

from collections.abc import Iterator
from typing import NamedTuple

from sidecar.config.model import Config
from sidecar.policies.table import CONFIGURATION, PolicyTable, effective, settings_of


class Stamp(NamedTuple):
    """What a delay topic stamps what it releases to a target with: ``mode`` is ``due`` or ``source``."""

    topic: str
    target: str
    mode: str
    said_by: str
    """``configuration``, or ``policy`` and its scope."""


def stamps(table: PolicyTable, config: Config) -> Iterator[Stamp]:
    """Of each target that configuration or policies name; ValueError when the two cannot be reconciled."""
    for topic in config.delay_topics:
        holds = settings_of(table, config, topic)
        for target in dict.fromkeys([*holds.topic.named_targets(), *holds.timestamps]):
            mode, origin = effective(table, config, topic.name, target)["timestamp"]
            if mode != "release":
                said_by = origin if origin == CONFIGURATION else f"policy {origin}"
                yield Stamp(topic.name, target, str(mode), said_by)

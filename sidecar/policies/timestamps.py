"""Lists the targets whose records get another timestamp than the time of release, and the source of each setting."""

from collections.abc import Iterator
from typing import NamedTuple

from sidecar.config.model import Config
from sidecar.policies.table import CONFIGURATION, PolicyTable, effective, settings_of


class Stamp(NamedTuple):
    """The mode of the timestamps of records from a delay topic for a target: ``due`` or ``source``."""

    topic: str
    target: str
    mode: str
    said_by: str
    """``configuration``, or ``policy`` and its scope."""


def stamps(table: PolicyTable, config: Config) -> Iterator[Stamp]:
    """Yield the stamps of targets that configuration or policies name.

    Raise ValueError if the two cannot be reconciled.
    """
    for topic in config.delay_topics:
        holds = settings_of(table, config, topic)
        for target in dict.fromkeys([*holds.topic.named_targets(), *holds.timestamps]):
            mode, origin, _ = effective(table, config, topic.name, target)["timestamp"]
            if mode != "release":
                said_by = origin if origin == CONFIGURATION else f"policy {origin}"
                yield Stamp(topic.name, target, str(mode), said_by)

"""The description of a job, as it travels to the executors: plain values, and settings that work on any machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from index.buckets.bucket_rules import SealRules
from index.errors import ConfigError
from index.rules.rules import Rules
from spark_backfill.buckets.plan import Slots

_FILES: Final = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}


@dataclass(frozen=True, slots=True)
class Job:
    """One run of ``index`` or ``rebuild`` over one delay topic.

    ``name`` is the user's and stays the same when the job is run again, ``run`` belongs to this run only: keys of
    segments have both, so that no two attempts ever write the same key.
    """

    name: str
    run: str
    kafka: Mapping[str, str]
    group_id: str
    delay_topic: str
    delay_topic_id: str
    snapshots: str
    backfill: str
    rules_json: bytes
    seal_rules: SealRules
    slots: Slots
    slot_keys: tuple[int, ...]
    restores: bool
    report: str
    """File on the driver that receives the summary of the staged buckets, for the line at the end."""
    kernel: str = ""
    """The driver's choice of a kernel (:mod:`spark_backfill.kernel`)."""

    @property
    def rules(self) -> Rules:
        """The rules that decide."""
        return Rules.from_json(self.rules_json)

    @property
    def transactional_id(self) -> str:
        """Id of the staging transaction; no delay topic's worker can have it, because no topic's name has a ``~``."""
        return f"{self.group_id}~{self.delay_topic}~{self.name}"

    @property
    def intent(self) -> str:
        """Name of the job's intents: this run, and as much of the job's name as fits."""
        return f"{self.run}.{self.name}"[:64]

    @property
    def partitions(self) -> list[int]:
        """Partitions of the delay topic that the job covers."""
        return sorted(self.slots.of_partition())

    def producer(self, **more: Any) -> dict[str, Any]:
        """Return the settings of a producer that loses and doubles nothing; ``more`` wins."""
        return producing(self.kafka, self.group_id) | more


def producing(kafka: Mapping[str, str], group_id: str) -> dict[str, Any]:
    """Return the settings of a producer that loses and doubles nothing."""
    return {
        **kafka,
        "client.id": f"{group_id}-spark",
        "enable.idempotence": True,
        "linger.ms": 20,
        # Above a segment of the largest size with its key and headers.
        "message.max.bytes": 1_048_576,
        "queue.buffering.max.kbytes": 65_536,
    }


def portable(kafka: Mapping[str, str]) -> dict[str, str]:
    """Replace the files of certificates in librdkafka's keys by their text, because executors may lack the files."""
    found = dict(kafka)
    for location, pem in _FILES.items():
        if place := found.pop(location, ""):
            try:
                found[pem] = Path(place).read_text(encoding="ascii")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f'kafka."{location}": {place} cannot be read as PEM: {error}') from None
    return found

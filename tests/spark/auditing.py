"""Runs the audit of a stage on Spark, for comparison with the audit in a single process."""

from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from sidecar.dev.audit import AuditReport
from spark_backfill.audit.job import audit, pin
from spark_backfill.audit.scope import AuditRequest, AuditSelection
from spark_backfill.audit.table import GROUPS, Tally
from spark_backfill.settings import load
from spark_backfill.source import connector_options
from tests.integration.scenario import Header, Stage

NAMES = {
    "sent": "sent",
    "released": "released_once",
    "rejected": "rejected",
    "pending": "pending",
    "doubled": "duplicated",
    "lost": "lost",
    "cancelled": "cancelled",
    "replaced": "replaced",
    "answered": "answered",
    "early": "early",
    "altered": "altered",
    "astray": "wrong_target",
    "foreign": "foreign",
    "illegible": "unreadable",
}
"""The single process's names of these counts."""


REJECTION: list[Header] = [("delay-error", b"X"), ("delay-error-message", b"x")]
"""The first headers of a rejection; :class:`Hand` writes the last one."""


class Hand:
    """Releases and rejects by hand, with or without errors."""

    def __init__(self, stage: Stage) -> None:
        self.producer = Producer({**stage.kafka, "transactional.id": stage.word, "linger.ms": 0})
        self.producer.init_transactions()

    def write(
        self, topic: str, source: str, *headers: Header, value: bytes = b"v", key: bytes = b"k", partition: int = 0
    ) -> None:
        """Write in a transaction of its own."""
        self.producer.begin_transaction()
        self.open(topic, source, *headers, value=value, key=key, partition=partition)
        self.producer.commit_transaction()

    def open(
        self, topic: str, source: str, *headers: Header, value: bytes = b"v", key: bytes = b"k", partition: int = 0
    ) -> None:
        """Write within the open transaction."""
        named = [*headers, ("delay-source", source.encode())]
        self.producer.produce(topic, value, key, partition, headers=list(named))
        self.producer.flush()


@dataclass(frozen=True)
class Found:
    """The findings of an audit: in total, by partition, and one by one."""

    total: Tally
    partitions: list[Tally]
    samples: list[dict[str, Any]]

    def outcome(self, place: str) -> str:
        """Return the fate of the record at a place. Raise KeyError if it is not among the findings."""
        return {str(sample["source"]): str(sample["outcome"]) for sample in self.samples}[place]


def audit_stage(
    spark: SparkSession, stage: Stage, selection: AuditSelection | None = None, *, grace_ms: int = 0, **request: Any
) -> Found:
    """Audit every delay topic of a stage."""
    settings = load(stage.router("audit").config, {})
    asked = AuditRequest(settings.delay_topics, selection or AuditSelection(), grace_ms=grace_ms, **request)
    pinned = pin(settings, asked)
    with audit(spark, settings, connector_options(settings.kafka), pinned, print) as audited:
        return Found(audited.total(), audited.by(GROUPS["partition"]), audited.samples(100))


def assert_same(found: Tally, report: AuditReport) -> None:
    """Assert that both audits have the same counts."""
    here = {of: found.counts[name] for name, of in NAMES.items()}
    there = {of: getattr(report, of) for of in NAMES.values()}
    assert here == there, f"{here}\n{there}\n{report.samples}"

"""Records in memory for the auditor's join: sent, released and rejected ones."""

from collections.abc import Sequence
from dataclasses import asdict

from sidecar.dev.audit import AuditedRecord, AuditReport, join
from sidecar.dev.audit.record import Header, due_ms

DELAY, TARGET, OTHER, REJECTED = "d", "t", "u", "d.rejected"
SENT_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
NOW_MS = SENT_MS + 3_600_000
AFTER: Header = ("deliver-after", b"1000")


def sent(
    offset: int = 0,
    *headers: Header,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    at_ms: int = SENT_MS,
) -> AuditedRecord:
    """Make a record of the delay topic."""
    return AuditedRecord(DELAY, 0, offset, key, value, headers, at_ms, appended=False)


def released(
    origin: AuditedRecord, late_ms: int = 3, *, topic: str = TARGET, offset: int = 0, appended: bool = True
) -> AuditedRecord:
    """Make the copy of a record in a target, as a router writes it."""
    due = due_ms(origin)
    provenance: list[Header] = [
        ("delay-due", b"%d" % due),
        ("delay-source", origin.place.encode()),
        ("delay-source-timestamp", b"%d" % origin.timestamp_ms),
    ]
    kept = [header for header in origin.headers if not header[0].startswith("deliver-")]
    at_ms = max(due, origin.timestamp_ms) + late_ms
    return AuditedRecord(topic, 0, offset, origin.key, origin.value, [*kept, *provenance], at_ms, appended)


def refused(origin: AuditedRecord) -> AuditedRecord:
    """Make the copy of a record in the rejected topic."""
    added: list[Header] = [
        ("delay-error", b"INVALID_SCHEDULE"),
        ("delay-error-message", b"no"),
        ("delay-source", origin.place.encode()),
    ]
    return AuditedRecord(REJECTED, 0, 0, origin.key, origin.value, [*origin.headers, *added], SENT_MS)


def audited(
    origins: Sequence[AuditedRecord],
    receipts: Sequence[AuditedRecord] = (),
    *,
    out: Sequence[AuditedRecord] = (),
    no: Sequence[AuditedRecord] = (),
    now_ms: int = NOW_MS,
) -> AuditReport:
    """Join records of the delay topic with their receipts and copies, and return the report."""
    return join(origins, out, no, receipts, now_ms=now_ms, default_targets={DELAY: TARGET})


def counts(report: AuditReport) -> dict[str, int]:
    """Return the counts of the report that are not 0."""
    return {name: count for name, count in asdict(report).items() if isinstance(count, int) and count}

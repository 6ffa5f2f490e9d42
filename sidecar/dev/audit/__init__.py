"""Counts the outcome of every record from the topics alone: it neither asks the router nor uses any of its code.

The audit reads delay, target, rejected and receipts topics by position, committed records only, up to the ends that
they had when it began. A released or rejected record names its origin in ``delay-source`` (``topic/partition/offset``).
The receipt of a control does so too, and it also names the records that will not be released any more. The audit joins
both sides by these names. It computes due times again from the native headers (it does not know aliases). A record is
*early* when the broker appended it to its target before its due time. That needs a target topic with
``message.timestamp.type=LogAppendTime``; the report counts records in other topics.

Begin with :mod:`sidecar.dev.audit.join`.

Every record sent has exactly one outcome: released once, rejected, cancelled, replaced, moved, answered (a control that
is no schedule), pending, duplicated or lost. A record with several targets is released once when each of them has it
once. The audit keeps payloads as digests: a million records sent take 0.6 GB.

``record`` reads the schedule of a record, ``attempts`` reads its attempt, ``receipt`` reads controls and receipts, and
``where`` the predicate of a control.
``entry`` determines the outcome of one record, ``join`` brings both sides together for the ``report``, ``read`` gets
the records, and ``python -m sidecar.dev.audit --help`` is for the shell.
"""

import time
from collections.abc import Mapping, Sequence

from sidecar.dev.audit.attempts import AttemptRules
from sidecar.dev.audit.join import check_order, join
from sidecar.dev.audit.read import AuditError, ranges, read
from sidecar.dev.audit.record import AT_ONCE, UNREADABLE, AuditedRecord
from sidecar.dev.audit.report import AuditReport

__all__ = [
    "AT_ONCE",
    "UNREADABLE",
    "AttemptRules",
    "AuditError",
    "AuditReport",
    "AuditedRecord",
    "audit",
    "check_order",
    "join",
    "ranges",
    "read",
]


def audit(
    kafka: Mapping[str, str],
    *,
    delay: Sequence[str],
    targets: Sequence[str],
    rejected: Sequence[str],
    receipts: Sequence[str],
    default_targets: Mapping[str, str] | None = None,
    default_delays_ms: Mapping[str, int] | None = None,
    retries: Mapping[str, AttemptRules] | None = None,
    grace_ms: int = 0,
) -> AuditReport:
    """Read the topics as they are now and report. A record that has been due for `grace_ms` and is nowhere is lost.

    `kafka` holds librdkafka settings (``bootstrap.servers`` at least). `default_targets` maps a delay topic to the
    target of records that name none, `default_delays_ms` maps it to the delay of records that name no time, and
    `retries` maps it to its retry, if it counts attempts.

    Raise AuditError if a topic cannot be read to its end, and KafkaException when no broker answers.
    """
    now_ms = int(time.time() * 1000)
    # The ends of the outgoing topics come first: the delay topics then hold the origin of every record before them.
    released_to, rejected_to, answered_in = ranges(kafka, targets), ranges(kafka, rejected), ranges(kafka, receipts)
    return join(
        read(kafka, ranges(kafka, delay)),
        read(kafka, released_to),
        read(kafka, rejected_to),
        read(kafka, answered_in),
        now_ms=now_ms - grace_ms,
        default_targets=default_targets,
        default_delays_ms=default_delays_ms,
        retries=retries,
    )

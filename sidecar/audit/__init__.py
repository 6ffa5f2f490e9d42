"""Counts from the topics alone what became of every record: the router is not asked, none of its code used.

Delay, target, rejected and receipts topics are read by position, committed records only, up to the ends they had when
the audit began. A released or rejected record names its origin in ``delay-source``
(``topic/partition/offset``), and so does the receipt of a control, which also names what is not to be released any
more; that joins both sides. Due times are worked out here again from the native
headers (aliases are unknown here), and a record is *early* when the broker appended it to its target before
that time. That takes a target topic with ``message.timestamp.type=LogAppendTime``; of records in others the
report says so.

May import: nothing of this project, since it judges the rest. Begin with :mod:`sidecar.audit.join`.

Every record sent is exactly one of: released once, rejected, cancelled, replaced, answered (a control that is no
schedule), pending, duplicated, lost. One with several targets is released once when each of them has it once.
Payloads are kept as digests: a million records sent take 0.5 GB.

``record`` reads a record's wishes and ``receipt`` those of controls, ``entry`` says what became of one, ``join`` brings
both sides together for the ``report``, ``read`` gets the records, and
``python -m sidecar.audit --help`` is for the shell.
"""

import time
from collections.abc import Mapping, Sequence

from sidecar.audit.join import check_order, join
from sidecar.audit.read import AuditError, ranges, read
from sidecar.audit.record import AT_ONCE, UNREADABLE, Record
from sidecar.audit.report import AuditReport

__all__ = [
    "AT_ONCE",
    "UNREADABLE",
    "AuditError",
    "AuditReport",
    "Record",
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
    grace_ms: int = 0,
) -> AuditReport:
    """Read the topics as they are now and report. A record that is due for `grace_ms` and is nowhere is lost.

    `kafka` holds librdkafka settings (``bootstrap.servers`` at least); `default_targets` maps a delay topic
    to the target of records that name none, `default_delays_ms` to the delay of those that name no time.

    Raises AuditError, and KafkaException when no broker answers.
    """
    now_ms = int(time.time() * 1000)
    # Ends of the outgoing topics first: the origin of all that lies before them is in its delay topic then.
    released_to, rejected_to, answered_in = ranges(kafka, targets), ranges(kafka, rejected), ranges(kafka, receipts)
    return join(
        read(kafka, ranges(kafka, delay)),
        read(kafka, released_to),
        read(kafka, rejected_to),
        read(kafka, answered_in),
        now_ms=now_ms - grace_ms,
        default_targets=default_targets,
        default_delays_ms=default_delays_ms,
    )

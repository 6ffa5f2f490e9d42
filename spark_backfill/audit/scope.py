"""The scope of an audit, pinned before anything is read, so that a log that moves on makes no false verdict.

In this order:

1. *The end of each delay partition*: records below it existed at moment ``began_ms`` and are the judged ones.
2. *A grace period passes*, while Spark starts. After it, a judged record that was due at ``began_ms`` has both been
   in the log and been due for at least that long by any clock that may have written its timestamp.
3. *The ends of target and rejected topics*, without open transactions: the audit waits until every transaction that was
   open then has ended, because it hides its own records and the records behind them. Copies written later are not read;
   the records they come from are pending if they were not due.
4. *The ends of the delay partitions once more*, again without open transactions: a copy that was seen comes from below
   them, or has no origin. So does the record that a transaction has written there together with a receipt.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient

from index.errors import ConfigError
from spark_backfill import cluster
from spark_backfill.settings import DelayTopic

SPLIT_RECORDS: Final = 250_000
"""Offsets that a task reads: seconds of work, so that all cores stay busy with many small partitions or few large
ones."""

Place = tuple[str, int]
"""Topic and partition."""


class Edge(NamedTuple):
    """Boundary of an audited range: an offset, or the first record at or after a moment (epoch ms)."""

    offset: int | None = None
    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AuditSelection:
    """The requested part of a delay topic; no partitions mean all of them, no edge means that end of the log."""

    partitions: frozenset[int] = frozenset()
    start: Edge | None = None
    end: Edge | None = None


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The request for an audit: delay topics, the part of them to judge, and the target topics to read.

    * ``targets``: none = every topic of the cluster that the configuration allows as a target.
    * ``grace_ms``: how long a record may have been due and still be on its way.
    * ``settle_s``: how long to wait for open transactions.
    """

    topics: tuple[DelayTopic, ...]
    selection: AuditSelection = field(default_factory=AuditSelection)
    targets: tuple[str, ...] = ()
    grace_ms: int = 10_000
    settle_s: float = 120.0
    split_records: int = SPLIT_RECORDS


@dataclass(frozen=True, slots=True)
class Judged:
    """The records of one delay topic that are judged, by partition: offsets [starts[p], ends[p])."""

    topic: DelayTopic
    partitions: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]


def judged(admin: AdminClient, topic: DelayTopic, selection: AuditSelection) -> Judged:
    """Pin the judged ranges of a delay topic (step 1); raise ConfigError for a missing partition or offset."""
    found = cluster.topic(admin, topic.name)
    partitions = sorted(selection.partitions) or list(range(found.partitions))
    if partitions[-1] >= found.partitions:
        raise ConfigError(
            f"--partition {partitions[-1]}: {topic.name} has {found.partitions} partitions, from 0 to"
            f" {found.partitions - 1}"
        )
    held = cluster.log_ranges(admin, topic.name, partitions)
    starts = _edges(admin, topic.name, held, selection.start, "--from")
    ends = _edges(admin, topic.name, held, selection.end, "--to")
    empty = {partition: max(starts[partition], ends[partition]) for partition in partitions}
    return Judged(topic, found.partitions, starts, empty)


def _edges(
    admin: AdminClient, name: str, held: Mapping[int, cluster.LogRange], edge: Edge | None, option: str
) -> dict[int, int]:
    default = {partition: log.start if option == "--from" else log.end for partition, log in held.items()}
    if edge is None:
        return default
    if edge.time_ms is not None:
        at = cluster.offsets_at(admin, name, held, edge.time_ms)
        # No record is that young: the range begins, and ends, behind the last one.
        return {
            partition: log.end if at[partition] < 0 else min(at[partition], log.end) for partition, log in held.items()
        }
    offset = edge.offset or 0
    if len(held) > 1:
        raise ConfigError(
            f"{option} {offset}: an offset is meant for one partition, and {name} has {len(held)} of them here; add"
            f" --partition, or give a moment such as 2030-01-31T08:00:00Z"
        )
    for partition, log in held.items():
        if not log.start <= offset <= log.end:
            raise ConfigError(f"{option} {offset}: {name}/{partition} holds offsets {log.start} to {log.end}")
    return dict.fromkeys(held, offset)


def targets_of(topic: DelayTopic, existing: Iterable[str]) -> list[str]:
    """Return the topics of the cluster that a delay topic may release to: its own ones, and those on its allow-list."""
    rules = topic.rules
    own = {rules.default_target, "" if rules.retry is None else rules.retry.dead_letter}
    candidates = (name for name in existing if not name.startswith("__") and name not in rules.forbidden_targets)
    patterns = rules.allowed_targets
    return [name for name in candidates if name in own or any(fnmatchcase(name, pattern) for pattern in patterns)]


def receipts_of(topics: Iterable[DelayTopic], existing: Iterable[str], say: Callable[[str], None]) -> list[str]:
    """Return the receipts topics; one may be missing, because a router without controls needs none."""
    wanted = {topic.receipts for topic in topics}
    found = wanted & set(existing)
    for name in sorted(wanted - found):
        say(f"{name} is not there, or must not be seen: controls, and records that they cancelled, count as lost")
    return sorted(found)

"""The backfill topic read to its end: what jobs still need, and the state that one of them has made anew.

A job that rebuilds what a lost state topic held stages buckets for the whole log. They are good for one thing: to
start a partition that has no state. The first transaction of its owner takes all of them over, C = S = the end of what
the job has read, and W is before all entries, since the job left out what it found released.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from index.bucket import Manifest
from index.errors import FormatError
from index.progress import BEFORE_ALL, Progress
from index.retention import Kept, kept_for_backfills
from index.rule_history import RuleHistory
from index.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.intake.offset_reader import OffsetReader
from sidecar.kafka.admin import is_there, log_range
from sidecar.kafka.commands import acl_command
from sidecar.kafka.errors import cluster_error, error_of
from sidecar.kafka.scan import Stored, read_compacted
from snapshots.staged import STAGED_PREFIX, Staged, decode_staged, fold_staged


@dataclass(frozen=True, slots=True)
class Restored:
    """A state made of staged buckets; ``withdrawn`` are keys and offsets of everything staged to restore one."""

    progress: Progress
    history: RuleHistory
    buckets: tuple[Manifest, ...]
    withdrawn: tuple[tuple[bytes, int], ...]


def read_backfills(config: Config, topic: DelayTopicConfig, partition: int, admin: AdminClient) -> list[Stored]:
    """Everything in a backfill partition; nothing when there is none. Errors as of ``read_compacted``."""
    # Asked first: the client's answer about a partition that is not there is that of one without a leader.
    return read_compacted(config, topic.backfill, partition, admin) if is_there(admin, topic.backfill) else []


def has_records(admin: AdminClient, backfill: str, partition: int) -> bool:
    """Whether a backfill partition may hold something; False also where there is none, or none to be seen."""
    try:
        start, end = log_range(admin, backfill, partition)
    except KafkaException:
        return False
    return start < end


def look_at_backfills(
    config: Config,
    topic: DelayTopicConfig,
    partition: int,
    admin: AdminClient,
    now_ms: Callable[[], int],
    _: OffsetReader,
) -> Kept:
    """Return what jobs need at this moment, for a thread of the pool; errors as of ``kept_by_backfills``.

    ClusterError when the topic cannot be read.
    """
    try:
        records = read_backfills(config, topic, partition, admin)
    except KafkaException as exception:
        error = error_of(exception)
        denied = error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        read = acl_command(config.bootstrap, ["Read"], f"--topic {topic.backfill}")
        raise cluster_error(error, f"READ is missing: {read}" if denied else "") from exception
    return kept_by_backfills(records, now_ms())


def kept_by_backfills(records: Iterable[Stored], now_ms: int) -> Kept:
    """What must not be trimmed; FormatError when something cannot be read that may need it."""
    staged, intents = fold_staged((record.key, record.value) for record in records)
    written_from = [intent.snapshots_from for intent in intents if intent.expires_ms > now_ms]
    return kept_for_backfills([each.manifest for each in staged], written_from)


def restored_from(
    records: Iterable[Stored], delay_topic_id: str, log: tuple[int, int], snapshots: tuple[int, int], rules: Rules
) -> tuple[Restored | None, str]:
    """The state that the buckets of one job make, the furthest one; or None, and why not where there are any.

    ``log`` and ``snapshots`` are the offsets that the two topics hold, [from, to).
    """
    jobs, withdrawn, problems = _restoring(records)
    chosen: Sequence[Staged] = ()
    for job, buckets in jobs.items():
        problem = _problem(buckets, delay_topic_id, log, snapshots, rules)
        if problem:
            problems.append(f"what job {job} has staged cannot be used: {problem}")
        elif not chosen or buckets[-1].manifest.to_offset > chosen[-1].manifest.to_offset:
            chosen = buckets
    if not chosen:
        return None, "; ".join(problems)
    pending = [each.manifest for each in chosen if each.manifest.segments]
    manifests = tuple(
        replace(manifest, bucket_id=number, built_from=manifest.from_offset) for number, manifest in enumerate(pending)
    )
    end = chosen[-1].manifest.to_offset
    progress = Progress(end, BEFORE_ALL, end, 0, len(manifests))
    history = RuleHistory.beginning(chosen[0].manifest.from_offset, rules)
    return Restored(progress, history, manifests, tuple(withdrawn)), ""


def _restoring(records: Iterable[Stored]) -> tuple[dict[str, list[Staged]], list[tuple[bytes, int]], list[str]]:
    latest: dict[bytes, Stored] = {}
    for record in records:
        if record.key is not None and record.key.startswith(STAGED_PREFIX):
            latest[record.key] = record
    jobs: dict[str, list[Staged]] = {}
    withdrawn: list[tuple[bytes, int]] = []
    problems: list[str] = []
    for key, record in latest.items():
        if record.value is None:
            continue
        try:
            staged = decode_staged(key, record.value)
        except FormatError as error:
            problems.append(str(error))
            continue
        if staged.restores:
            jobs.setdefault(staged.job, []).append(staged)
            withdrawn.append((key, record.offset))
    for buckets in jobs.values():
        buckets.sort(key=lambda each: each.manifest.from_offset)
    return jobs, withdrawn, problems


def _problem(
    buckets: Sequence[Staged], delay_topic_id: str, log: tuple[int, int], snapshots: tuple[int, int], rules: Rules
) -> str:
    manifests = [each.manifest for each in buckets]
    offsets = [offset for manifest in manifests for offset in manifest.record_offsets]
    if any(each.delay_topic_id != delay_topic_id for each in buckets):
        return f"it read a delay topic with another id than {delay_topic_id}"
    if any(each.rules != rules for each in buckets):
        return "it decided by other rules than those of the configuration"
    if manifests[0].from_offset > log[0] or manifests[-1].to_offset > log[1]:
        found = f"[{manifests[0].from_offset}, {manifests[-1].to_offset})"
        return f"it covers {found}, and the delay topic holds [{log[0]}, {log[1]})"
    if any(one.to_offset != two.from_offset for one, two in pairwise(manifests)):
        return "there are gaps between its buckets"
    if offsets and not snapshots[0] <= min(offsets) <= max(offsets) < snapshots[1]:
        return "segments that it names are not in the snapshots topic"
    return ""

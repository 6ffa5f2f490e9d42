"""Gives meaning to a backfill partition: the records that jobs still need, and the state that a job has made anew.

A job that rebuilds a lost state topic stages buckets for the whole log. They are good for one thing: to start a
partition that has no state. The first transaction of its owner takes all of them over. C and S are the end of the log
that the job has read. W is before all entries, since the job left out the records that it found released.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from index.buckets.bucket import Manifest
from index.buckets.retention import Kept, kept_for_backfills
from index.errors import FormatError
from index.pending.progress import BEFORE_ALL, Progress
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.engine.ports import Stored
from snapshots.state.staged import STAGED_PREFIX, StagedBucket, decode_staged, fold_staged


@dataclass(frozen=True, slots=True)
class Restored:
    """A state made of staged buckets; ``withdrawn`` has the keys and offsets of everything staged to restore one."""

    progress: Progress
    history: RuleHistory
    buckets: tuple[Manifest, ...]
    withdrawn: tuple[tuple[bytes, int], ...]


def kept_by_backfills(records: Iterable[Stored], now_ms: int) -> Kept:
    """Return the offsets that must not be trimmed; raise FormatError for an unreadable record that may need some."""
    staged, intents = fold_staged((record.key, record.value) for record in records)
    written_from = [intent.snapshots_from for intent in intents if intent.expires_ms > now_ms]
    return kept_for_backfills([each.manifest for each in staged], written_from)


def restored_from(
    records: Iterable[Stored], delay_topic_id: str, log: tuple[int, int], snapshots: tuple[int, int], rules: Rules
) -> tuple[Restored | None, str]:
    """Return the state that the buckets of the job with the most progress make; or None, and the reason.

    ``log`` and ``snapshots`` are the offsets that the two topics hold, [from, to).
    """
    jobs, withdrawn, problems = _restoring(records)
    chosen: Sequence[StagedBucket] = ()
    for job, buckets in jobs.items():
        problem = _problem(buckets, delay_topic_id, log, snapshots, rules)
        if problem:
            problems.append(f"the buckets that job {job} has staged cannot be used: {problem}")
        elif not chosen or buckets[-1].manifest.to_offset > chosen[-1].manifest.to_offset:
            chosen = buckets
    if not chosen:
        return None, "; ".join(problems)
    pending = [each.manifest for each in chosen if each.manifest.segments]
    manifests = tuple(
        replace(manifest, bucket_id=number, built_from=manifest.from_offset) for number, manifest in enumerate(pending)
    )
    end = chosen[-1].manifest.to_offset
    progress = Progress(end, BEFORE_ALL, end, 0, len(manifests), restored_to=end)
    history = RuleHistory.beginning(chosen[0].manifest.from_offset, rules)
    return Restored(progress, history, manifests, tuple(withdrawn)), ""


def _restoring(records: Iterable[Stored]) -> tuple[dict[str, list[StagedBucket]], list[tuple[bytes, int]], list[str]]:
    latest: dict[bytes, Stored] = {}
    for record in records:
        if record.key is not None and record.key.startswith(STAGED_PREFIX):
            latest[record.key] = record
    jobs: dict[str, list[StagedBucket]] = {}
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
    buckets: Sequence[StagedBucket], delay_topic_id: str, log: tuple[int, int], snapshots: tuple[int, int], rules: Rules
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

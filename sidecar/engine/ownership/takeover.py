"""Takes over a delay partition: reads the state of the last owner, and refuses a partition that must not start.

The new owner is the only writer of its group already. Then:

1. The state partition is read to its end: progress, and the rules that decided [S, C). If it names a lane, the lane is
   fenced, and the state is read again (:mod:`sidecar.engine.ownership.lanes`).
2. The delay topic is checked: it must be the topic that the state is about, and must still have the needed records.
3. If the state does not name the own group, or names another one, the own group is noted there, the other one is
   fenced, and all this is done again. Then the brokers are asked on which partitions they may have forgotten a
   transaction (:mod:`sidecar.kafka.doubts`).
4. The first transaction writes the state if it is new or the rules have changed. A job may have made lost state anew,
   as a whole or in part (:mod:`sidecar.process.host.restoring`).

The replay of [S, C) and releases come later; no record is released before the replay has reached C.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NoReturn, Protocol

from index.buckets.retention import rules_needed_from
from index.errors import FormatError, RefusedError, StateLostError
from index.named.series_in_log import SeriesInLog
from index.pending.progress import Progress, start_of
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from index.rules.rules_stored import differing
from sidecar.config.delay_topic import HOW_TO_DELIVER
from sidecar.engine.context import PartitionContext
from sidecar.engine.ownership.lanes import StateWriters, end_former
from sidecar.engine.ownership.origin import Origin
from sidecar.engine.ownership.restored import restored_from
from sidecar.engine.ports import Stored
from sidecar.engine.release.aside import Doubts
from snapshots.segments.manifest import manifest_key
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, StoredState


class Standing(StateWriters, Protocol):
    """The port through which a take-over asks about a partition; an error of a method ends the take-over."""

    def delay_topic_id(self) -> str:
        """Return the id of the delay topic, which a new topic of the same name does not share.

        Raise RefusedError if the topic is missing.
        """

    def log_range(self) -> tuple[int, int]:
        """Return the first offset that the delay partition still has, and the one behind its last committed record."""

    def uncommitted_end(self) -> int:
        """Return the offset behind the last record of the delay partition, open transactions included."""

    def snapshots_range(self) -> tuple[int, int]:
        """Return the offsets of ``log_range`` for the snapshots partition."""

    def stored(self) -> StoredState | None:
        """Return the state that ``lane`` has read; None if the topic is empty.

        Raise FormatError if the state cannot be trusted, and StateLostError if part of it is missing.
        """

    def state_keys(self) -> Collection[bytes]:
        """Return all keys with a value in the state partition, known or not, without claims of groups."""

    def state_starts_at(self) -> int:
        """Return the first offset that the state partition still has."""

    def staged(self) -> Sequence[Stored]:
        """Return all records of the backfill partition."""

    def may_be_staged(self) -> bool:
        """Say whether jobs may have staged records, so that the partition should wait until all are known."""

    def series_key(self) -> bytes:
        """Return the key that signs occurrences, after a loss of the state; empty if no topic has it any more."""

    def series(self, key: bytes) -> SeriesInLog:
        """Find the recurring schedules in the log of the delay partition."""

    def group_offset(self) -> int:
        """Return the offset that the consumer group has committed for the partition; negative if it has none."""

    def doubts(self, known: StoredState) -> Doubts:
        """Return the places in doubt, which must not be written to; raise NotYetError if no record can be released."""


def read_origin(
    context: PartitionContext, standing: Standing, rules: Rules, *, stored_rules_hold: bool = False
) -> Origin:
    """Do steps 1 and 2, and return the origin of the new owner.

    ``stored_rules_hold`` says that ``rules`` may not be the current rules, so that the last rules in the state go on.
    Raise RefusedError with the way out if the partition must not start.
    """
    delay_topic_id = standing.delay_topic_id()
    end_former(standing)
    log_start, log_end = standing.log_range()
    try:
        stored = _stored(context, standing)
    except StateLostError as error:
        restored, why_not = _restored(standing, rules, delay_topic_id, (log_start, log_end))
        if restored is None:
            _refuse_lost_part(context, why_not, error)
        return restored
    if stored is None:
        restored, why_not = _restored(standing, rules, delay_topic_id, (log_start, log_end))
        if restored is not None:
            return restored
        _refuse_if_state_was_lost(context, standing.group_offset(), why_not)
        _refuse_if_not_new(context, log_end or standing.uncommitted_end())
        progress, history = start_of(log_start), RuleHistory.beginning(log_start, rules)
        return Origin(progress, history, delay_topic_id, lost=0, is_stored=False)
    if log_end < stored.progress.cursor:
        # Another owner may have taken over since the question for the end, and have indexed records behind it.
        _, log_end = standing.log_range()
    _refuse_while_ending(context, stored)
    _refuse_if_other_log(context, stored, delay_topic_id, log_end)
    progress = _within_log(stored.progress, log_start)
    in_force = stored.history.in_force if stored_rules_hold else rules
    needed_from = rules_needed_from(progress, stored.buckets, [entry.offset for entry in stored.held])
    history = stored.history.with_epoch(progress.cursor, in_force).since(needed_from)
    return Origin(
        progress,
        history,
        delay_topic_id,
        lost=max(0, log_start - stored.progress.sealed_to),
        is_stored=(progress, history) == (stored.progress, stored.history),
        buckets=stored.buckets,
        held=stored.held,
        mask=stored.mask,
        transit=stored.transit,
        changed=differing(stored.history.in_force, in_force),
        state_starts_at=standing.state_starts_at() if stored.inventory is None else 0,
        lane=stored.lane,
        queries=stored.queries,
    )


def _restored(standing: Standing, rules: Rules, delay_topic_id: str, log: tuple[int, int]) -> tuple[Origin | None, str]:
    """Return the origin that a job has staged to restore the state; or None, and why staged records do not do."""
    restored, why_not = restored_from(standing.staged(), delay_topic_id, log, standing.snapshots_range(), rules)
    if restored is None:
        return None, why_not
    progress = restored.progress._replace(series_key=standing.series_key())
    series = standing.series(progress.series_key)
    origin = Origin(
        progress,
        restored.history,
        delay_topic_id,
        lost=0,
        is_stored=False,
        buckets=restored.buckets,
        mask=series.gone,
        transit=series.transit(progress.cursor),
        restored=restored.withdrawn,
    )
    written = {PROGRESS_KEY, RULES_KEY, *(manifest_key(manifest.bucket_id) for manifest in restored.buckets)}
    written |= {key for key, _ in origin.made_anew}
    return replace(origin, stale=tuple(key for key in standing.state_keys() if key not in written)), ""


def _within_log(progress: Progress, log_start: int) -> Progress:
    """Return the progress with C and S moved to the start of the log, if they are below."""
    return progress._replace(cursor=max(progress.cursor, log_start), sealed_to=max(progress.sealed_to, log_start))


def _stored(context: PartitionContext, standing: Standing) -> StoredState | None:
    try:
        return standing.stored()
    except StateLostError:
        raise
    except FormatError as error:
        topic, partition = context.topic, context.partition
        raise RefusedError(
            f"state topic {topic.state}/{partition} cannot be trusted: {error}. Nothing is released meanwhile. Where a"
            " newer version has served this partition, nothing is lost: upgrade this router. Otherwise restore the"
            " state topic, or give it up, which releases all records in the delay topic again:"
            f" delay-router start-over {topic.name}/{partition}"
        ) from error


def _refuse_lost_part(context: PartitionContext, not_restored: str, error: StateLostError) -> NoReturn:
    raise RefusedError(
        f"state topic {context.topic.state}/{context.partition}: {error}. Somebody, or retention, has removed records"
        f" from its beginning; nothing is released by the rest of it. {_ways_out(context, not_restored)}"
    ) from error


def _refuse_if_state_was_lost(context: PartitionContext, group_offset: int, not_restored: str) -> None:
    # 0 is the cursor of a partition in which nothing has been indexed yet.
    if group_offset > 0:
        topic, partition = context.topic, context.partition
        raise RefusedError(
            f"state topic {topic.state}/{partition} is empty, but group {context.group_id} has offset"
            f" {group_offset} for {topic.name}/{partition}: the state was lost. {_ways_out(context, not_restored)}"
        )


def _ways_out(context: PartitionContext, not_restored: str) -> str:
    return (
        "Restore the state topic, or have a job find the unreleased records from the target topics: python -m"
        " spark_backfill rebuild; or accept that released records are released again:"
        f" delay-router start-over {context.name}/{context.partition}"
        + (f" (There is something to restore the state from, but {not_restored}.)" if not_restored else "")
    )


def _refuse_if_not_new(context: PartitionContext, log_end: int) -> None:
    """Refuse a partition that holds or has held records: a router may have delivered them before."""
    if log_end:
        topic, partition = context.topic, context.partition
        raise RefusedError(
            f"state topic {topic.state}/{partition} is empty, but {topic.name}/{partition} holds, or has held, records"
            f" (its log ends at offset {log_end}): if they were delivered before, starting would deliver them again."
            f" Where no router ever has: {HOW_TO_DELIVER}. Where one has, the state was lost: restore the state topic,"
            " or have a job find the unreleased records from the target topics: python -m spark_backfill rebuild;"
            f" or accept that released records are released again: delay-router start-over {topic.name}/{partition}"
        )


def _refuse_while_ending(context: PartitionContext, stored: StoredState) -> None:
    if stored.ending is not None:
        place = f"{stored.ending.topic}/{stored.ending.partition}"
        command = f"delay-router end-transaction {context.name}/{context.partition} {place}"
        raise RefusedError(
            f"an operator has begun to end a transaction on {place}, and the command has not finished. Run it again: it"
            f" goes on where it stopped: {command}"
        )


def _refuse_if_other_log(context: PartitionContext, stored: StoredState, delay_topic_id: str, log_end: int) -> None:
    topic, partition = context.topic, context.partition
    way_on = (
        f"To forget the old topic and index this one from its start: delay-router start-over {topic.name}/{partition}"
    )
    if stored.delay_topic_id != delay_topic_id:
        raise RefusedError(
            f"delay topic {topic.name} was deleted and created again (id {delay_topic_id}, the state of group"
            f" {context.group_id} is about {stored.delay_topic_id}). {way_on}"
        )
    if log_end < stored.progress.cursor:
        raise RefusedError(
            f"delay topic {topic.name}/{partition} ends at offset {log_end}, before the cursor"
            f" {stored.progress.cursor}: its log was truncated. {way_on}"
        )

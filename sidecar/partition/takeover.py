"""Taking over a delay partition: fence the old owner, read the state, and refuse what must not start.

1. ``init_transactions`` fences the old owner and settles its open transaction.
2. The state partition is read to its end: progress, and the rules that decided [S, C). What the brokers have lost of
   the last transactions is healed before and after that (:mod:`sidecar.healing.healing`).
3. The delay topic is checked to be the one the state speaks of, and to still hold what is needed.
4. The first transaction writes the state where it is new or the rules have changed. State that was lost, as a whole or
   in part, may have been made anew by a job (:mod:`sidecar.backfill.restoring`).

Replaying [S, C) and releasing are the worker's; nothing is released before the replay has reached C.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from index.bucket import Manifest
from index.errors import FormatError, RefusedError, StateLostError
from index.progress import Progress, start_of
from index.retention import rules_needed_from
from index.rule_history import RuleHistory
from index.rules import Rules
from index.rules_stored import differing
from sidecar.backfill.restoring import read_backfills, restored_from
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka import clients
from sidecar.kafka.admin import MISSING, REQUEST_TIMEOUT_S, log_range, uncommitted_end
from sidecar.kafka.compacted import Stored, read_compacted
from sidecar.kafka.errors import Verdict, classify, error_of
from sidecar.release.chores import Chores
from sidecar.release.writer import PartitionWriter
from sidecar.topics.check_brokers import too_long_remedy
from sidecar.topics.first_start import HOW_TO_DELIVER
from sidecar.topics.start_over import state_keys
from snapshots.held import HeldEntry
from snapshots.manifest import manifest_key
from snapshots.owed import Owed, decode_owed
from snapshots.state import PROGRESS_KEY, RULES_KEY, fold_state
from snapshots.state import PartitionState as StoredState

Pay = Callable[[Collection[Owed], StoredState | None], None]

FENCE_WITHIN_S = 60.0
"""Whoever gets no answer for so long begins with a new client, and so with the bootstrap servers: this one may know
addresses only that are no more (see ``clients.producer``)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an owner begins: progress, which rules decide from where, and the delay topic all that is about.

    ``lost`` counts the offsets at or beyond S that retention has already removed: not each of them was pending, but the
    first one was. ``is_stored`` tells whether the state topic says all this already. ``restored`` are keys and offsets
    of what a job has staged, where the state was made of that. ``changed`` names by what the rules differ from those
    that the last owner went by. ``stale`` are keys of the state that are to be removed with the first transaction.
    ``state_starts_at`` is the first offset of the state partition where the state does not say what belongs to it:
    compaction leaves it at 0, and beyond 0 something was removed that may have been part of it.
    """

    progress: Progress
    history: RuleHistory
    delay_topic_id: str
    lost: int
    is_stored: bool
    buckets: tuple[Manifest, ...] = ()
    held: tuple[HeldEntry, ...] = ()
    restored: tuple[tuple[bytes, int], ...] = ()
    changed: tuple[str, ...] = ()
    stale: tuple[bytes, ...] = ()
    state_starts_at: int = 0


def fence(producer: Producer, stopping: Callable[[], bool]) -> None:
    """Become the only writer of the partition; KafkaException when the cluster refuses or is silent, or when stopping.

    RefusedError when the brokers will never take transactions like ours.
    """
    given_up_s = time.monotonic() + FENCE_WITHIN_S
    while True:
        try:
            producer.init_transactions(REQUEST_TIMEOUT_S)
        except KafkaException as exception:
            verdict = classify(error_of(exception))
            if verdict is Verdict.MISCONFIGURED:
                raise RefusedError(f"{error_of(exception).str()}; {too_long_remedy()}") from exception
            # A timed-out call is resumed by calling again; a shorter timeout only lets us look at `stopping`.
            if verdict is not Verdict.RETRY or stopping() or time.monotonic() > given_up_s:
                raise
        else:
            return


def read_origin(
    config: Config,
    topic: DelayTopicConfig,
    partition: int,
    admin: AdminClient,
    rules: Rules,
    *,
    stored_rules_hold: bool = False,
    pay: Pay | None = None,
) -> Origin:
    """Steps 2 and 3; RefusedError when the partition must not start, with the way out.

    ``stored_rules_hold`` where it is not known whether ``rules`` are those of now: the last in the state go on.
    ``pay`` is called with what the state owes (:mod:`snapshots.owed`) until it owes nothing; without it that is not
    looked at.
    """
    delay_topic_id = topic_id(admin, topic.name)
    log_start, log_end = log_range(admin, topic.name, partition)
    try:
        stored = _read_state(config, topic, partition, admin, pay)
    except StateLostError as error:
        restored, why_not = _restored(config, topic, partition, admin, rules)
        if restored is None:
            raise RefusedError(
                f"state topic {topic.state}/{partition}: {error}. Somebody, or retention, has removed records from its"
                f" beginning; nothing is released by what is left. {_ways_out(topic, partition, why_not)}"
            ) from error
        return restored
    if stored is None:
        restored, why_not = _restored(config, topic, partition, admin, rules)
        if restored is not None:
            return restored
        _refuse_if_state_was_lost(config, topic, partition, why_not)
        _refuse_if_not_new(topic, partition, log_end or uncommitted_end(admin, topic.name, partition))
        progress = start_of(log_start)
        return Origin(progress, RuleHistory.beginning(progress.cursor, rules), delay_topic_id, lost=0, is_stored=False)
    if log_end < stored.progress.cursor:
        # Somebody else may have taken over since the end was asked for, and have indexed what came in behind it.
        _, log_end = log_range(admin, topic.name, partition)
    _refuse_if_other_log(config, topic, partition, stored, delay_topic_id, log_end)
    progress = _within_log(stored.progress, log_start)
    in_force = stored.history.in_force if stored_rules_hold else rules
    needed_from = rules_needed_from(progress, stored.buckets)
    history = stored.history.with_epoch(progress.cursor, in_force).since(needed_from)
    return Origin(
        progress,
        history,
        delay_topic_id,
        lost=max(0, log_start - stored.progress.sealed_to),
        is_stored=(progress, history) == (stored.progress, stored.history),
        buckets=stored.buckets,
        held=stored.held,
        changed=differing(stored.history.in_force, in_force),
        state_starts_at=log_range(admin, topic.state, partition)[0] if stored.inventory is None else 0,
    )


def _restored(
    config: Config, topic: DelayTopicConfig, partition: int, admin: AdminClient, rules: Rules
) -> tuple[Origin | None, str]:
    """Where to begin by what a job has staged to restore the state; or None, and why not where there is something."""
    delay_topic_id = topic_id(admin, topic.name)
    log, snapshots = log_range(admin, topic.name, partition), log_range(admin, topic.snapshots, partition)
    staged = _staged(config, topic, partition, admin)
    restored, why_not = restored_from(staged, delay_topic_id, log, snapshots, rules)
    if restored is None:
        return None, why_not
    written = {PROGRESS_KEY, RULES_KEY, *(manifest_key(manifest.bucket_id) for manifest in restored.buckets)}
    origin = Origin(
        restored.progress,
        restored.history,
        delay_topic_id,
        lost=0,
        is_stored=False,
        buckets=restored.buckets,
        restored=restored.withdrawn,
        stale=tuple(state_keys(config, topic, partition, admin) - written),
    )
    return origin, ""


def write_origin(writer: PartitionWriter, origin: Origin) -> None:
    """Begin the first transaction, and write what the state topic does not say yet."""
    writer.begin()
    writer.write_history(origin.history)
    if origin.restored:
        for manifest in origin.buckets:
            writer.write_manifest(manifest)
        writer.write_chores(Chores(removed=origin.stale, withdrawn=tuple(key for key, _ in origin.restored)))
    writer.write_progress(origin.progress)


def _within_log(progress: Progress, log_start: int) -> Progress:
    """Progress that speaks of nothing below the start of the log."""
    return progress._replace(cursor=max(progress.cursor, log_start), sealed_to=max(progress.sealed_to, log_start))


def topic_id(admin: AdminClient, topic: str) -> str:
    """Id of a delay topic, which changes when it is deleted and created again; RefusedError when it is missing."""
    future = admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S)[topic]
    try:
        return str(future.result(REQUEST_TIMEOUT_S + 1).topic_id)
    except KafkaException as exception:
        if error_of(exception).code() in MISSING:
            raise RefusedError(f"delay topic {topic} does not exist; create it: delay-router init") from exception
        raise


def _read_state(
    config: Config, topic: DelayTopicConfig, partition: int, admin: AdminClient, pay: Pay | None
) -> StoredState | None:
    try:
        while True:
            records = read_compacted(config, topic.state, partition, admin)
            stored = fold_state((record.key, record.value) for record in records)
            owed = decode_owed((record.key, record.value) for record in records) if pay is not None else ()
            if pay is None or not owed:
                return stored
            pay(owed, stored)
    except StateLostError:
        raise
    except FormatError as error:
        raise RefusedError(
            f"state topic {topic.state}/{partition} cannot be trusted: {error}. Nothing is released meanwhile. Where a"
            " newer version has served this partition, nothing is lost: upgrade this router. Otherwise restore the"
            " state topic, or give it up, which releases again what is still in the delay topic:"
            f" delay-router start-over {topic.name}/{partition}"
        ) from error


def _staged(config: Config, topic: DelayTopicConfig, partition: int, admin: AdminClient) -> list[Stored]:
    try:
        return read_backfills(config, topic, partition, admin)
    except KafkaException as exception:
        if error_of(exception).code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        # Who may not read it has not been given anything there; ``check`` tells.
        return []


def _ways_out(topic: DelayTopicConfig, partition: int, not_restored: str) -> str:
    return (
        "Restore the state topic, or have a job tell from the target topics what is still to be released: python -m"
        " spark_backfill rebuild; or accept that what has been released is released again:"
        f" delay-router start-over {topic.name}/{partition}"
        + (f" (There is something to restore the state from, but {not_restored}.)" if not_restored else "")
    )


def _refuse_if_state_was_lost(config: Config, topic: DelayTopicConfig, partition: int, not_restored: str) -> None:
    consumer = clients.state_reader(config)
    try:
        # Not by the admin client: see GroupMember._ask_group.
        (found,) = consumer.committed([TopicPartition(topic.name, partition)], REQUEST_TIMEOUT_S)
    finally:
        consumer.close()
    if found.error is not None:
        raise KafkaException(found.error)
    # 0 is the cursor of a partition in which nothing has been indexed yet.
    if found.offset > 0:
        raise RefusedError(
            f"state topic {topic.state}/{partition} is empty, but group {config.router.group_id} has offset"
            f" {found.offset} for {topic.name}/{partition}: the state was lost."
            f" {_ways_out(topic, partition, not_restored)}"
        )


def _refuse_if_not_new(topic: DelayTopicConfig, partition: int, log_end: int) -> None:
    """Only of a partition that has never held anything it is certain that nothing of it was delivered."""
    if log_end:
        raise RefusedError(
            f"state topic {topic.state}/{partition} is empty, but {topic.name}/{partition} holds, or has held, records"
            f" (its log ends at offset {log_end}): if they were delivered before, starting would deliver them again."
            f" Where no router ever has: {HOW_TO_DELIVER}. Where one has, the state was lost: restore the state topic,"
            " or have a job tell from the target topics what is still to be released: python -m spark_backfill rebuild;"
            f" or accept that: delay-router start-over {topic.name}/{partition}"
        )


def _refuse_if_other_log(
    config: Config, topic: DelayTopicConfig, partition: int, stored: StoredState, delay_topic_id: str, log_end: int
) -> None:
    way_on = (
        f"To forget the old topic and index this one from its start: delay-router start-over {topic.name}/{partition}"
    )
    if stored.delay_topic_id != delay_topic_id:
        raise RefusedError(
            f"delay topic {topic.name} was deleted and created again (id {delay_topic_id}, the state of group"
            f" {config.router.group_id} is about {stored.delay_topic_id}). {way_on}"
        )
    if log_end < stored.progress.cursor:
        raise RefusedError(
            f"delay topic {topic.name}/{partition} ends at offset {log_end}, before the cursor"
            f" {stored.progress.cursor}: its log was truncated. {way_on}"
        )

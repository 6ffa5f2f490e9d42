"""``rebuild``: makes the index of a delay topic again, after its state or snapshots are gone.

Pending are the records that the delay topic holds, except the released, rejected and cancelled ones. They are staged up
to the end of the log, or to the first control that no router has read, and marked as restoring: a router that finds no
state starts from them, once and for all partitions that they cover.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from index.protocol.headers import SERIES
from spark_backfill import cluster
from spark_backfill.build import answered, policies, released, scope
from spark_backfill.build.index_job import IndexOutcome, Options, prepare, run
from spark_backfill.build.queried import queries_of, without_queried
from spark_backfill.errors import JobError, NeedsOwnerError
from spark_backfill.settings import DelayTopic, Settings
from spark_backfill.source import OffsetRange, connector_options, read_ranges


def rebuild(
    spark: SparkSession,
    settings: Settings,
    topic: DelayTopic,
    asked: scope.Asked,
    options: Options,
    say: Callable[[str], None],
    *,
    targets: Sequence[str] = (),
    released_before_ms: int = -1,
    settle_s: float = 120.0,
) -> IndexOutcome:
    """Stage the pending records; raise JobError before any of them is staged when they cannot be determined.

    ``targets`` are topics that records were released to and that the configuration no longer allows. Records whose due
    time and timestamp are up to ``released_before_ms`` count as gone, even if no target topic holds them. ``settle_s``
    is the longest wait for transactions that are open on the topics that hold the copies and receipts.
    """
    admin = cluster.connect(settings)
    known = scope.look(settings, topic, admin, asked)
    ranges = scope.rebuild_ranges(settings, topic, known, cluster.group_members(admin, settings.group_id))
    policies.require_targets_read(settings, topic, admin, targets)
    outgoing = released.topics_of(admin, topic, targets)
    has_receipts = topic.receipts in cluster.all_topics(admin)
    pinned = released.logs_of(admin, [*outgoing, *([topic.receipts] if has_receipts else [])], settle_s, say)
    logs = {name: log for name, log in pinned.items() if name in outgoing}
    gone = released.incomplete(admin, logs) + answered.missing(topic.rejected, (), logs.get(topic.rejected, {}))
    if gone and released_before_ms < 0:
        raise _unseen(gone, "")
    if not ranges:
        say(f"{topic.name}: nothing was ever written to it; nothing to do")
        return IndexOutcome()
    connector = connector_options(settings.kafka, options.kafka_options)
    held = [OffsetRange(partition, *log) for partition, log in known.logs.items()]
    records = read_ranges(spark, connector, topic.name, held, options.task_records)
    say(f"{topic.name}: released and rejected records are in {', '.join(logs) or 'no topic'}")
    left = released.without_left(spark, connector, topic, logs, records, options.task_records)
    if released_before_ms < 0 and (unread := released.unread_targets(topic, logs, records, left)):
        raise _unseen(
            unread, " If no record has left to such a target, create the topic, and keep it until the job has ended."
        )
    if ending := series_that_end(left, scope.without_series_key(settings, topic, admin, known)):
        say(
            f"at most {ending} recurring schedules of {topic.name} end: neither {topic.state} nor {topic.snapshots}"
            " has the key that signs their occurrences. The router will reject these: send such schedules again"
        )
    job = partial(prepare, settings, topic, known.delay.topic_id, options=options, admin=admin, restores=True)
    try:
        return run(spark, job(ranges=ranges), left, say, gone_before_ms=released_before_ms)
    except NeedsOwnerError as found:
        say(f"{found}; reading the receipts for that")
    all_receipts = pinned.get(topic.receipts, {})
    receipts = {number: log for number, log in all_receipts.items() if number in known.logs}
    said = answered.answers(spark, connector, topic.name, topic.receipts, receipts, options.task_records)
    gone = answered.missing(topic.receipts, known.logs, receipts)
    gone += released.incomplete(admin, {topic.receipts: receipts} if receipts else {})
    unanswered = answered.first_unanswered(left, topic.rules, said, released_before_ms, gone)
    answered.require_unread(records, left, topic, said, unanswered)
    queries = queries_of(left, topic.rules, unanswered)
    pending = without_queried(left, topic.rules, queries)
    pending = answered.without_answered(pending, topic.rules, said, released_before_ms)
    ranges = _up_to(ranges, unanswered, say)
    for partition, offset in answered.named_behind(said, unanswered):
        say(f"{topic.name}/{partition}/{offset} was cancelled or moved before a router read it, and is pending again")
    return (
        run(spark, job(ranges=ranges), pending, say, gone_before_ms=released_before_ms, answered=True)
        if ranges
        else IndexOutcome()
    )


def _unseen(gone: Sequence[str], otherwise: str) -> JobError:
    """Return the error about released records whose copies cannot be seen."""
    return JobError(
        f"some released records can no longer be seen: {', '.join(gone[:5])}. They would leave again; give the"
        f" instant up to which every due record has left: --released-before INSTANT.{otherwise}"
    )


def series_that_end(left: DataFrame, partitions: Sequence[int]) -> int:
    """Return how many records that have not left are occurrences, in the partitions whose key is lost."""
    if not partitions:
        return 0
    headers = f.coalesce("headers", f.expr("array()").cast("array<struct<key:string,value:binary>>"))
    is_occurrence = f.exists(headers, lambda each: f.lower(each["key"]) == SERIES)
    return left.where(f.col("partition").isin(list(partitions)) & is_occurrence).count()


def _up_to(
    ranges: Sequence[OffsetRange], unanswered: Mapping[int, int], say: Callable[[str], None]
) -> list[OffsetRange]:
    """Cut the ranges at the first control of each partition that no router has read: the router goes on there."""
    found = []
    for partition, start, end in ranges:
        to_offset = min(end, unanswered.get(partition, end))
        if to_offset < end:
            say(f"partition {partition}: the router goes on at offset {to_offset}, with a control that has no receipt")
        if to_offset:
            found.append(OffsetRange(partition, min(start, to_offset - 1), to_offset))
        else:
            say(f"partition {partition} begins with it: delay-router init --deliver-existing has all of it delivered")
    return found

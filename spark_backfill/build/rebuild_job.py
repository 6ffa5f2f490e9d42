"""``rebuild``: the index again, of a delay topic whose state or snapshots are gone.

Pending is what the delay topic holds, less what was released, less what was rejected. It is staged up to the end of the
log and marked as restoring: a router that finds no state starts from it, once and for all partitions it covers.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from spark_backfill import cluster
from spark_backfill.build import released, scope
from spark_backfill.build.index_job import Options, Outcome, prepare, run
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
) -> Outcome:
    """Stage what is pending; JobError when that cannot be known, as where a control lies in the log.

    ``targets`` are topics that records were released to and that the configuration no longer allows. Records whose due
    time and timestamp are at or before ``released_before_ms`` are taken as gone, whatever the target topics hold.
    """
    admin = cluster.connect(settings)
    known = scope.look(settings, topic, admin, asked)
    ranges = scope.rebuild_ranges(settings, topic, known, cluster.group_members(admin, settings.group_id))
    logs = released.logs_of(admin, released.topics_of(admin, topic, targets))
    if (gone := released.incomplete(admin, logs)) and released_before_ms < 0:
        raise JobError(
            f"not everything that was released can be seen any more: {', '.join(gone[:5])}. What is missing there would"
            " be released again; say until when everything due has left: --released-before INSTANT"
        )
    if not ranges:
        say(f"{topic.name}: nothing was ever written to it; nothing to do")
        return Outcome()
    connector = connector_options(settings.kafka, options.kafka_options)
    job = prepare(settings, topic, known.delay.topic_id, ranges, options, admin, restores=True)
    held = [OffsetRange(partition, *log) for partition, log in known.logs.items()]
    records = read_ranges(spark, connector, topic.name, held, options.task_records)
    say(f"{topic.name}: released and rejected records are in {', '.join(logs) or 'no topic'}")
    left = released.without_left(spark, connector, topic, logs, records, options.task_records)
    try:
        return run(spark, job, left, say, keep=f"greatest(due_ms, timestamp_ms) > {released_before_ms}")
    except NeedsOwnerError as found:
        raise JobError(
            f"{found}. What it has cancelled would be pending again, so no index is made of this topic. To go on"
            f" without its state, releasing again what it holds: delay-router start-over {topic.name}"
        ) from found

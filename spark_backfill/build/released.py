"""The records that have left a delay topic, by their copies in target and rejected topics.

A copy names its origin in ``delay-source``, so those topics must still hold every copy: where retention or compaction
has removed some, the caller has to name an instant before which all due records have left.

Any producer that may write to a target can write that header, and a record that counts as released on its word alone
would be lost. So a copy in a target counts only if the router could have made it from the record that it names:

* value and ``delay-source-timestamp`` are equal to the record's;
* the key is that of the record, or the value of one of its headers (``deliver-key``, or an alias of it);
* each header that is not provenance, and does not tell an attempt, is one of the record's;
* the topic is one that the record names, where it names any, or the copy says that its attempts are exhausted.

These tests use the present configuration only for the names of targets: a copy made under other aliases or another
default target still counts, because a copy that is missed is released twice. One attack remains: a user who may read
the delay topic *and* write to a target can make a copy that looks like the router's. In the rejected topic, where only
the router may write, the three headers that it adds last are enough; a record may have been shortened there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Final

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from index.protocol.headers import DELAY_ATTEMPTS_EXHAUSTED, DELAY_TARGET, PRESETS, PROVENANCE, RETRY, Alias, HeaderRole
from spark_backfill import cluster
from spark_backfill.cluster import LogRange
from spark_backfill.errors import JobError
from spark_backfill.settings import DelayTopic
from spark_backfill.source import OffsetRange, read_ranges

_TO: Final = frozenset(
    {"deliver-to"} | {a.name.lower() for preset in PRESETS.values() for a in preset if a.role == HeaderRole.TO}
)
"""Names of headers that may have named a target, in lower case."""

_PLACE_PARTS: Final = 3
_HEADERS: Final = "array<struct<key:string,value:binary>>"

Logs = Mapping[str, Mapping[int, LogRange]]


def topics_of(admin: AdminClient, topic: DelayTopic, more: Iterable[str]) -> list[str]:
    """Return the existing topics that may hold records of the delay topic, and ``more``; JobError for a missing one."""
    existing = set(cluster.all_topics(admin))
    missing = sorted(set(more) - existing)
    if missing:
        raise JobError(f"target topic {missing[0]} does not exist; leave it out of --target")
    return sorted({topic.rejected, *more, *filter(topic.rules.allowed, existing)} & existing)


def logs_of(admin: AdminClient, topics: Iterable[str], settle_s: float, say: Callable[[str], None]) -> Logs:
    """Return the log of each partition of these topics, up to the ends that :func:`cluster.committed_ends` pins.

    Committed copies behind an open transaction are not visible, and their records would leave again.
    """
    counts = {name: topic.partitions for name, topic in cluster.topics(admin, topics).items()}
    ends = cluster.committed_ends(admin, counts, settle_s, say)
    return {
        name: {
            partition: LogRange(log.start, ends[name, partition])
            for partition, log in cluster.log_ranges(admin, name, range(count)).items()
        }
        for name, count in counts.items()
    }


def incomplete(admin: AdminClient, logs: Logs) -> list[str]:
    """Describe topics and partitions that no longer hold everything that was ever written to them."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in logs]
    futures = admin.describe_configs(resources, request_timeout=cluster.REQUEST_TIMEOUT_S) if resources else {}
    policies = {
        resource.name: future.result(cluster.REQUEST_TIMEOUT_S + 1)["cleanup.policy"].value or ""
        for resource, future in futures.items()
    }
    compacted = [f"{name} is compacted" for name, policy in policies.items() if "compact" in policy]
    return compacted + [
        f"{name}/{partition} begins at offset {log.start}"
        for name, partitions in logs.items()
        for partition, log in partitions.items()
        if log.start > 0
    ]


def without_left(
    spark: SparkSession,
    options: Mapping[str, str],
    topic: DelayTopic,
    logs: Logs,
    records: DataFrame,
    split_records: int,
) -> DataFrame:
    """Return the records of the delay topic that have not left, by the copies in these logs."""
    ranges = {
        name: [OffsetRange(partition, *log) for partition, log in partitions.items() if log.start < log.end]
        for name, partitions in logs.items()
    }
    read = [read_ranges(spark, options, name, some, split_records) for name, some in ranges.items() if some]
    if not read:
        return records
    copies = reduce(DataFrame.unionAll, [_copies(frame, topic) for frame in read])
    return records.join(copies, _is_copy(topic.rules.aliases, sorted(logs)), "left_anti")


def unread_targets(topic: DelayTopic, read: Iterable[str], records: DataFrame, left: DataFrame) -> list[str]:
    """Describe the targets whose copies nobody reads: the configured ones, and those that records name.

    ``records`` are those of the delay topic, ``left`` those among them of which no copy was found. A target that was
    deleted, or that the job may not see, hides the copies in it.
    """
    rules = topic.rules
    retried = {DELAY_TARGET} if rules.retry else set()
    always = {rules.default_target, rules.retry.dead_letter if rules.retry else ""} - {""}

    def named_in(frame: DataFrame) -> set[str]:
        names = frame.select(f.explode(_named_targets(rules.aliases, retried)).alias("name")).distinct()
        return {row["name"] for row in names.collect() if row["name"] and rules.allowed(row["name"])}.difference(read)

    # The names in all records cost one reading, those in ``left`` the join.
    named = named_in(left) if rules.allowed_targets and named_in(records) else set()
    return [f"{name} does not exist, or the job may not see it" for name in sorted(always.difference(read) | named)]


def about(records: DataFrame, topic: str) -> DataFrame:
    """Select the records of an outgoing topic that name a record of the delay topic, and read its place.

    They get ``source_partition`` and ``source_offset``; ``all`` are their headers, never null.
    """
    headers = f.coalesce("headers", f.expr("array()").cast(_HEADERS))
    placed = records.select("*", headers.alias("all"), f.split(_last(headers, "delay-source"), "/").alias("place"))
    return (
        placed.where((f.size("place") == _PLACE_PARTS) & (f.get("place", f.lit(0)) == topic))
        .withColumn("source_partition", f.get("place", f.lit(1)).try_cast("int"))
        .withColumn("source_offset", f.get("place", f.lit(2)).try_cast("bigint"))
    )


def _copies(records: DataFrame, topic: DelayTopic) -> DataFrame:
    """Select the origin that each record of an outgoing topic names, and digests of its parts."""
    is_rejected = f.col("topic") == topic.rejected
    names = f.transform("all", lambda each: each["key"])
    added = f.array(*map(f.lit, ("delay-error", "delay-error-message", "delay-source")))
    as_rejected = f.slice(names, f.greatest(f.size(names) - 2, f.lit(1)), f.lit(3)) == added
    own = f.filter("all", lambda each: ~f.lower(each["key"]).isin(sorted(PROVENANCE | RETRY)))
    return (
        about(records, topic.name)
        .where(~is_rejected | as_rejected)
        .select(
            f.col("source_partition").alias("copy_partition"),
            f.col("source_offset").alias("copy_offset"),
            f.col("topic").alias("copy_topic"),
            is_rejected.alias("copy_rejected"),
            _last(f.col("all"), "delay-source-timestamp").alias("copy_sent"),
            _digest(f.col("key")).alias("copy_key"),
            _digest(f.col("value")).alias("copy_value"),
            f.transform(own, _digest_of_header).alias("copy_headers"),
            _last(f.col("all"), DELAY_ATTEMPTS_EXHAUSTED).isNotNull().alias("copy_exhausted"),
        )
    )


def _is_copy(aliases: Iterable[Alias], topics: Sequence[str]) -> Column:
    """Return true where a row of ``_copies`` can have been made from the record of the delay topic."""
    headers = f.coalesce("headers", f.expr("array()").cast(_HEADERS))
    here = (f.col("partition") == f.col("copy_partition")) & (f.col("offset") == f.col("copy_offset"))
    # Only topics that are read: the name may be an alias now and may have been another header at release.
    wanted = f.array_intersect(_named_targets(aliases), f.array(*map(f.lit, topics)))
    keys = f.concat(f.array(_digest(f.col("key"))), f.transform(headers, lambda each: _digest(each["value"])))
    same = (
        (f.col("copy_value") == _digest(f.col("value")))
        & (f.col("copy_sent") == f.unix_millis("timestamp").cast("string"))
        & f.array_contains(keys, f.col("copy_key"))
        & (f.size(f.array_except("copy_headers", f.transform(headers, _digest_of_header))) == 0)
        & ((f.size(wanted) == 0) | f.array_contains(wanted, f.col("copy_topic")) | f.col("copy_exhausted"))
    )
    return here & (f.col("copy_rejected") | f.coalesce(same, f.lit(False)))


def _named_targets(aliases: Iterable[Alias], more: Iterable[str] = ()) -> Column:
    """Return the values of the headers that name a target, may have named one under other aliases, or are ``more``."""
    headers = f.coalesce("headers", f.expr("array()").cast(_HEADERS))
    named = sorted(_TO | {alias.name.lower() for alias in aliases if alias.role == HeaderRole.TO} | set(more))
    naming = f.filter(headers, lambda each: f.lower(each["key"]).isin(named))
    return f.transform(naming, lambda each: each["value"].cast("string"))


def _last(headers: Column, name: str) -> Column:
    """Return the value of the last header of that name as text; null without one. The router's own come last."""
    found = f.filter(headers, lambda each: each["key"] == name)
    return f.get(found, f.size(found) - 1)["value"].cast("string")


def _digest(content: Column) -> Column:
    """Compute a 64-bit digest; null differs from empty."""
    return f.xxhash64(content.isNull(), content)


def _digest_of_header(header: Column) -> Column:
    return f.xxhash64(header["key"], header["value"].isNull(), header["value"])

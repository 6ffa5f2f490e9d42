"""All records that bear on the verdicts, as narrow rows: sent, released and rejected records, and places in receipts.

All rows share one schema, so that they meet in a single shuffle by the place of the sent record:

=========  ============================  =====================  ==========================
column     SENT                          RELEASED               REJECTED
=========  ============================  =====================  ==========================
slot       number of the delay partition, counted over all audited topics; -1: no such partition
offset     offset in it; 0 where ``delay-source`` cannot be read
kind       SENT                          RELEASED               REJECTED
at_ms      due time                      append time            append time
sent_ms    timestamp                     null                   null
sooner_ms  how much sooner it may be due null                   null
spread_ms  null                          ``delay-spread``, or 0 null
released   digest it must arrive with    digest it arrived with null
rejected   digest it must come back with null                   digest, null when malformed
bits<n>    targets it asks for           the target it is in    0
query      query that is true of it      null                   null
flags      WANTS, UNREAD, MISSING        CREATE_TIME            0
=========  ============================  =====================  ==========================

Rows of receipts (:mod:`spark_backfill.audit.receipts`), and of records that others follow
(:mod:`spark_backfill.audit.follows`), have only slot, offset, kind and flags.

A set of targets is a bitmap of 62 targets a column: fixed-width rows aggregate without objects.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from index.protocol.headers import Alias
from spark_backfill.audit.attempts import Attempts
from spark_backfill.audit.follows import FOLLOWED, begins, begun, is_within, origin
from spark_backfill.audit.protocol import (
    Protocol,
    digest,
    is_redrive_mark,
    place_of,
    rejected_as_sent,
    source,
    spread_ms,
)
from spark_backfill.audit.queries import LATE, AnsweredQuery, answered_queries, is_late, query_of
from spark_backfill.audit.receipts import asks, points
from spark_backfill.audit.scope import Judged, Place

SENT: Final = 0
RELEASED: Final = 1
REJECTED: Final = 2

WANTS: Final = 1
"""The record names a target, or its topic has a default one."""
UNREAD: Final = 2
"""The record asks for a topic that exists but is not read in this audit."""
MISSING: Final = 4
"""The record asks for a topic that does not exist."""
CREATE_TIME: Final = 8
"""The timestamp of the record is not the broker's append time."""

BITS: Final = 62
NO_SLOT: Final = -1

_CREATE_TIME_TYPE: Final = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """The pinned scope of an audit: judged records, offsets that may hold copies, and names that the audit knows.

    * ``delay_ends``: ends of the delay partitions behind every copy and receipt that may have been seen, and behind
      every record that was written with a receipt.
    * ``targets``: topics read for released records, in the order of their bits.
    * ``unread``: further topics that exist.
    * ``others``: delay topics of the configuration that are not audited; their copies are ignored.
    * ``outgoing``: offsets [from, to) of target and rejected topics.
    * ``receipts``: offsets [from, to) of receipts topics.
    """

    judged: tuple[Judged, ...]
    delay_ends: Mapping[Place, int]
    targets: tuple[str, ...]
    unread: frozenset[str]
    others: frozenset[str]
    outgoing: Mapping[Place, tuple[int, int]]
    receipts: Mapping[Place, tuple[int, int]]

    @property
    def words(self) -> int:
        """Number of columns of bits for a set of targets."""
        return max(1, -(-len(self.targets) // BITS))

    def places(self) -> list[Place]:
        """Return the delay partition of each slot."""
        return [(each.topic.name, partition) for each in self.judged for partition in range(each.partitions)]


def bits(word: int) -> str:
    """Return the name of a column of bits."""
    return f"bits{word}"


def queries_of(
    spark: SparkSession, options: Mapping[str, str], scene: Scene, split_records: int
) -> list[AnsweredQuery]:
    """Return the queries that have a receipt."""
    if all(start >= end for start, end in scene.receipts.values()):
        return []
    return answered_queries(_read(spark, options, scene.receipts, split_records))


def facts(
    spark: SparkSession,
    options: Mapping[str, str],
    scene: Scene,
    queries: Sequence[AnsweredQuery],
    grace_ms: int,
    split_records: int,
) -> DataFrame:
    """Return the rows of all records; a task reads about ``split_records`` offsets."""
    first_slot, rows = 0, []
    for each in scene.judged:
        # A record that was judged may be followed by one behind the end.
        name = each.topic.name
        ranges = {(name, p): (start, scene.delay_ends[name, p]) for p, start in each.starts.items()}
        if any(start < end for start, end in ranges.values()):
            own = [(number, query) for number, query in enumerate(queries) if query.topic == name]
            rows.append(_sent(_read(spark, options, ranges, split_records), scene, each, first_slot, own, grace_ms))
        first_slot += each.partitions
    if any(start < end for start, end in scene.outgoing.values()):
        rows.append(_copies(_read(spark, options, scene.outgoing, split_records), scene))
    if any(start < end for start, end in scene.receipts.values()):
        rows.append(_receipts(_read(spark, options, scene.receipts, split_records), scene))
    if not rows:
        columns = ["slot int", "offset bigint", "kind int", "at_ms bigint", "sent_ms bigint"]
        columns += [
            "sooner_ms bigint",
            "spread_ms bigint",
            "released bigint",
            "rejected bigint",
            *(f"{bits(word)} bigint" for word in range(scene.words)),
            "query int",
            "flags int",
        ]
        return spark.createDataFrame([], ", ".join(columns))
    return reduce(DataFrame.unionAll, rows)


def _read(
    spark: SparkSession, options: Mapping[str, str], ranges: Mapping[Place, tuple[int, int]], split_records: int
) -> DataFrame:
    held = {place: pair for place, pair in ranges.items() if pair[0] < pair[1]}
    topics = sorted({name for name, _ in held})
    starts = {name: {str(p): pair[0] for (topic, p), pair in held.items() if topic == name} for name in topics}
    ends = {name: {str(p): pair[1] for (topic, p), pair in held.items() if topic == name} for name in topics}
    records = sum(end - start for start, end in held.values())
    return (
        spark.read.format("kafka")
        .options(**options)
        .option("assign", json.dumps({name: [int(p) for p in starts[name]] for name in topics}))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .option("kafka.isolation.level", "read_committed")
        .option("minPartitions", str(max(1, -(-records // split_records))))
        .load()
        .withColumn("headers", f.coalesce("headers", f.expr("array()").cast("array<struct<key:string,value:binary>>")))
        .withColumn("timestamp_ms", f.unix_millis("timestamp"))
    )


def _sent(
    records: DataFrame,
    scene: Scene,
    judged: Judged,
    first_slot: int,
    queries: Sequence[tuple[int, AnsweredQuery]],
    grace_ms: int,
) -> DataFrame:
    protocol = Protocol(judged.topic.rules.aliases, judged.topic.rules.delay_ms)
    headers, control, key, names = f.col("headers"), f.col("control"), f.col("key"), f.col("names")
    attempts = _attempts_of(judged)
    default = judged.topic.rules.default_target
    no_names = f.array(f.lit(default)) if default else f.expr("cast(array() as array<string>)")
    # In steps, so that a value that several columns need is computed once.
    controlled = records.select("*", protocol.control(headers).alias("control"), protocol.user(headers).alias("user"))
    asked, user, timestamp_ms = protocol.targets(control), f.col("user"), f.col("timestamp_ms")
    wanted = f.when(f.size(asked) > 0, asked).otherwise(no_names)
    due_ms, sooner_ms = protocol.due_ms(control, timestamp_ms), f.lit(0).cast("bigint")
    if attempts is not None:
        wanted, user = attempts.targets(asked, headers), attempts.to_be_told(user, headers)
        due_ms = attempts.due_ms(protocol, headers, control, timestamp_ms)
        sooner_ms = attempts.sooner_ms(protocol, headers, control)
    named = controlled.select("*", wanted.alias("names"), origin(headers, judged.topic.name).alias("origin"))
    named = named.select("*", query_of(queries, protocol, names, due_ms, timestamp_ms, control, headers).alias("query"))
    late = is_late(queries, f.col("query"), f.greatest(due_ms, timestamp_ms), grace_ms)
    flags = _wishes(names, scene) + asks(protocol, control) + begins(control) + f.when(late, LATE).otherwise(0)
    slot, null = (f.col("partition") + f.lit(first_slot)).cast("int").alias("slot"), f.lit(None).cast("bigint")
    sent = f.struct(
        slot,
        f.col("offset").cast("bigint").alias("offset"),
        f.lit(SENT).alias("kind"),
        due_ms.alias("at_ms"),
        f.col("timestamp_ms").alias("sent_ms"),
        sooner_ms.alias("sooner_ms"),
        null.alias("spread_ms"),
        digest(protocol.released_key(control, key), f.col("value"), user).alias("released"),
        digest(key, f.col("value"), headers).alias("rejected"),
        *(_bits_of(names, scene.targets, word).alias(bits(word)) for word in range(scene.words)),
        f.col("query"),
        flags.cast("int").alias("flags"),
    )
    followed = f.struct(
        slot,
        f.col("origin").alias("offset"),
        f.lit(FOLLOWED).alias("kind"),
        *(null.alias(name) for name in ("at_ms", "sent_ms", "sooner_ms", "spread_ms", "released", "rejected")),
        *(f.lit(0).cast("bigint").alias(bits(word)) for word in range(scene.words)),
        f.lit(None).cast("int").alias("query"),
        begun(control, f.col("origin")).cast("int").alias("flags"),
    )
    rows = (
        f.when(is_within(f.col("offset"), judged.starts, judged.ends), sent),
        f.when(is_within(f.col("origin"), judged.starts, judged.ends), followed),
    )
    return named.select(f.inline(f.array_compact(f.array(*rows))))


def _wishes(names: Column, scene: Scene) -> Column:
    unread = f.exists(names, lambda name: name.isin(sorted(scene.unread)))
    missing = f.exists(names, lambda name: ~name.isin(sorted(scene.unread) + list(scene.targets)))
    wants = f.when(f.size(names) > 0, WANTS).otherwise(0)
    return (wants + f.when(unread, UNREAD).otherwise(0) + f.when(missing, MISSING).otherwise(0)).cast("int")


def _bits_of(names: Column, targets: Sequence[str], word: int) -> Column:
    nothing = f.lit(0).cast("bigint")
    return f.aggregate(names, nothing, lambda found, name: found.bitwiseOR(_bit_of(name, targets, word)))


def _bit_of(name: Column, targets: Sequence[str], word: int) -> Column:
    """Return the bit of a target in this word; 0 when it has none there."""
    bit: Column | None = None
    for place, target in enumerate(targets[word * BITS : (word + 1) * BITS]):
        value = f.lit(1 << place).cast("bigint")
        bit = f.when(name == target, value) if bit is None else bit.when(name == target, value)
    nothing = f.lit(0).cast("bigint")
    return nothing if bit is None else bit.otherwise(nothing)


def _copies(records: DataFrame, scene: Scene) -> DataFrame:
    headers, key, value = f.col("headers"), f.col("key"), f.col("value")
    rejected_topics = [each.topic.rejected for each in scene.judged]
    is_rejected = f.col("topic").isin(rejected_topics)
    null = f.lit(None).cast("bigint")
    parsed = records.select("*", source(headers).alias("parts"))
    # Other writers to a target set no delay-source. Only the router and redrives should write to a rejected topic.
    parsed = parsed.where(f.col("parts").isNotNull() | (is_rejected & ~is_redrive_mark(headers)))
    placed = _placed(parsed, scene, "key", "value", "topic", "headers", "timestamp_ms", "timestampType")
    plain = _user_headers(headers, scene)
    return placed.select(
        "slot",
        "offset",
        f.when(is_rejected, REJECTED).otherwise(RELEASED).alias("kind"),
        f.col("timestamp_ms").alias("at_ms"),
        null.alias("sent_ms"),
        null.alias("sooner_ms"),
        f.when(~is_rejected, spread_ms(headers)).alias("spread_ms"),
        f.when(~is_rejected, digest(key, value, plain)).alias("released"),
        f.when(
            is_rejected & rejected_as_sent(headers).isNotNull(), digest(key, value, rejected_as_sent(headers))
        ).alias("rejected"),
        *(_bit_of(f.col("topic"), scene.targets, word).alias(bits(word)) for word in range(scene.words)),
        f.lit(None).cast("int").alias("query"),
        f.when(f.col("timestampType") == _CREATE_TIME_TYPE, CREATE_TIME).otherwise(0).cast("int").alias("flags"),
    )


def _receipts(records: DataFrame, scene: Scene) -> DataFrame:
    nothing = f.lit(None).cast("bigint")
    return _placed(points(records), scene, "kind", "flags").select(
        "slot",
        "offset",
        "kind",
        *(nothing.alias(name) for name in ("at_ms", "sent_ms", "sooner_ms", "spread_ms", "released", "rejected")),
        *(f.lit(0).cast("bigint").alias(bits(word)) for word in range(scene.words)),
        f.lit(None).cast("int").alias("query"),
        "flags",
    )


def _user_headers(headers: Column, scene: Scene) -> Column:
    """Return the headers that came from the producer, by the aliases of the delay topic that the copy comes from.

    Where that topic counts attempts, the headers that tell the attempt follow.
    """
    forms = {_form(each): _user_headers_of(headers, each) for each in scene.judged}
    if len(forms) == 1:
        return next(iter(forms.values()))
    chosen = f.when(f.col("slot") == NO_SLOT, headers)
    first_slot = 0
    for each in scene.judged:
        own = forms[_form(each)]
        chosen = chosen.when(f.col("slot").between(first_slot, first_slot + each.partitions - 1), own)
        first_slot += each.partitions
    return chosen.otherwise(headers)


def _form(judged: Judged) -> tuple[frozenset[Alias], bool]:
    """Return the settings on which the headers of a copy depend."""
    return frozenset(judged.topic.rules.aliases), judged.topic.rules.retry is not None


def _user_headers_of(headers: Column, judged: Judged) -> Column:
    user = Protocol(judged.topic.rules.aliases).user(headers)
    return user if judged.topic.rules.retry is None else Attempts.told(user, headers)


def _attempts_of(judged: Judged) -> Attempts | None:
    rules = judged.topic.rules
    return None if rules.retry is None else Attempts(rules.retry, rules.default_target, rules.allowed_targets)


def _placed(parsed: DataFrame, scene: Scene, *kept: str) -> DataFrame:
    """Give rows the slot and offset of their source, beside the columns ``kept``; drop sources that are not judged."""
    topic, partition, offset, legible = place_of(f.col("parts"))
    slot: Column | None = None
    first_slot = 0
    for each in scene.judged:
        hit = legible & (topic == each.topic.name) & (partition < each.partitions)
        value = (partition + f.lit(first_slot)).cast("int")
        slot = f.when(hit, value) if slot is None else slot.when(hit, value)
        first_slot += each.partitions
    assert slot is not None, "an audit has a delay topic"
    placed = parsed.where(~f.coalesce(topic, f.lit("")).isin(sorted(scene.others))).select(
        *kept,
        f.coalesce(slot, f.lit(NO_SLOT)).alias("slot"),
        f.coalesce(f.when(legible, offset), f.lit(0).cast("bigint")).alias("offset"),
    )
    return placed.where((f.col("slot") == NO_SLOT) | _judged(scene) | _from_nowhere(scene))


def _judged(scene: Scene) -> Column:
    starts = [each.starts.get(p, 0) for each in scene.judged for p in range(each.partitions)]
    ends = [each.ends.get(p, 0) for each in scene.judged for p in range(each.partitions)]
    return (f.col("offset") >= _of_slot(starts)) & (f.col("offset") < _of_slot(ends))


def _from_nowhere(scene: Scene) -> Column:
    return f.col("offset") >= _of_slot([scene.delay_ends[place] for place in scene.places()])


def _of_slot(values: Sequence[int]) -> Column:
    return f.get(f.array(*(f.lit(value).cast("bigint") for value in values)), f.col("slot"))

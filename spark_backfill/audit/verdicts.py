"""One verdict for every judged record: the rows of :mod:`spark_backfill.audit.facts`, grouped by their source.

A record has exactly one outcome:

===========  =======================================================================================================
released     one copy in each target it asks for, and in no other topic; not rejected. So is a record that begins a
             series by cron, once its first occurrence is written
rejected     once in the rejected topic, and released nowhere
pending      missing from a topic it belongs in, and not due when the audit began
cancelled    named so in one receipt, or a query behind it matches, and in no topic. If it was due before the receipt of
             the query, the number of these records is the number in the receipt; unprovable otherwise
replaced     named so in one receipt, and in no topic
answered     a control that is no schedule itself, with its one receipt
doubled      twice in one topic, or in a topic too many beside those it asks for, or both released and rejected; one of
             these although a receipt names it; named by two receipts, or a control with two
lost         missing from a topic it belongs in, although it was due when the audit began, a grace period before its
             targets were read. A router that is behind by more than that makes such records too: they count as lost
             until they are there. So is a control that has no receipt, and is not rejected, and one whose receipt says
             that it has moved a schedule, without a record of that schedule or a later receipt that names the control
unprovable   like lost, but its target, its rejected or its receipts topic no longer holds everything since then
unread       like lost or pending, but it asks for a topic that was left out of this audit
foreign      a copy whose origin is not in the delay topic
===========  =======================================================================================================

A record may also be *early* (a copy was appended before the due time), *altered* (key, value or headers of a copy are
not as expected), *astray* (a copy is in a topic it did not ask for), *untimed* (a copy is in a topic without append
times, so its punctuality cannot be judged), *illegible* (released, although its schedule cannot be read here).
"""

from functools import reduce
from operator import add, and_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_backfill.audit.facts import (
    BITS,
    CREATE_TIME,
    MISSING,
    REJECTED,
    RELEASED,
    SENT,
    UNREAD,
    WANTS,
    Scene,
    bits,
)
from spark_backfill.audit.follows import BEGINS, FOLLOWED
from spark_backfill.audit.protocol import UNREADABLE, any_of
from spark_backfill.audit.queries import LATE, QUERIES
from spark_backfill.audit.receipts import (
    CANCELS,
    CONDITIONAL,
    CONTROL,
    HAS_ID,
    IN_VAIN,
    MALFORMED,
    MOVED,
    NAMED,
    RECEIPT,
    REPLACED,
)
from spark_backfill.audit.table import ASIDE, FOREIGN, LATE_STEPS

HOUR_MS: Final = 3_600_000

_QUERIED: Final = "queried"
_LONG: Final = "bigint"


def verdicts(rows: DataFrame, scene: Scene, began_ms: int, horizons: dict[str, int], tasks: int) -> DataFrame:
    """Return a row for each record: slot, offset, due_ms, hour_ms, outcome, the flags, late_ms and late_step.

    ``began_ms`` is the moment up to which records must have left, ``horizons`` come from
    :func:`spark_backfill.audit.history.horizons`, ``tasks`` is the number of tasks that share the work. ``late_ms`` is
    null where punctuality is not judged. :mod:`spark_backfill.audit.summary` settles the outcome of a record with a
    ``query``.
    """
    # Repartitioned first: hardly two rows of a task belong together before, and the folded row is twice as wide.
    grouped = rows.repartition(tasks, "slot", "offset").groupBy("slot", "offset").agg(*_folds(scene))
    # A record may claim to follow one that does not exist.
    grouped = grouped.where(f.col("sent").isNotNull() | (f.col("others") > 0))
    found = grouped.select("*", _found_count(scene).alias("found"), _complete(scene).alias("complete"))
    found = found.select("*", _outcome(scene, began_ms, horizons).alias("outcome"))
    is_queried = f.col("outcome") == _QUERIED
    judged = found.select(
        "slot",
        "offset",
        "due_ms",
        "sent_ms",
        "copies",
        "rejections",
        (f.col("answers") + f.col("names")).alias("receipts"),
        "first_ms",
        "last_ms",
        _hour_ms().alias("hour_ms"),
        f.when(is_queried, _outcome_of_queried(scene, horizons)).otherwise(f.col("outcome")).alias("outcome"),
        f.when(is_queried, f.col("query")).alias("query"),
        (is_queried & _has(LATE)).alias("is_late"),
        _has(QUERIES).alias("queries"),
        *_flags(scene),
        _late_ms().alias("late_ms"),
    )
    return judged.select("*", step_of(f.col("late_ms")).alias("late_step"))


def step_of(late_ms: Column) -> Column:
    """Round lateness to steps that can be counted: exact below 1,024 ms, then rounded up by less than 0.2 %."""
    width = f.greatest(f.floor(f.log2(f.greatest(late_ms, f.lit(1)).cast("double"))).cast("int") - LATE_STEPS, f.lit(0))
    size = f.call_function("shiftleft", f.lit(1).cast(_LONG), width)
    return late_ms - late_ms % size + size - 1


def _folds(scene: Scene) -> list[Column]:
    kind, at_ms, flags = f.col("kind"), f.col("at_ms"), f.col("flags")
    sent, released, rejected = kind == SENT, kind == RELEASED, kind == REJECTED
    appended = released & (flags.bitwiseAND(CREATE_TIME) == 0)
    words = range(scene.words)
    return [
        f.max(f.when(sent, 1)).alias("sent"),
        f.max(f.when(sent, at_ms)).alias("due_ms"),
        f.max("sent_ms").alias("sent_ms"),
        # The wait of an attempt may be shortened.
        f.coalesce(f.max("sooner_ms"), f.lit(0).cast(_LONG)).alias("sooner_ms"),
        # In a burst a record leaves at a time of its own, after the requested one.
        f.coalesce(f.max("spread_ms"), f.lit(0).cast(_LONG)).alias("spread_ms"),
        f.max(f.when(sent, f.col("released"))).alias("as_released"),
        f.max(f.when(sent, f.col("rejected"))).alias("as_rejected"),
        f.max(f.when(sent, flags)).alias("wishes"),
        f.max("query").alias("query"),
        *(f.max(f.when(sent, f.col(bits(word)))).alias(f"wanted{word}") for word in words),
        f.coalesce(f.sum(f.when(released, 1)), f.lit(0)).alias("copies"),
        f.coalesce(f.sum(f.when(rejected, 1)), f.lit(0)).alias("rejections"),
        *(f.coalesce(f.bit_or(f.when(released, f.col(bits(w)))), f.lit(0)).alias(f"found{w}") for w in words),
        f.min(f.when(released, f.col("released"))).alias("low_released"),
        f.max(f.when(released, f.col("released"))).alias("high_released"),
        f.min(f.when(rejected, f.col("rejected"))).alias("low_rejected"),
        f.max(f.when(rejected, f.col("rejected"))).alias("high_rejected"),
        f.coalesce(f.sum(f.when(rejected & f.col("rejected").isNull(), 1)), f.lit(0)).alias("malformed"),
        f.min(f.when(appended, at_ms)).alias("first_ms"),
        f.max(f.when(appended, at_ms)).alias("last_ms"),
        f.max(f.when(released & ~appended, 1)).alias("create_time"),
        f.coalesce(f.sum(f.when(kind == RECEIPT, 1)), f.lit(0)).alias("answers"),
        f.coalesce(f.sum(f.when(kind == NAMED, 1)), f.lit(0)).alias("names"),
        f.max(f.when(kind == NAMED, flags.bitwiseAND(REPLACED) != 0)).alias("is_replaced"),
        f.max(f.when(kind == NAMED, flags.bitwiseAND(MOVED) != 0)).alias("is_moved"),
        f.max(f.when(kind == RECEIPT, flags.bitwiseAND(IN_VAIN) != 0)).alias("in_vain"),
        f.coalesce(f.max(f.when(kind == RECEIPT, flags.bitwiseAND(MOVED) != 0)), f.lit(False)).alias("has_moved"),
        f.coalesce(f.max(f.when(kind == RECEIPT, flags.bitwiseAND(MALFORMED))), f.lit(0)).alias("no_receipt"),
        f.coalesce(f.max(kind == FOLLOWED), f.lit(False)).alias("is_followed"),
        f.coalesce(f.max((kind == FOLLOWED) & (flags.bitwiseAND(BEGINS) != 0)), f.lit(False)).alias("has_begun"),
        f.coalesce(f.sum(f.when(kind != FOLLOWED, 1)), f.lit(0)).alias("others"),
    ]


def _has(flag: int) -> Column:
    return f.coalesce(f.col("wishes").bitwiseAND(flag), f.lit(0)) != 0


def _all(conditions: list[Column]) -> Column:
    return reduce(and_, conditions)


def _found_count(scene: Scene) -> Column:
    return reduce(add, [f.bit_count(f"found{word}") for word in range(scene.words)])


def _complete(scene: Scene) -> Column:
    """Return true if every requested target has a copy; if none is requested, true if any topic has one."""
    read = [
        f.col(f"found{word}").bitwiseAND(f.col(f"wanted{word}")) == f.col(f"wanted{word}")
        for word in range(scene.words)
    ]
    everywhere = _all(read) & ~_has(UNREAD) & ~_has(MISSING)
    return f.when(_has(WANTS), everywhere).otherwise(_found_count(scene) > 0)


def _outcome(scene: Scene, began_ms: int, horizons: dict[str, int]) -> Column:
    copies, rejections, found = f.col("copies"), f.col("rejections"), f.col("found")
    exact = _all([f.col(f"found{word}") == f.col(f"wanted{word}") for word in range(scene.words)])
    too_many = f.when(_has(WANTS), f.col("complete") & ~exact).otherwise(found > 1)
    answers, names = f.col("answers"), f.col("names")
    is_void = (answers > 0) & (_has(CANCELS) | (_has(CONDITIONAL) & f.col("in_vain")))
    in_spite = ((copies > 0) | (rejections > 0)) & (is_void | (names > 0))
    many = (copies > found) | (rejections > 1) | ((rejections > 0) & (copies > 0)) | (answers > 1) | (names > 1)
    doubled = many | too_many | in_spite
    unanswered = _has(CONTROL) & (answers == 0) & (rejections == 0)
    missing = f.when(_removed(scene, horizons), "unprovable").otherwise("lost")
    is_moved_nowhere = is_void & f.col("has_moved") & ~f.col("is_followed") & (names == 0)
    has_begun = _has(BEGINS) & f.col("has_begun") & (copies == 0)
    by_receipt = f.when(f.col("is_replaced"), "replaced").when(f.col("is_moved"), "moved").otherwise("cancelled")
    # A record that is released to only some of its targets is not released.
    return (
        f.when(f.col("sent").isNull(), FOREIGN)
        .when(doubled, "doubled")
        # A receipt is written when the control is read, however long the schedules wait.
        .when(unanswered, f.when(f.col("sent_ms") > began_ms, "pending").otherwise(missing))
        .when((names > 0) & ~_has(CANCELS), by_receipt)
        .when(is_moved_nowhere, "lost")
        .when(is_void, "answered")
        .when(rejections == 1, "rejected")
        .when(((copies > 0) & f.col("complete")) | has_begun, "released")
        .when((copies == 0) & f.col("query").isNotNull(), _QUERIED)
        .when(_has(UNREAD), "unread")
        .when(f.col("due_ms") > began_ms, "pending")
        .otherwise(missing)
    )


def _outcome_of_queried(scene: Scene, horizons: dict[str, int]) -> Column:
    # It may have left before the query.
    left = f.when(_has(UNREAD), "unread").when(_removed(scene, horizons), "unprovable")
    return f.coalesce(f.when(_has(LATE), left), f.lit("cancelled"))


def _removed(scene: Scene, horizons: dict[str, int]) -> Column:
    """Return true if retention or compaction may have removed the copy: it removed records of that age."""
    targets = [
        (f.col(f"wanted{place // BITS}").bitwiseAND(f.lit(1 << (place % BITS)).cast(_LONG)) != 0)
        & (f.greatest("due_ms", "sent_ms") < horizons[name])
        for place, name in enumerate(scene.targets)
        if horizons[name] > 0
    ]
    rejected = {each.topic.rejected for each in scene.judged}
    oldest = max((horizons.get(name, 0) for name in rejected), default=0)
    receipts = max((horizons.get(each.topic.receipts, 0) for each in scene.judged), default=0)
    nameable = (_has(HAS_ID) | _has(CONTROL)) & (f.col("sent_ms") < receipts)
    return any_of([*targets, f.col("sent_ms") < oldest, nameable] if oldest else [*targets, nameable])


def _flags(scene: Scene) -> list[Column]:
    copies, due_ms = f.col("copies"), f.col("due_ms")
    sent, legible = f.col("sent").isNotNull(), due_ms != UNREADABLE
    released_as = (f.col("low_released") != f.col("as_released")) | (f.col("high_released") != f.col("as_released"))
    rejected_as = (f.col("low_rejected") != f.col("as_rejected")) | (f.col("high_rejected") != f.col("as_rejected"))
    strange = [
        f.col(f"found{word}").bitwiseAND(f.bitwise_not(f.col(f"wanted{word}"))) != 0 for word in range(scene.words)
    ]
    # A receipt may name a move whose schedule it has cancelled before it was written, but no other control.
    names_no_schedule = _has(CANCELS) & (f.col("names") > 0) & ~f.col("has_moved")
    malformed = (f.col("malformed") > 0) | (f.col("no_receipt") > 0) | names_no_schedule
    flags = {
        "early": sent & legible & (f.col("first_ms") < due_ms - f.col("sooner_ms") + f.col("spread_ms")),
        "altered": sent & (_true(released_as) | _true(rejected_as) | malformed),
        "astray": sent & _has(WANTS) & any_of(strange),
        "untimed": sent & (f.col("create_time") == 1),
        "illegible": sent & (copies > 0) & ~legible,
    }
    assert set(flags) == set(ASIDE)
    return [_true(flag).alias(name) for name, flag in flags.items()]


def _true(condition: Column) -> Column:
    return f.coalesce(condition, f.lit(False))


def _late_ms() -> Column:
    """Return the append time of the last copy minus the moment when the record could first leave.

    A producer's clock may run ahead of the broker's; its record could leave no earlier than it was sent.
    """
    last_ms = f.col("last_ms")
    could_leave_ms = f.greatest(f.col("due_ms") + f.col("spread_ms"), f.least(f.col("sent_ms"), last_ms))
    timed = f.col("sent").isNotNull() & last_ms.isNotNull() & (f.col("due_ms") != UNREADABLE)
    return f.when(timed, f.greatest(last_ms - could_leave_ms, f.lit(0).cast(_LONG)))


def _hour_ms() -> Column:
    """Return the hour in which the record was to leave, as its first millisecond; null for a foreign copy."""
    leaves_ms = f.greatest("due_ms", "sent_ms")
    return leaves_ms - f.pmod(leaves_ms, f.lit(HOUR_MS).cast(_LONG))

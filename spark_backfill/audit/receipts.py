"""Receipts of controls as rows: one for the control that a receipt answers, and one for each record that it names.

A control is a record with ``deliver-cancel``, ``-replace``, ``-move`` or ``-cancel-where``. It has exactly one receipt,
unless it is rejected, and the records that the receipt names are not released any more. No code is shared with the
router.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_backfill.audit.protocol import Protocol, plain, source
from spark_backfill.audit.queries import QUERIES

RECEIPT: Final = 3
NAMED: Final = 4
"""Kinds of rows, beside the kinds of :mod:`spark_backfill.audit.facts`."""

CONTROL: Final = 16
"""The record must have a receipt."""
CANCELS: Final = 32
"""The record is no schedule, even if its receipt says so."""
CONDITIONAL: Final = 64
"""The record is no schedule where its receipt is IN_VAIN."""
HAS_ID: Final = 128
"""A receipt may name the record."""

REPLACED: Final = 256
"""The receipt answers a replacement."""
IN_VAIN: Final = 512
"""The receipt says that there was nothing to cancel or to replace."""
MALFORMED: Final = 1024
"""The record is no receipt."""
MOVED: Final = 2048
"""The receipt answers a move, and says that it is done."""

_SAID: Final = "action string, outcome string, cancelled array<struct<offset:bigint>>"


def asks(protocol: Protocol, control: Column) -> Column:
    """Compute the flags of a record from its control headers: its requests as a control, and whether it has an id."""

    def has(*names: str) -> Column:
        return f.exists(control, lambda each: plain(each["key"]).isin(*names))

    flags = {
        CONTROL: has("deliver-cancel", "deliver-replace", "deliver-move", "deliver-cancel-where"),
        CANCELS: has("deliver-cancel", "deliver-move", "deliver-cancel-where"),
        CONDITIONAL: has("deliver-if-due"),
        HAS_ID: protocol.has_id(control),
        QUERIES: has("deliver-cancel-where"),
    }
    return _sum(flags)


def points(records: DataFrame) -> DataFrame:
    """Return ``parts`` of a place, ``kind`` and ``flags`` for each record that a receipt answers or names."""
    said, parts = f.col("said"), f.col("parts")
    read = records.select(
        source(f.col("headers")).alias("parts"), f.from_json(f.col("value").cast("string"), _SAID).alias("said")
    )
    outcome, action, named = said["outcome"], said["action"], said["cancelled"]
    done = f.when(action == "cancel", "cancelled").when(action == "replace", "replaced").when(action == "move", "moved")
    done = done.when(action == "cancel-where", "cancelled-where")
    # A schedule that could not be written again stays where it was.
    not_moved = (action == "move") & (outcome == "not-moved")
    in_vain = f.coalesce(outcome.isin("not-pending", "changed") | not_moved, f.lit(False))
    # A move whose last schedule could not be written again has cancelled the others.
    fits = in_vain | (outcome == done) | ((action == "move") & (outcome == "cancelled"))
    well_formed = done.isNotNull() & named.isNotNull() & fits
    flags = {
        REPLACED: action == "replace",
        IN_VAIN: in_vain,
        MALFORMED: ~f.coalesce(well_formed, f.lit(False)),
        MOVED: outcome == "moved",
    }
    answered = f.struct(parts.alias("parts"), f.lit(RECEIPT).alias("kind"))
    places = f.transform(
        f.coalesce(named, f.expr("cast(array() as array<struct<offset:bigint>>)")),
        lambda each: f.struct(
            f.array(f.get(parts, f.lit(0)), f.get(parts, f.lit(1)), each["offset"].cast("string")).alias("parts"),
            f.lit(NAMED).alias("kind"),
        ),
    )
    flagged = read.select(_sum(flags).alias("flags"), f.explode(f.concat(f.array(answered), places)).alias("point"))
    return flagged.select("point.parts", "point.kind", "flags")


def _sum(flags: dict[int, Column]) -> Column:
    """Sum the numbers of the flags that are true; null counts as false."""
    total = f.lit(0)
    for number, holds in flags.items():
        total = total + f.when(holds, number).otherwise(0)
    return total.cast("int")

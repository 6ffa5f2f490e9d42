"""Records that a router has written into a delay partition, as rows for the records that they follow from.

The first occurrence of a series by cron, and each moved schedule, names the place of such a record in its last
``delay-source``. No code is shared with the router.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_backfill.audit.protocol import begins_by_cron, place_of, series, source

FOLLOWED: Final = 5
"""Kind of a row, beside the kinds of :mod:`spark_backfill.audit.facts`: a later record of the partition follows it."""

BEGINS: Final = 8192
"""The record begins a series by cron, or follows as the first occurrence of a series."""


def origin(headers: Column, topic: str) -> Column:
    """Return the offset of the earlier record of the same partition that a record names; null without one."""
    named, partition, offset, legible = place_of(source(headers))
    is_here = legible & (named == topic) & (partition == f.col("partition"))
    return f.when(is_here & (offset < f.col("offset")), offset)


def begins(control: Column) -> Column:
    """Return the flag of a record that begins a series by cron."""
    return f.when(begins_by_cron(control), BEGINS).otherwise(0)


def begun(control: Column, origin_offset: Column) -> Column:
    """Return the flag of a record that is the first occurrence of the series that its origin begins."""
    numbers = series(control)
    is_first = (f.get(numbers, f.lit(0)) == origin_offset) & (f.get(numbers, f.lit(1)) == 1)
    return f.when(is_first, BEGINS).otherwise(0)


def is_within(offset: Column, starts: Mapping[int, int], ends: Mapping[int, int]) -> Column:
    """Return true if an offset of the partition of this row is in the range [start, end) of the partition."""
    within = f.lit(False)
    for partition, start in starts.items():
        within = within | ((f.col("partition") == partition) & offset.between(start, ends[partition] - 1))
    return f.coalesce(within, f.lit(False))

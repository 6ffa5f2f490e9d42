"""Progress lines of a job while its rows are surveyed and written; writing begins when all rows are in their place."""

import time
from contextlib import suppress

from confluent_kafka import KafkaException
from pyspark import SparkContext

from spark_backfill.schedule.ledger import Ledger
from spark_backfill.stages import Line, stages_of


def surveying(context: SparkContext, group: str) -> Line:
    """Return a line about the survey: how many parts of the table were read."""

    def line() -> str:
        stages = stages_of(context, group)
        return f"surveyed {stages[-1]} of the table" if stages else ""

    return line


class WritingLines:
    """Lines about the writing: parts that are read again and put in place, then rows that are done, with their rate."""

    def __init__(self, context: SparkContext, group: str, ledger: Ledger, partitions: list[int], rows: int) -> None:
        self._context = context
        self._group = group
        self._ledger = ledger
        self._partitions = partitions
        self._rows = rows
        self._before = -1
        self._began_s = 0.0

    def __call__(self) -> str:
        """Return the current line; empty when there is no progress to report."""
        # A coordinator that does not answer now may answer the next time; the tasks do not depend on it.
        with suppress(KafkaException):
            done = sum(each.done for each in self._ledger.read(self._partitions).values())
            if self._before < 0:
                self._began_s, self._before = time.monotonic(), done
            elif done > self._before:
                rate = (done - self._before) / (time.monotonic() - self._began_s)
                return f"{done:,} of {self._rows:,} rows done ({rate:,.0f}/s)"
            if (stages := stages_of(self._context, self._group)) and stages[0].done < stages[0].tasks:
                return f"read {stages[0]} of the table to put the rows in order; writing begins after that"
            return "writing the first rows"
        return ""

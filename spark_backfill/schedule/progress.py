"""Progress lines of a job while its rows are surveyed and written; writing begins when all rows are in their place."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from confluent_kafka import KafkaException
from pyspark import InheritableThread, SparkContext

from spark_backfill.schedule.ledger import Ledger
from spark_backfill.stages import stages_of

EVERY_S: Final = 5.0

Say = Callable[[str], None]
Line = Callable[[], str]


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


@contextmanager
def said(context: SparkContext, make: Callable[[str], Line], say: Say) -> Iterator[None]:
    """Run Spark's work in one group of jobs, and report its progress every few seconds.

    ``make`` takes the name of the group and returns a function for the current line.
    """
    group = f"schedule-{secrets.token_hex(6)}"
    context.setJobGroup(group, "schedule", interruptOnCancel=False)
    line, ended = make(group), threading.Event()

    def run() -> None:
        while not ended.wait(EVERY_S):
            if text := line():
                say(text)

    # It also closes the thread's own connection to the JVM.
    thread = InheritableThread(run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

"""Progress of a job while it runs: tasks done and an estimate of the records read, from Spark's own status."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from pyspark import InheritableThread, SparkContext

from spark_backfill.buckets.staging import Intents
from spark_backfill.stages import EVERY_S, stages_of


class ProgressReport:
    """Reports progress every few seconds until the end of the ``with`` block, and renews the job's intents.

    ``records`` are the offsets of all ranges; each task of the first stage reads about the same share of them.
    """

    def __init__(
        self, context: SparkContext, group: str, records: int, say: Callable[[str], None], intents: Intents
    ) -> None:
        # It also closes the thread's own connection to the JVM.
        self._thread = InheritableThread(self._run, daemon=True)
        self._context = context
        self._group = group
        self._records = records
        self._say = say
        self._intents = intents
        self._ended = threading.Event()
        self._began_s = time.monotonic()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._keep_intents()
            if line := self._line():
                self._say(line)

    def _keep_intents(self) -> None:
        try:
            self._intents.renew()
        except KafkaException as exception:
            self._say(f"intents not renewed yet: {exception.args[0].str()}")
        if not self._intents.hold:
            self._say(
                "the intents of this job have expired: its segments may be trimmed, so it is cancelled; run it again"
            )
            self._context.cancelJobGroup(self._group)

    def _line(self) -> str:
        known = stages_of(self._context, self._group)
        if not known:
            return ""
        first, last = known[0], known[-1]
        read = self._records * first.done // first.tasks
        elapsed_s = time.monotonic() - self._began_s
        line = f"read {first}, about {read:,} records"
        if last is not first:
            line += f"; written {last}"
        return f"{line}; {read / elapsed_s:,.0f} records/s"

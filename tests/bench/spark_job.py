"""Runs one ``index`` job in a separate process, with a session of two cores, and excludes the session's start."""

import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import psutil

from spark_backfill import session, settings
from spark_backfill.build import index_job
from spark_backfill.build.scope import Asked
from tests.bench import child
from tests.bench.machine import cpu_s

CONF: Final = ("spark.master=local[2]", "spark.driver.memory=1g", "spark.ui.enabled=false")
SAMPLED_EVERY_S: Final = 0.25
KIB: Final = 1024


class Taken(threading.Thread):
    """Samples the peak memory of the JVM (driver and executor in local mode) and of the Python workers.

    Their CPU time is more reliable than the clock if other processes use the machine, too.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.jvm_bytes = 0
        self.workers_bytes = 0
        self._jvm_cpu_s: dict[int, float] = {}
        self._workers_cpu_s: dict[int, float] = {}

    @property
    def cpu_s(self) -> tuple[float, float]:
        """The CPU time in s of the JVM, and of all observed Python workers."""
        return sum(self._jvm_cpu_s.values()), sum(self._workers_cpu_s.values())

    def run(self) -> None:
        """Sample until the process ends."""
        while True:
            jvm = workers = 0
            for process in psutil.Process().children(recursive=True):
                try:
                    is_jvm, resident = process.name() == "java", process.memory_info().rss
                    used_s = cpu_s(process)
                except psutil.Error:
                    continue
                (self._jvm_cpu_s if is_jvm else self._workers_cpu_s)[process.pid] = used_s
                jvm += resident if is_jvm else 0
                workers += 0 if is_jvm else resident
            self.jvm_bytes, self.workers_bytes = max(self.jvm_bytes, jvm), max(self.workers_bytes, workers)
            time.sleep(SAMPLED_EVERY_S)


def main() -> None:
    """Run the job, and answer with its costs."""
    given: dict[str, Any] = child.arguments()
    configured = settings.load(Path(given["config"]), {})
    spark = session.start("bench", CONF, _say)
    # A first job starts the Python workers and loads the classes.
    spark.range(4).mapInArrow(lambda batches: batches, "id long").count()
    taken = Taken()
    taken.start()
    time.sleep(2 * SAMPLED_EVERY_S)
    before_s = taken.cpu_s
    began_s = time.monotonic()
    topic = configured.delay_topic(given["topic"])
    outcome = index_job.index(spark, configured, topic, Asked(), index_job.Options(), _say)
    elapsed_s = time.monotonic() - began_s
    time.sleep(2 * SAMPLED_EVERY_S)
    jvm_cpu_s, workers_cpu_s = (after - before for after, before in zip(taken.cpu_s, before_s, strict=True))
    spark.stop()
    child.answer(
        elapsed_s=elapsed_s,
        jvm_cpu_s=jvm_cpu_s,
        workers_cpu_s=workers_cpu_s,
        entries=outcome.entries,
        segments=outcome.segments,
        bytes=outcome.bytes,
        kernel=outcome.kernel,
        driver_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB,
        jvm_bytes=taken.jvm_bytes,
        workers_bytes=taken.workers_bytes,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()

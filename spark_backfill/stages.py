"""The progress of Spark on a group of its jobs, from its own status, and lines about it while it works."""

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark import InheritableThread, SparkContext

EVERY_S: Final = 5.0

Line = Callable[[], str]


class Stage(NamedTuple):
    """The finished tasks of a stage, and all its tasks."""

    done: int
    tasks: int

    def __str__(self) -> str:
        return f"{self.done} of {self.tasks} parts"


def stages_of(context: SparkContext, group: str) -> list[Stage]:
    """Return the stages of the jobs of a group that have begun, or are to, in their order."""
    tracker = context.statusTracker()
    found = []
    for job in sorted(tracker.getJobIdsForGroup(group)):
        known = tracker.getJobInfo(job)
        found += [tracker.getStageInfo(stage) for stage in sorted(known.stageIds)] if known else []
    return [Stage(each.numCompletedTasks, each.numTasks) for each in found if each is not None and each.numTasks]


@contextmanager
def said(context: SparkContext, work: str, make: Callable[[str], Line], say: Callable[[str], None]) -> Iterator[None]:
    """Run the work of Spark in one group of jobs, and report its progress every few seconds.

    ``make`` takes the name of the group and returns a function for the current line, which is empty without progress.
    """
    group = f"{work}-{secrets.token_hex(6)}"
    context.setJobGroup(group, work, interruptOnCancel=False)
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

"""How far Spark has come with a group of its jobs, from its own status: for lines that say so."""

from typing import NamedTuple

from pyspark import SparkContext


class Stage(NamedTuple):
    """Tasks of a stage that are done, and all of them."""

    done: int
    tasks: int

    def __str__(self) -> str:
        return f"{self.done} of {self.tasks} parts"


def stages_of(context: SparkContext, group: str) -> list[Stage]:
    """The stages of the jobs of a group that have begun, or are to, in their order."""
    tracker = context.statusTracker()
    found = []
    for job in sorted(tracker.getJobIdsForGroup(group)):
        known = tracker.getJobInfo(job)
        found += [tracker.getStageInfo(stage) for stage in sorted(known.stageIds)] if known else []
    return [Stage(each.numCompletedTasks, each.numTasks) for each in found if each is not None and each.numTasks]

"""The progress of Spark on a group of its jobs, from its own status."""

from typing import NamedTuple

from pyspark import SparkContext


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

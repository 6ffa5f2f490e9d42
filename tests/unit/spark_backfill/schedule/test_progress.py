"""The progress lines of `schedule`, before the first row is written and after it: schedule.progress."""

from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_backfill.schedule import progress
from spark_backfill.schedule.ledger import RowsDone
from spark_backfill.schedule.progress import WritingLines, surveying
from spark_backfill.stages import Stage, stages_of


class Ledger:
    """Gives one answer after the other; -1 for a coordinator that does not answer."""

    def __init__(self, *done: int) -> None:
        self._done = iter(done)

    def read(self, partitions: Iterable[int]) -> dict[int, RowsDone]:
        done = next(self._done)
        if done < 0:
            raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE))
        return {each: RowsDone(done, "") for each in partitions}


def lines(monkeypatch: pytest.MonkeyPatch, ledger: Any, *stages: list[Stage]) -> list[str]:
    answers = iter(stages)
    monkeypatch.setattr(progress, "stages_of", lambda context, group: next(answers))
    context: Any = None
    line = WritingLines(context, "group", ledger, [0], 1_000)
    return [line() for _ in stages]


def test_the_table_is_read_and_put_in_order_before_a_row_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, read = [Stage(3, 8), Stage(0, 2)], [Stage(8, 8), Stage(0, 2)]
    said = lines(monkeypatch, Ledger(0, 0, -1), reading, read, read)
    assert said == [
        "read 3 of 8 parts of the table to put the rows in order; writing begins after that",
        "writing the first rows",
        "",
    ]


def test_rows_that_are_done_with_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    first, then = lines(monkeypatch, Ledger(100, 600), [Stage(8, 8)], [Stage(8, 8)])
    assert first == "writing the first rows"
    assert then.startswith("600 of 1,000 rows done (")


def test_the_survey(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([[], [Stage(1, 4)]])
    monkeypatch.setattr(progress, "stages_of", lambda context, group: next(answers))
    context: Any = None
    line = surveying(context, "group")
    assert [line(), line()] == ["", "surveyed 1 of 4 parts of the table"]


def test_stages_of_a_group_as_spark_tells_them() -> None:
    class Tracker:
        """A status tracker of one group with two jobs, one of which is forgotten."""

        def getJobIdsForGroup(self, group: str) -> list[int]:  # noqa: N802 -- Spark's
            return {"ours": [7, 6]}[group]

        def getJobInfo(self, job: int) -> Any:  # noqa: N802 -- Spark's
            return None if job == 6 else type("Job", (), {"stageIds": [2, 1]})

        def getStageInfo(self, stage: int) -> Any:  # noqa: N802 -- Spark's
            return type("Stage", (), {"numCompletedTasks": stage, "numTasks": 4})

    context: Any = type("Context", (), {"statusTracker": lambda _: Tracker()})()
    assert stages_of(context, "ours") == [Stage(1, 4), Stage(2, 4)]

"""The moments at which a partition is looked at: at none of them is a transaction visible on one side only."""

from collections.abc import Iterable, Iterator, Mapping

import pytest

from spark_backfill.cluster import LogRange
from spark_backfill.errors import JobError
from spark_backfill.export import moment
from spark_backfill.export.moment import Moment, PartitionOffsets, moments

STILL = PartitionOffsets(10, 10, LogRange(0, 100), 100, 10, 10)


@pytest.mark.parametrize(
    "ends",
    [
        STILL._replace(state_appended=12),
        STILL._replace(state_after=12, state_appended_after=12),
        STILL._replace(state_appended_after=12),
        STILL._replace(log_appended=101),
    ],
    ids=["open before", "ended between", "open after", "open on the log"],
)
def test_a_transaction_that_is_seen_on_one_side_is_waited_for(ends: PartitionOffsets) -> None:
    said: list[str] = []
    answers = [{0: ends, 1: STILL}, {0: STILL._replace(state=14, state_after=14, state_appended=14)}]
    answers += [{0: PartitionOffsets(16, 16, LogRange(0, 104), 104, 16, 16)}]
    asked: list[list[int]] = []

    def look(partitions: Iterable[int]) -> Mapping[int, PartitionOffsets]:
        asked.append(list(partitions))
        return answers[len(asked) - 1]

    assert moments(look, [0, 1], said.append) == {0: Moment(16, LogRange(0, 104)), 1: Moment(10, LogRange(0, 100))}
    assert asked == [[0, 1], [0], [0]]
    assert said == []


def test_what_others_leave_open_on_the_log_is_left_out_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moment, "time", Clock(iter([0.0, 1.0, 6.0])))
    said: list[str] = []
    found = moments(lambda _: {3: STILL._replace(log_appended=200)}, [3], said.append)
    assert found == {3: Moment(10, LogRange(0, 100))}
    assert said == ["partition 3: an open transaction hides the records from offset 100 on"]


def test_a_state_that_never_stands_still_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moment, "time", Clock(iter([0.0, 1.0, 61.0])))
    with pytest.raises(JobError, match="partition 3: for 60 s there was no moment"):
        moments(lambda _: {3: STILL._replace(state_appended=11)}, [3], print)


class Clock:
    """A steady clock with given seconds; it never sleeps."""

    def __init__(self, seconds: Iterator[float]) -> None:
        self._seconds = seconds

    def monotonic(self) -> float:
        return next(self._seconds)

    def sleep(self, _: float) -> None:
        pass

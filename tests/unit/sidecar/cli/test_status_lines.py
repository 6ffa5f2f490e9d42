"""The output of ``status``: a line for each topic, with known values only."""

import pytest
from rich.cells import cell_len

from sidecar.cli.output import print_table
from sidecar.cli.status_lines import (
    held_notes,
    is_served,
    notes,
    partition_table,
    ranges,
    relative,
    retry_notes,
    routers,
    topic_table,
)
from sidecar.operations.status.answers import (
    UNSERVED,
    AttemptGroupAnswer,
    PartitionAnswer,
    RetriesAnswer,
    StatusAnswer,
    TopicAnswer,
)

NOW_MS = 1_800_000_000_000


def partition(number: int, **facts: object) -> PartitionAnswer:
    return PartitionAnswer.model_validate(
        {"partition": number, "state": "active", "instance": "r-0", "pending": 5, "age_ms": 900, **facts}
    )


def topic(name: str, *partitions: PartitionAnswer) -> TopicAnswer:
    pending = sum(each.pending for each in partitions if each.state != UNSERVED)
    return TopicAnswer(topic=name, pending=pending, paused=False, drained=False, partitions=partitions)


def group(*topics: TopicAnswer) -> StatusAnswer:
    return StatusAnswer(topics=topics, instances=("r-0",))


NEVER = partition(1, state=UNSERVED, instance="", pending=0, age_ms=None, lag=None, why="no router has reported it")


def test_a_topic_is_one_line_without_empty_columns() -> None:
    served = topic(
        "orders.delay",
        partition(0, next_due_ms=NOW_MS + 540_000, furthest_due_ms=NOW_MS + 600_000),
        partition(1, next_due_ms=NOW_MS + 60_000, furthest_due_ms=NOW_MS + 6 * 86_400_000),
    )
    columns, rows = topic_table(group(served), NOW_MS)
    assert columns == ["topic", "pending", "next due", "last due", "state"]
    assert rows == [["orders.delay", "10", "in 60 s", "in 6 d", "active"]]
    assert is_served(group(served))
    assert notes(group(served)) == []


def test_what_is_not_known_is_never_a_number() -> None:
    answer = group(topic("orders.delay", partition(0, lag=3, held=2), NEVER))
    columns, rows = topic_table(answer, NOW_MS)
    assert rows == [["orders.delay", "?", "?", "?", "?", "2", "1 of 2 unserved"]]
    assert columns[4:] == ["lag", "held", "state"]
    assert not is_served(answer)
    _, (_, never) = partition_table(answer)
    assert never[:7] == ["orders.delay/1", "unserved", "", "?", "?", "?", "?"]


def test_the_last_report_is_told_with_its_age_once_for_all_partitions() -> None:
    last = {"state": UNSERVED, "instance": "", "age_ms": 180_000, "why": "no router has it: r-0 stopped", "lag": 4}
    answer = group(topic("orders.delay", *(partition(number, **last) for number in (0, 1, 3)), partition(2)))
    assert notes(answer) == ["orders.delay/0-1,3: no router has it: r-0 stopped 3 min ago, with 5 pending"]
    _, rows = topic_table(answer, NOW_MS)
    assert rows == [["orders.delay", "?", "?", "?", "12", "3 of 4 unserved"]]


def test_what_is_held_is_told_with_the_time_the_first_was_due() -> None:
    held = [partition(0, held=1_200, held_since_ms=NOW_MS - 60_000), partition(1, held=3, held_since_ms=NOW_MS - 1)]
    held += [partition(2), partition(3, state=UNSERVED, held=9, held_since_ms=5)]
    answer = group(topic("orders.delay", *held), topic("quiet.delay", partition(0)))
    assert held_notes(answer, NOW_MS) == ["orders.delay: 1,203 held for their target, the first due 60 s ago"]


def test_attempts_are_told_by_the_minute_where_that_is_known() -> None:
    numbers = [("1", 1_200, 30), ("2", 40, None), ("4-7", 3, 0)]
    groups = [AttemptGroupAnswer(attempt=label, released=all_, per_minute=minute) for label, all_, minute in numbers]
    told = RetriesAnswer(
        attempts=8,
        dead_letter="orders.dlq",
        since_ms=NOW_MS,
        by_attempt=(groups[0], groups[2]),
        exhausted=1_500,
        exhausted_per_minute=2,
        last_exhausted=(),
        uncounted=(),
    )
    unsure = told.model_copy(
        update={"by_attempt": tuple(groups), "exhausted_per_minute": None, "uncounted": (0, 1, 2, 5)}
    )
    topics = [
        topic(name, partition(0)).model_copy(update={"retries": each})
        for name, each in (
            ("a", told),
            ("b", unsure),
            ("c", told.model_copy(update={"since_ms": None})),
            ("d", None),
        )
    ]
    since, without = "since 2027-01-15 08:00:00.000Z", "; without partitions 0-2,5"
    assert retry_notes(group(*topics)) == [
        f"a: released in the last minute by attempt: 30 in 1, 0 in 4-7; exhausted: 2, and 1,500 {since}, to orders.dlq",
        f"b: released {since} by attempt: 1,200 in 1, 40 in 2, 3 in 4-7; exhausted: 1,500, to orders.dlq{without}",
        "c: no router reports its attempts",
    ]


def test_routers_are_told_with_what_they_run_where_they_tell() -> None:
    answer = StatusAnswer(topics=(), instances=("a", "b", "old"), kernels={"a": "native", "b": "python"})
    assert routers(answer) == "routers: a (native), b (python), old"
    assert routers(StatusAnswer(topics=(), instances=())) == "routers: none has reported lately"


@pytest.mark.parametrize(
    ("state", "others", "shown"),
    [
        ("paused", "paused", "paused"),
        ("restoring", "active", "1 of 2 restoring"),
        (UNSERVED, UNSERVED, "unserved"),
    ],
)
def test_the_state_of_a_topic_tells_what_is_wrong_first(state: str, others: str, shown: str) -> None:
    answer = group(topic("t", partition(0, state=others), partition(1, state=state)))
    assert topic_table(answer, NOW_MS)[1][0][-1] == shown
    assert topic_table(group(topic("t")), NOW_MS)[1][0][-1] == "no such topic"


def test_it_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    last = {"next_due_ms": NOW_MS + 59 * 60_000, "furthest_due_ms": NOW_MS + 99 * 86_400_000, "lag": 456}
    one = topic("payments.reminders.delay", *(partition(each, pending=10**6, held=3, **last) for each in range(9)))
    print_table(*topic_table(group(one, topic("orders.delay", NEVER)), NOW_MS), folding=("topic",))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3
    assert max(map(cell_len, lines)) <= 80
    assert "9,000,000" in lines[1]


def test_moments_are_told_from_now() -> None:
    moments = [None, 0, 1_999, 2_000, 119_000, 120_000, 7_200_000, -2_000, 172_800_000]
    shown = [relative(None if each is None else NOW_MS + each, NOW_MS) for each in moments]
    assert shown == ["-", "now", "now", "in 2 s", "in 119 s", "in 2 min", "in 2 h", "2 s ago", "in 2 d"]


def test_numbers_of_partitions_are_told_as_ranges() -> None:
    assert [ranges(each) for each in ([], [4], [0, 1, 2, 3, 7], [0, 2, 4, 5])] == ["", "4", "0-3,7", "0,2,4-5"]

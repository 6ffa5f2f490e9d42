"""Lines of ``status`` about a group: one for each topic, on a narrow terminal, or with ``--wide`` each partition."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from sidecar.cli.output import shown_time
from sidecar.durations import rough_duration
from sidecar.operations.status.answers import UNSERVED, PartitionAnswer, RetriesAnswer, StatusAnswer, TopicAnswer

UNKNOWN: Final = "?"
NOTHING: Final = "-"
NO_LAG: Final = "0"

NOW_MS: Final = 2_000
"""Distance below which a time is shown as now."""

Table = tuple[Sequence[str], list[Sequence[str]]]
"""A table as the names of its columns and its rows."""


def topic_table(answer: StatusAnswer, now_ms: int) -> Table:
    """Return a row for each topic; leave columns out that are empty for all."""
    columns = ("topic", "pending", "next due", "last due", "lag", "held", "state")
    return _without_empty(columns, [_topic_row(topic, now_ms) for topic in answer.topics], keep=4)


def partition_table(answer: StatusAnswer) -> Table:
    """Return a row for each partition, with absolute times."""
    columns = ("partition", "state", "router", "pending", "next due", "last due", "lag", "held", "buckets")
    rows = [_partition_row(topic.topic, each) for topic in answer.topics for each in topic.partitions]
    return _without_empty((*columns, "topic needed since"), rows, keep=6)


def notes(answer: StatusAnswer) -> list[str]:
    """Return a sentence for each note of partitions; partitions of a topic with the same note share one."""
    all_of_them = [(topic.topic, _note(each), each.partition) for topic in answer.topics for each in topic.partitions]
    # Sort first: partitions with the same note need not be neighbours.
    said = sorted(each for each in all_of_them if each[1])
    return [
        f"{topic}/{ranges(partition for _, _, partition in same)}: {text}"
        for (topic, text), same in groupby(said, lambda each: each[:2])
    ]


def held_notes(answer: StatusAnswer, now_ms: int) -> list[str]:
    """Return a sentence for each topic whose records wait for their target: no consumer notices that they are late."""
    lines = []
    for topic in answer.topics:
        served = [each for each in topic.partitions if each.state != UNSERVED]
        since_ms = min((each.held_since_ms for each in served if each.held_since_ms is not None), default=None)
        if since_ms is not None:
            held = sum(each.held for each in served)
            lines.append(f"{topic.topic}: {held:,} held for their target, the first due {relative(since_ms, now_ms)}")
    return lines


def retry_notes(answer: StatusAnswer) -> list[str]:
    """Return a sentence for each topic that counts attempts: of the last minute where that is known, else of all."""
    return [f"{topic.topic}: {_retries(topic.retries)}" for topic in answer.topics if topic.retries is not None]


def _retries(told: RetriesAnswer) -> str:
    if told.since_ms is None:
        return "no router reports its attempts"
    since, minute = f"since {shown_time(told.since_ms)}", told.exhausted_per_minute
    numbers = [(each.attempt, each.released if minute is None else each.per_minute) for each in told.by_attempt]
    released = ", ".join(f"{number:,} in {label}" for label, number in numbers)
    exhausted = f"{told.exhausted:,}" if minute is None else f"{minute:,}, and {told.exhausted:,} {since}"
    without = f"; without partitions {ranges(told.uncounted)}" if told.uncounted else ""
    period = since if minute is None else "in the last minute"
    return f"released {period} by attempt: {released}; exhausted: {exhausted}, to {told.dead_letter}{without}"


def routers(answer: StatusAnswer) -> str:
    """Return a line with the routers that have reported lately, and the kernel of each where it is known."""
    told = (f"{name} ({answer.kernels[name]})" if name in answer.kernels else name for name in answer.instances)
    return f"routers: {', '.join(told) or 'none has reported lately'}"


def is_served(answer: StatusAnswer) -> bool:
    """Say whether each partition is served by some router."""
    return all(each.state != UNSERVED for topic in answer.topics for each in topic.partitions)


def relative(time_ms: int | None, now_ms: int) -> str:
    """Return a time relative to now: ``in 9 min``, ``3 s ago``; a dash for None."""
    if time_ms is None:
        return NOTHING
    away_ms = abs(time_ms - now_ms)
    if away_ms < NOW_MS:
        return "now"
    away = rough_duration(away_ms)
    return f"in {away}" if time_ms > now_ms else f"{away} ago"


def ranges(numbers: Iterable[int]) -> str:
    """Return ``0-3,7`` for 0, 1, 2, 3 and 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def _note(each: PartitionAnswer) -> str:
    if each.state != UNSERVED or each.age_ms is None:
        return each.why
    return f"{each.why} {relative(0, each.age_ms)}, with {each.pending:,} pending"


def _topic_row(topic: TopicAnswer, now_ms: int) -> Sequence[str]:
    partitions = topic.partitions
    served = [each for each in partitions if each.state != UNSERVED]
    next_ms = min((each.next_due_ms for each in served if each.next_due_ms is not None), default=None)
    last_ms = max((each.furthest_due_ms for each in served if each.furthest_due_ms is not None), default=None)
    lags = [each.lag for each in partitions]
    due = [relative(next_ms, now_ms), relative(last_ms, now_ms)]
    # An unserved partition may hold a record that is due before all others, so no total is certain.
    is_whole = len(served) == len(partitions) and bool(partitions)
    return (
        topic.topic,
        f"{topic.pending:,}" if is_whole else UNKNOWN,
        *(due if is_whole else (UNKNOWN, UNKNOWN)),
        UNKNOWN if None in lags else f"{sum(lag or 0 for lag in lags):,}",
        _or_nothing(sum(each.held for each in served)),
        _topic_state(topic),
    )


def _topic_state(topic: TopicAnswer) -> str:
    """Return the most important deviation, or the one state of all partitions."""
    states = [each.state for each in topic.partitions]
    if not states:
        return "no such topic"
    if unserved := states.count(UNSERVED):
        return UNSERVED if unserved == len(states) else f"{unserved} of {len(states)} unserved"
    if len(set(states)) == 1:
        return states[0]
    return next(f"{states.count(state)} of {len(states)} {state}" for state in states if state != "active")


def _partition_row(topic: str, each: PartitionAnswer) -> Sequence[str]:
    is_known = each.state != UNSERVED or each.age_ms is not None
    numbers = (f"{each.pending:,}", shown_time(each.next_due_ms), shown_time(each.furthest_due_ms))
    return (
        f"{topic}/{each.partition}",
        each.state,
        each.instance,
        *(numbers if is_known else (UNKNOWN,) * len(numbers)),
        UNKNOWN if each.lag is None else f"{each.lag:,}",
        _or_nothing(each.held),
        _or_nothing(each.buckets),
        shown_time(each.needed_since_ms),
    )


def _or_nothing(number: int) -> str:
    return f"{number:,}" if number else NOTHING


def _without_empty(columns: Sequence[str], rows: list[Sequence[str]], keep: int) -> Table:
    """Return the table without empty columns; the first ``keep`` columns always stay."""
    kept = [
        place
        for place in range(len(columns))
        if place < keep or any(row[place] not in {NOTHING, NO_LAG, ""} for row in rows)
    ]
    return [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]

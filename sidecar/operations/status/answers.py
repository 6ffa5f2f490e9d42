"""Shapes of the answers to the questions of an operator, for the admin API and for the command line.

Every number covers the whole group. A partition that no router has reported lately stands in the answer with the state
``unserved``, so that a sum never hides that its numbers are missing. The answers hold no settings, and no values or
header values of records. Keys appear only in lists of schedules, and the admin API removes them for a token that may
not see them.
"""

from enum import StrEnum
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field

UNSERVED: Final = "unserved"
"""State of a partition that no router reports."""


class Answer(BaseModel):
    """A shape of the API: no other keys, and never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PartitionAnswer(Answer):
    """One partition of a delay topic as its router last reported it.

    Of an unserved one the numbers are those of the last report there was, ``age_ms`` ago, and null where there was
    none; only the lag is that of now.
    """

    partition: int
    state: str = Field(description="active, paused, drained, restoring, ... or unserved: no router reports it")
    why: str = ""
    instance: str = Field("", description="Router that serves it")
    age_ms: int | None = Field(None, description="Age of the report")
    pending: int = 0
    lag: int | None = Field(0, description="Offsets of the delay topic not yet indexed; null: not known")
    cursor: int = Field(0, description="C: every offset below it is indexed")
    watermark_due_ms: int | None = Field(None, description="W: every record due before it has been released")
    watermark_offset: int | None = None
    next_due_ms: int | None = None
    furthest_due_ms: int | None = None
    buckets: int = 0
    held: int = Field(0, description="Records held beyond their due time, until their target is free or a pause ends")
    held_since_ms: int | None = Field(None, description="Due time of the first of them")
    snapshot_bytes: int = 0
    needed_from: int | None = Field(None, description="First offset the delay topic must keep")
    needed_since_ms: int | None = None
    retention_ms: int | None = Field(None, description="Time for which the delay topic keeps a record; -1: for ever")


class AttemptGroupAnswer(Answer):
    """Attempts of one number, or of a few numbers together."""

    attempt: str = Field(description="Number of the attempt: 1, 2, 3, 4-7 or 8+")
    wait_from_ms: int | None = Field(None, description="Shortest wait; null: only records with a limit of their own")
    wait_to_ms: int | None = Field(None, description="Longest wait")
    released: int = Field(0, description="Records released in it since `since_ms`")
    per_minute: int | None = Field(None, description="The same in the last whole minute; null: not known yet")


class ExhaustedAnswer(Answer):
    """The place of a record without an attempt left, and the time when it went to the dead-letter topic."""

    partition: int
    offset: int
    at_ms: int


class RetriesAnswer(Answer):
    """Attempts of a delay topic that counts them, by the reports of its routers."""

    attempts: int = Field(description="Attempts of a record that names no limit of its own")
    dead_letter: str
    since_ms: int | None = Field(
        description="Time of the first take-over of a partition; each one counts from its own take-over on"
    )
    by_attempt: tuple[AttemptGroupAnswer, ...]
    exhausted: int = Field(description="Records released to the dead-letter topic since `since_ms`")
    exhausted_per_minute: int | None = Field(description="The same in the last whole minute; null: not known yet")
    last_exhausted: tuple[ExhaustedAnswer, ...] = Field(description="The newest of them first, ten at most")
    uncounted: tuple[int, ...] = Field(description="Partitions whose counts are not known, and not in the numbers")


class TopicAnswer(Answer):
    """One delay topic."""

    topic: str
    pending: int = Field(description="Pending records, without those of unserved partitions")
    paused: bool
    drained: bool
    lateness_p50_ms: float | None = Field(
        None, description="Time from due time to release, in the last five to ten minutes; null: nothing was released"
    )
    lateness_p99_ms: float | None = None
    retries: RetriesAnswer | None = Field(None, description="null: its attempts are not counted")
    partitions: tuple[PartitionAnswer, ...]


class StatusAnswer(Answer):
    """All delay topics of the group, or those asked for."""

    topics: tuple[TopicAnswer, ...]
    instances: tuple[str, ...] = Field(description="Routers that have reported lately")
    kernels: dict[str, str] = Field(
        default_factory=dict,
        description="Kernel of each router, native or python; without routers that are too old to tell",
    )


class DueRange(Answer):
    """How many records are due within ``within_s`` seconds from now and not in an earlier range."""

    within_s: float | None = Field(description="0: overdue; null: all later records")
    records: int


class PendingAnswer(Answer):
    """Numbers of pending records of one delay topic."""

    topic: str
    records: int
    by_due: tuple[DueRange, ...]
    next_hour: tuple[int, ...] = Field((), description="Records due in each minute of the next hour, from now on")
    next_week: tuple[int, ...] = Field((), description="Records due in each hour of the next week, from now on")
    by_target: dict[str, int] = Field(
        description="Records by target topic, the largest first; a record may have several"
    )
    other_targets: int = Field(0, description="Records of targets beyond the largest, or not known by target")
    unserved: tuple[int, ...] = Field((), description="Partitions that no router reports, which are not counted")


class Fate(StrEnum):
    """Fate of a record of a delay topic."""

    PENDING = "pending"
    RELEASED = "released"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    REPLACED = "replaced"
    MOVED = "moved"
    ANSWERED = "answered"
    UNKNOWN = "unknown"


class AttemptAnswer(Answer):
    """The attempt of one record, where its delay topic counts attempts."""

    number: int = Field(description="Number of this attempt, from 1; of an exhausted record that of its last one")
    most: int | None = Field(description="Attempts of this record; null: its rules are no longer kept")
    exhausted: bool = Field(description="No attempt was left: it goes to the dead-letter topic")
    next_waits_ms: tuple[int, ...] = Field(
        (), description="Longest waits of the attempts that follow if this one fails, the first eight of them"
    )
    dead_letter: str = Field("", description="Topic of a record without an attempt left; empty where not known")


class LookupAnswer(Answer):
    """One record of a delay topic."""

    topic: str
    partition: int
    offset: int
    fate: Fate
    why: str = Field("", description="Reason why it was rejected or is not delivered, or why its fate is not known")
    sent_ms: int | None = Field(None, description="Time of the record in the delay topic, where it is still there")
    indexed: bool | None = Field(None, description="True: its router has decided it; null: not known")
    id: str | None = Field(None, description="deliver-id of a record that is or was scheduled")
    due_ms: int | None = None
    targets: tuple[str, ...] = ()
    code: str = Field("", description="delay-error of a rejected record")
    attempt: AttemptAnswer | None = Field(
        None, description="Attempt of a pending or released record, where attempts are counted"
    )
    released_ms: int | None = Field(
        None, description="Timestamp of its copy in the target: the time of release, unless `timestamp` says otherwise"
    )
    released_to: str = Field(
        "", description="topic/partition/offset of that copy, in the first target; empty where it was not found"
    )


class IdTrace(Answer):
    """A record that names an id: a pending schedule, a receipt, a rejected record, or a copy in a target."""

    fate: Fate
    place: str = Field(description="topic/partition/offset of the record")
    at_ms: int = Field(description="Due time of a pending schedule; of other records their timestamp")
    why: str = Field(
        "", description="The record of the delay topic, the outcome of a control, or the code of a rejection"
    )
    source: str = Field(
        "", description="topic/partition/offset in the delay topic, for a look-up: the schedule or control"
    )


class IdAnswer(Answer):
    """Everything that was found of an id; ``unread`` says where the search was not complete."""

    topic: str
    id: str
    traces: tuple[IdTrace, ...]
    unread: tuple[str, ...] = ()


class RecurrenceAnswer(Answer):
    """The rule of a recurring schedule, and when it is due next."""

    every_ms: int | None = Field(description="Period; null: by cron")
    cron: str = Field("", description="Five fields: minute, hour, day of month, month, day of week")
    zone: str = Field("", description="Time zone of cron")
    until_ms: int | None = Field(None, description="No occurrence is due after it; null: no end")
    number: int = Field(description="Number of this occurrence, from 1")
    times: int | None = Field(None, description="Number of all occurrences; null: no end")
    next_ms: tuple[int, ...] = Field(
        (), description="Due times of this occurrence and the next ones, as many as `upcoming` asks for"
    )


class ScheduleAnswer(Answer):
    """One pending schedule; nothing of its value and headers but the id."""

    partition: int
    offset: int
    due_ms: int = Field(description="Due time; of a record that names no time its timestamp")
    targets: tuple[str, ...]
    id: str | None = Field(None, description="deliver-id of the schedule")
    key: str | None = Field(None, description="Key of its record; null too where the token may not see it")
    series: str | None = Field(None, description="topic/partition/offset of the first record of its recurring schedule")
    recurrence: RecurrenceAnswer | None = Field(None, description="null: it does not recur")
    attempt: int | None = Field(None, description="Number of its attempt, where its delay topic counts attempts")
    spread_ms: int = Field(0, description="Part of due_ms that a spread has added; if_due_ms is due_ms without it")

    def without_key(self) -> Self:
        """Return a copy without the key, for a token that may not see the content of records."""
        return self.model_copy(update={"key": None})


class SchedulesAnswer(Answer):
    """A page of pending schedules, by when they are due."""

    topic: str
    schedules: tuple[ScheduleAnswer, ...]
    next_from: str | None = Field(
        None, description="Beginning of the next page; null: there is none. A page may be short, or empty, before that"
    )


class MatchingAnswer(Answer):
    """The number of pending schedules that match a query, as far as they were counted."""

    topic: str
    matching: int
    first: tuple[ScheduleAnswer, ...] = Field((), description="The first of them that are due, five at most")
    next_from: str | None = Field(
        None, description="Place from which the next call counts those that are left; null: all are counted"
    )


class AttemptsAnswer(Answer):
    """The number of pending records that wait for each attempt, as far as they were counted."""

    topic: str
    records: int = Field(description="Records that were counted, also those whose attempts are not")
    by_attempt: dict[str, int] = Field(description="By the number of the attempt: 1, 2, 3, 4-7 or 8+; left out: 0")
    exhausted: int = Field(description="Those without an attempt left, which are for the dead-letter topic")
    is_whole: bool = Field(description="False: more records are pending, which were not counted")

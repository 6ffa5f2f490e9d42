"""The progress of a job, kept in a group's offsets, which a transaction can move together with the records.

For each delay partition the group ``<group_id>.schedule.<job>`` has an offset, the number of rows that are done in the
job's fixed order. Its metadata is ``<fingerprint of all rows>|<fingerprint of the rows done>``, and 0.1.0 wrote the
first one alone. No consumer ever joins the group.

The second fingerprint is needed because rows are committed before all of them are known to be those of the survey. If
the table changes for that time only, the first fingerprint is right and the rows done are others.

Rejected: reading the delay topic for the ids of the job. It lacks records that retention or trimming has removed, and a
task that is repeated after the answer to its commit was lost would have to read it too. The brokers forget the offsets
of a group without members after ``offsets.retention.minutes`` (a week by default), and the job with them.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_backfill.errors import JobError
from spark_backfill.schedule.survey import rows_in

REQUEST_TIMEOUT_S: Final = 30.0
_AGAIN_S: Final = 0.2
_COORDINATOR_MOVES: Final = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class RowsDone(NamedTuple):
    """The number of rows done in a delay partition, the fingerprint of all its rows, and that of the rows done.

    The last one is empty where 0.1.0 wrote the rows.
    """

    done: int
    fingerprint: str
    prefix: str = ""


NOT_BEGUN: Final = RowsDone(0, "")


class Ledger:
    """The progress of one job in one delay topic; a context that ends the consumer."""

    def __init__(self, kafka: Mapping[str, Any], group: str, topic: str, *, settled: bool) -> None:
        """Open the ledger; if ``settled``, wait for open transactions, and fail rather than answer without them."""
        isolation = "read_committed" if settled else "read_uncommitted"
        self._consumer = Consumer(
            {**kafka, "group.id": group, "isolation.level": isolation, "enable.auto.commit": False}
        )
        self._topic = topic

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    @property
    def group(self) -> Any:
        """The group's metadata for a transaction."""
        return self._consumer.consumer_group_metadata()

    def read(self, partitions: Iterable[int]) -> dict[int, RowsDone]:
        """Return the progress of these partitions; NOT_BEGUN where the job has none."""
        asked = [TopicPartition(self._topic, partition) for partition in partitions]
        found = {}
        for each in self._committed(asked) if asked else ():
            if each.error is not None:
                raise KafkaException(each.error)
            fingerprint, _, prefix = (each.metadata or "").partition("|")
            found[each.partition] = NOT_BEGUN if each.offset < 0 else RowsDone(each.offset, fingerprint, prefix)
        return found

    def _committed(self, asked: list[TopicPartition]) -> list[TopicPartition]:
        """Ask until the coordinator answers: one that has just started or moved is still loading."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            try:
                return self._consumer.committed(asked, REQUEST_TIMEOUT_S)
            except KafkaException as exception:
                if exception.args[0].code() not in _COORDINATOR_MOVES or time.monotonic() > deadline:
                    raise
            time.sleep(_AGAIN_S)

    def entry(self, partition: int, progress: RowsDone) -> TopicPartition:
        """Return the progress as offsets, which a transaction commits."""
        return TopicPartition(self._topic, partition, progress.done, f"{progress.fingerprint}|{progress.prefix}")


def group_name(group_id: str, job: str) -> str:
    """Return the group that keeps the progress of a job."""
    return f"{group_id}.schedule.{job}"


def transactional_id(group_id: str, job: str, topic: str, partition: int) -> str:
    """Name the writer of a delay partition; it is the same in every run, so the next writer fences the last."""
    return f"{group_name(group_id, job)}.{topic}.{partition}"


def check_same_rows(job: str, topic: str, wanted: Mapping[int, str], found: Mapping[int, RowsDone]) -> None:
    """Refuse rows other than the ones that the job began with; JobError names a partition and the remedy."""
    for partition, progress in sorted(found.items()):
        if not progress.fingerprint:
            continue
        if progress.fingerprint != wanted.get(partition, ""):
            raise JobError(
                f"job {job} has done {progress.done:,} rows of delay partition {partition}, and they are of another"
                " table than this one (or the number of partitions has changed). A job goes with one table: put new"
                " rows into a table of their own, under another --job"
            )
        rows = rows_in(progress.fingerprint)
        if progress.done > rows or (progress.done == rows and progress.prefix not in ("", progress.fingerprint)):
            raise other_reading(job, topic, partition, progress.done)


def other_reading(job: str, topic: str, partition: int, done: int) -> JobError:
    """Return the error for a partition whose rows done are not the first rows of the table that the job began with."""
    return JobError(
        f"job {job} has done {done:,} rows of delay partition {partition}, and they are not the first ones of this"
        " table: it had other rows while an earlier run read it. Cancel the records of the job by delay-router cancel"
        f""" {topic} --where '{{"id_prefix": "{job}/"}}', and schedule the rows that were not released under another"""
        " --job"
    )


def table_changed(job: str, partition: int, rows: int) -> JobError:
    """Return the error for a partition that has other rows at the second reading than at the survey."""
    return JobError(
        f"the table has changed while it was read: rows of delay partition {partition} are not those that were surveyed"
        f" ({rows:,} now); job {job} stays unfinished. Run it again with the table as it was, and let nothing change it"
    )

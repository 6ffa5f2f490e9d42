"""Writes the rows of a delay partition in their fixed order, exactly once, in a task.

Rows come sorted by digest, which is the same order in every run, because equal rows are interchangeable. Each
transaction holds up to ``batch`` rows *and* how many rows of the partition are done
(:mod:`spark_backfill.schedule.ledger`). A task first calls ``init_transactions``: this fences any other writer of the
partition, in any run, and settles its open transaction. Then the task reads how many rows are done. It goes on behind
them if its own first rows are the same ones. So a task that is repeated, runs twice or was left over by a killed run
writes no row again and leaves none out.

Each transaction has a producer of its own. librdkafka repeats a request by itself when it has lost the connection, and
the first copy may still be on its way. A copy of EndTxn that arrived within the next transaction of the same epoch
would commit half of it. The next producer has the next epoch, so brokers refuse the copy. To
get that epoch takes 0.15 to 0.2 s (measured with librdkafka 2.16.1).
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from index.protocol.headers import Headers
from spark_backfill.errors import JobError
from spark_backfill.schedule.ledger import (
    Ledger,
    RowsDone,
    check_same_rows,
    group_name,
    other_reading,
    table_changed,
    transactional_id,
)
from spark_backfill.schedule.row import deliver_id
from spark_backfill.schedule.survey import Fingerprint

INIT_TIMEOUT_S: Final = 90.0
"""Another writer's transaction may have to time out first: 60 s by default."""

COMMIT_TIMEOUT_S: Final = 60.0
_COMMIT_ATTEMPTS: Final = 5
_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})


class Sorted(NamedTuple):
    """A row in its place: an invalid row is counted, but has nothing to be written."""

    partition: int
    digest: bytes
    write: bool
    key: bytes | None
    value: bytes | None
    headers: Headers


class WrittenRows(NamedTuple):
    """The numbers of a delay partition: rows written now, rows passed over, rows that were done before."""

    partition: int
    written: int
    left_out: int
    before: int


class WriteTarget(NamedTuple):
    """The topic and job that rows are written for; ``fingerprints`` cover all rows by partition."""

    kafka: dict[str, Any]
    group_id: str
    job: str
    topic: str
    fingerprints: dict[int, str]
    batch: int
    max_bytes: int


def write(target: WriteTarget, rows: Iterable[Sorted]) -> Iterator[WrittenRows]:
    """Write rows sorted by (partition, digest); raise JobError when another run takes over or the rows are others."""
    for partition, group in groupby(rows, attrgetter("partition")):
        yield _write_partition(target, partition, group)


def _write_partition(target: WriteTarget, partition: int, rows: Iterable[Sorted]) -> WrittenRows:
    if partition not in target.fingerprints:
        raise table_changed(target.job, partition, sum(1 for _ in rows))
    with Ledger(target.kafka, group_name(target.group_id, target.job), target.topic, settled=True) as ledger:
        writing = _PartitionWriting(target, partition, ledger)
        try:
            return writing.run(rows)
        except KafkaException as exception:
            error = _cause(writing.producer, exception.args[0])
            if error.code() in _FENCED:
                raise writing.taken_over() from None
            raise JobError(f"{target.topic}/{partition}: {error.str()}; run the job again: it goes on here") from None


def _cause(producer: Producer, error: KafkaError) -> KafkaError:
    """Return the error that ended the producer: ``produce`` only says that there was one, ``abort`` names it."""
    if error.code() == KafkaError._FATAL:
        try:
            producer.abort_transaction(COMMIT_TIMEOUT_S)
        except KafkaException as exception:
            cause: KafkaError = exception.args[0]
            return cause
    return error


def producer_settings(target: WriteTarget, partition: int) -> dict[str, Any]:
    """Return the settings of the producer of a delay partition."""
    return {
        **target.kafka,
        "transactional.id": transactional_id(target.group_id, target.job, target.topic, partition),
        "message.max.bytes": max(target.max_bytes, 1_000_000) + 100_000,
        "linger.ms": 5,
    }


class _PartitionWriting:
    """The rows of one partition on their way; ``producer`` is the one of the present transaction."""

    def __init__(self, target: WriteTarget, partition: int, ledger: Ledger) -> None:
        self._target = target
        self._partition = partition
        self._ledger = ledger
        self._failures: list[KafkaError] = []
        self.producer = Producer(producer_settings(target, partition))
        self._is_used = False

    def taken_over(self) -> JobError:
        """Return the error for a partition that another run writes."""
        return JobError(f"another run of job {self._target.job} has taken over delay partition {self._partition}")

    def run(self, rows: Iterable[Sorted]) -> WrittenRows:
        """Write the rows that are not done yet."""
        progress = self._take_over()
        job, topic, fingerprints = self._target.job, self._target.topic, self._target.fingerprints
        check_same_rows(job, topic, fingerprints, {self._partition: progress})
        before, done, written, open_rows = progress.done, 0, 0, 0
        previous, occurrence = b"", 0
        seen = Fingerprint()
        for row in rows:
            if done == before and progress.prefix not in ("", seen.text()):
                raise other_reading(job, topic, self._partition, before)
            seen.add(row.digest)
            occurrence = occurrence + 1 if row.digest == previous else 0
            previous = row.digest
            if done >= before:
                if not open_rows:
                    self._begin(done)
                open_rows += 1
                if row.write:
                    self._send(row, occurrence)
                    written += 1
            done += 1
            if open_rows >= self._target.batch:
                self._commit(seen)
                open_rows = 0
        if seen.text() != fingerprints[self._partition]:
            raise table_changed(job, self._partition, seen.rows)
        if open_rows:
            self._commit(seen)
        return WrittenRows(self._partition, written, done - before - written, before)

    def _take_over(self) -> RowsDone:
        """Shut out every other writer of the partition, and return its progress."""
        self.producer.init_transactions(INIT_TIMEOUT_S)
        return self._ledger.read([self._partition])[self._partition]

    def _begin(self, done: int) -> None:
        """Begin a transaction behind ``done`` rows, in an epoch of its own."""
        if self._is_used:
            self.producer = Producer(producer_settings(self._target, self._partition))
            if self._take_over().done != done:
                raise self.taken_over()
        self._is_used = True
        self.producer.begin_transaction()

    def _send(self, row: Sorted, occurrence: int) -> None:
        headers = [*row.headers, ("deliver-id", deliver_id(self._target.job, row.digest, occurrence))]
        while True:
            try:
                self.producer.produce(
                    self._target.topic,
                    row.value,
                    row.key,
                    self._partition,
                    on_delivery=self._note,
                    headers=list(headers),
                )
            except BufferError:
                self.producer.poll(0.1)
            else:
                self.producer.poll(0)
                return

    def _note(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failures.append(error)

    def _commit(self, seen: Fingerprint) -> None:
        """Commit the rows sent, with the progress: ``seen`` are all rows up to here."""
        progress = RowsDone(seen.rows, self._target.fingerprints[self._partition], seen.text())
        entry = self._ledger.entry(self._partition, progress)
        self.producer.send_offsets_to_transaction([entry], self._ledger.group, COMMIT_TIMEOUT_S)
        for attempt in range(_COMMIT_ATTEMPTS):
            try:
                self.producer.commit_transaction(COMMIT_TIMEOUT_S)
            except KafkaException as exception:
                # Any other error leaves the transaction to the next writer, which aborts it.
                if not exception.args[0].retriable() or attempt + 1 == _COMMIT_ATTEMPTS:
                    raise KafkaException(self._failures[0] if self._failures else exception.args[0]) from exception
            else:
                return

"""Commits the transactions of one partition to a real cluster, in a lane (:mod:`sidecar.kafka.writing.lane`).

Rejected: to write the progress only after the released records are written, so that a torn transaction doubles records
and loses none. It costs two more round trips, half as much again for a single record (24 and 38 ms on a busy machine).
A transaction that one producer alone has begun in its epoch is not torn any more
(:mod:`sidecar.kafka.client.connections`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from functools import partial
from typing import NamedTuple

from index.errors import ClusterError, ClusterTrouble
from index.named.receipts import receipt_record
from index.named.transit import InTransit
from index.protocol.record import Record
from index.protocol.schedule import Rejection
from sidecar.clock import Clock
from sidecar.engine.payload.records import transaction_bytes
from sidecar.engine.release.transaction import Outcome, Refusals, Result, Transaction
from sidecar.kafka.client.errors import cluster_errors, reason_of
from sidecar.kafka.writing import transactions
from sidecar.kafka.writing.lane import Finish, Lane
from sidecar.kafka.writing.refusals import Suspect, find_refused, send_in_small_batches
from sidecar.kafka.writing.transactions import OnDelivery
from sidecar.kafka.writing.writer import NO_OFFSET, PartitionWriter


class _Relation(Enum):
    """The relation of a written record to the offset it belongs to; several records may belong to one offset."""

    RECORD = "its released or rejected record"
    NEXT = "its next occurrence, or the record with its new due time"
    RECEIPT = "the answer to it"


class _Written(NamedTuple):
    """A record of a transaction, and how to produce it."""

    kind: _Relation
    offset: int
    route: tuple[str, ...]
    record: Record | None
    send: Callable[[OnDelivery | None], None]


class KafkaTransactions:
    """Commits the transactions of one owned partition; used by its worker only.

    ``writer`` writes with the producer of ``lane``. ``compresses`` says that batches are compressed, so that the size
    of a record does not tell the size of its batch. ``on_trouble`` is called when the partition holds up the others of
    its lane: brokers refuse its records, or a part of it cannot be written. ``on_silence`` is called when the brokers
    have not answered a transaction. ``waiting`` is entered while the worker waits for a commit or for trials.
    """

    def __init__(
        self,
        lane: Lane,
        writer: PartitionWriter,
        clock: Clock,
        *,
        compresses: bool,
        on_trouble: Callable[[], None] = lambda: None,
        on_silence: Callable[[], None] = lambda: None,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._lane = lane
        self._writer = writer
        self._clock = clock
        self._producer = writer.producer
        self._on_trouble = on_trouble
        self._on_silence = on_silence
        self._waiting = waiting
        self._compresses = compresses
        self._crowded: dict[str, int] = {}
        self._tells_which = False

    def commit(self, transaction: Transaction) -> Result:
        """Write and commit the transaction; on return it is aborted if the outcome is REFUSED or ABORTED."""
        try:
            with self._waiting():
                result = self._lane.commit(partial(self._write, transaction), partial(_size_bytes, transaction))
        except Exception:
            self._on_trouble()
            raise
        if isinstance(result.error, ClusterError) and result.error.kind is ClusterTrouble.UNANSWERED:
            self._on_silence()
        return result

    def _write(self, transaction: Transaction) -> Finish:
        placed: dict[int, int] = {}
        if self._crowded:
            suspects = _suspects([*self._written(transaction, placed)])
            send_in_small_batches(self._producer, suspects, self._crowded)
        else:
            self._writer.write_records(transaction, placed)
        notes = self._notes(transaction, placed)
        return partial(_committed, transaction, self._writer.write_requests(transaction, notes), notes)

    def find_refused(self, transaction: Transaction, within_s: float) -> Refusals:
        """Find the refused records by trials in transactions that are aborted.

        Raise ClusterError if the trials end without a verdict about a record.
        """
        self._on_trouble()
        written = [*self._written(transaction, placed={})]
        with self._waiting(), cluster_errors(), self._lane.alone() as producer:
            findings = find_refused(
                producer,
                _suspects(written),
                by_size=not self._compresses,
                tells_which=self._tells_which,
                within_s=within_s,
                now_s=self._clock.running_s,
            )
        self._tells_which |= findings.tells_which
        for topic, most in findings.crowded.items():
            self._crowded[topic] = min(most, self._crowded.get(topic, most))
        refused: dict[_Relation, dict[int, Rejection]] = {kind: {} for kind in _Relation}
        for name, error in findings.refused.items():
            refused[written[name].kind][written[name].offset] = Rejection(reason_of(error), error.str())
        unfollowed = {offset: self._about_next(each) for offset, each in refused[_Relation.NEXT].items()}
        doubtful = [each.name for each in findings.undecided if not findings.doubted.isdisjoint(each.route)]
        undecided = {written[name].offset for name in doubtful if written[name].kind is _Relation.RECORD}
        return Refusals(
            refused[_Relation.RECORD],
            frozenset(findings.doubted),
            frozenset(undecided),
            unfollowed,
            frozenset(refused[_Relation.RECEIPT]),
        )

    def _notes(self, transaction: Transaction, placed: dict[int, int]) -> list[InTransit]:
        """Return the places of the appended records; a transaction with such records costs a round trip."""
        if not transaction.appended:
            return []
        # A record that is not delivered within the time of a transaction has failed when the flush returns.
        self._producer.flush()
        # Not by a commit: it would succeed, and the state would not know the released records.
        assert NO_OFFSET not in placed.values(), "an appended record was delivered without its offset"
        if not all(each.offset in placed for each in transaction.appended):
            # A transaction with a failed delivery does not commit; the error of the commit tells why it failed.
            transactions.commit(self._producer)
            raise AssertionError("a transaction was committed of which a record was not delivered")
        return transaction.notes(placed)

    def _written(self, transaction: Transaction, placed: dict[int, int]) -> Iterator[_Written]:
        writer, of_record = self._writer, _Relation.RECORD
        for entry in transaction.released:
            _, offset, scheduled = entry
            send = partial(writer.release, transaction, [entry])
            yield _Written(of_record, offset, scheduled.schedule.targets, scheduled.record, send)
        for offset, refused in transaction.rejected:
            send = partial(writer.reject, transaction, offset, refused)
            yield _Written(of_record, offset, (writer.rejected_topic,), refused.record, send)
        for appended in transaction.appended:
            send = partial(writer.append, appended, placed)
            yield _Written(_Relation.NEXT, appended.offset, (writer.delay_topic,), appended.record, send)
        for receipt in transaction.receipts:
            send, record = partial(writer.answer, receipt), receipt_record(receipt)
            yield _Written(_Relation.RECEIPT, receipt.offset, (writer.receipts_topic,), record, send)

    def _about_next(self, verdict: Rejection) -> Rejection:
        message = f"the record that follows it cannot be written to {self._writer.delay_topic}: {verdict.message}"
        return verdict._replace(message=message)


def _committed(transaction: Transaction, offsets: Sequence[dict[int, int]], notes: Sequence[InTransit]) -> Result:
    """Return the result of a committed transaction; ``offsets`` has the offsets of each request by segment number."""
    of_requests = zip(offsets, transaction.requests, strict=True)
    return Result(
        Outcome.COMMITTED,
        [[noted[number] for number in range(len(each.segments))] for noted, each in of_requests],
        notes=notes,
    )


def _size_bytes(transaction: Transaction) -> int:
    return transaction_bytes(transaction.released) + sum(each.size_bytes for each in transaction.requests)


def _suspects(written: Sequence[_Written]) -> list[Suspect]:
    """Return the written records as suspects, each named by its place in ``written``."""
    return [Suspect(place, each.route, each.record, each.send) for place, each in enumerate(written)]

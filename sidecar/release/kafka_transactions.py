"""Transactions on a real cluster: what a transaction says is written with a producer, and its errors are classified.

Rejected: waiting until the released records are written before the progress is, so that a transaction that is torn
doubles records and loses none. It costs two more round trips, half as much again for a record alone (24 and 38 ms on a
busy machine), and nothing tears a transaction any more that a producer of its own epoch alone has begun
(:mod:`sidecar.kafka.connections`).
"""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import KafkaException

from index.pending import Entry
from index.receipts import Receipt, receipt_record
from index.record import Record
from index.schedule import Rejection
from index.transit import InTransit
from sidecar.clock import Clock
from sidecar.kafka import transactions
from sidecar.kafka.connections import ConnectionLostError
from sidecar.kafka.errors import Verdict, classify, cluster_error, cluster_errors, error_of, reason_of
from sidecar.kafka.transactions import OnDelivery
from sidecar.payload.records import Appended, Refused, Scheduled
from sidecar.release.refusals import Suspect, find_refused, send_in_small_batches
from sidecar.release.transaction import Outcome, Refusals, Result, Transaction
from sidecar.release.writer import PartitionWriter

_OUTCOMES: Final = {
    Verdict.REFUSED: Outcome.REFUSED,
    Verdict.AGAIN: Outcome.ABORTED,
    Verdict.FENCED: Outcome.FENCED,
}
"""After any other error the outcome is unknown, or the producer cannot be used any more, which comes to the same."""


class _Kind(Enum):
    """What a record of a transaction is to the offset it is about: several may be about the same one."""

    RECORD = "what is released or rejected of it"
    NEXT = "the occurrence that follows it"
    RECEIPT = "the answer to it"


class _Written(NamedTuple):
    """A record of a transaction, and how to produce it."""

    kind: _Kind
    offset: int
    route: tuple[str, ...]
    record: Record | None
    send: Callable[[OnDelivery | None], None]


class KafkaTransactions:
    """Of one owned partition, whose ``writer`` has its fenced producer; used by its worker only.

    ``compresses``: what is written is compressed, so that the size of a record does not tell that of its batch.
    """

    def __init__(self, writer: PartitionWriter, clock: Clock, *, compresses: bool) -> None:
        self._writer = writer
        self._clock = clock
        self._producer = writer.producer
        self._compresses = compresses
        self._crowded: dict[str, int] = {}
        self._appended: Sequence[Appended] = ()
        self._receipts: Sequence[Receipt] = ()
        self._tells_which = False

    def commit(self, transaction: Transaction) -> Result:
        """Write and commit it; what is refused, or can be written again as it is, has been aborted on return."""
        try:
            self._producer.begin_transaction()
            self._writer.timestamps = transaction.timestamps
            self._writer.occurrences = transaction.occurrences
            self._appended, self._receipts = transaction.appended, transaction.receipts
            self._writer.placed.clear()
            if self._crowded:
                written = [*self._written(transaction.released, transaction.rejected)]
                send_in_small_batches(self._producer, _suspects(written), self._crowded)
            else:
                self._writer.write_records(transaction)
            notes = self._notes(transaction)
            offsets = self._writer.write_requests(transaction, notes)
            transactions.commit(self._producer)
        except ConnectionLostError as error:
            return Result(Outcome.UNKNOWN, error=error, why=str(error))
        except KafkaException as exception:
            return self._after(exception)
        of_requests = zip(offsets, transaction.requests, strict=True)
        return Result(
            Outcome.COMMITTED,
            [[noted[number] for number in range(len(each.segments))] for noted, each in of_requests],
            notes=notes,
        )

    def find_refused(
        self, released: Sequence[Entry[Scheduled]], rejected: Sequence[tuple[int, Refused]], within_s: float
    ) -> Refusals:
        """By trial, in transactions that are aborted; ClusterError when trials end in anything but a verdict."""
        written = [*self._written(released, rejected)]
        with cluster_errors():
            findings = find_refused(
                self._producer,
                _suspects(written),
                by_size=not self._compresses,
                tells_which=self._tells_which,
                within_s=within_s,
                now_s=self._clock.running_s,
            )
        self._tells_which |= findings.tells_which
        for topic, most in findings.crowded.items():
            self._crowded[topic] = min(most, self._crowded.get(topic, most))
        refused: dict[_Kind, dict[int, Rejection]] = {kind: {} for kind in _Kind}
        for name, error in findings.refused.items():
            refused[written[name].kind][written[name].offset] = Rejection(reason_of(error), error.str())
        unfollowed = {offset: self._about_next(each) for offset, each in refused[_Kind.NEXT].items()}
        doubtful = [each.name for each in findings.undecided if not findings.doubted.isdisjoint(each.route)]
        undecided = {written[name].offset for name in doubtful if written[name].kind is _Kind.RECORD}
        return Refusals(
            refused[_Kind.RECORD],
            frozenset(findings.doubted),
            frozenset(undecided),
            unfollowed,
            frozenset(refused[_Kind.RECEIPT]),
        )

    def _notes(self, transaction: Transaction) -> list[InTransit]:
        """Where what it appends lies that has an id: one more round trip, for such transactions alone."""
        if not transaction.noted:
            return []
        # What is not delivered within the time of a transaction has failed by then.
        self._producer.flush()
        placed = self._writer.placed
        if not all(each.offset in placed for each in transaction.noted):
            # Nothing is committed of which a delivery has failed; the error tells why it did.
            transactions.commit(self._producer)
            raise AssertionError("a transaction was committed of which a record was not delivered")
        return transaction.notes(placed)

    def _after(self, exception: KafkaException) -> Result:
        error = error_of(exception)
        outcome = _OUTCOMES.get(classify(error), Outcome.UNKNOWN)
        if outcome in (Outcome.REFUSED, Outcome.ABORTED):
            try:
                self._producer.abort_transaction()
            except KafkaException as another:
                error, outcome = error_of(another), Outcome.UNKNOWN
        return Result(outcome, error=cluster_error(error), why=error.str())

    def _written(
        self, released: Sequence[Entry[Scheduled]], rejected: Sequence[tuple[int, Refused]]
    ) -> Iterator[_Written]:
        writer, of_record = self._writer, _Kind.RECORD
        for entry in released:
            _, offset, scheduled = entry
            send = partial(writer.release, [entry])
            yield _Written(of_record, offset, scheduled.schedule.targets, scheduled.record, send)
        for offset, refused in rejected:
            send = partial(writer.reject, offset, refused)
            yield _Written(of_record, offset, (writer.rejected_topic,), refused.record, send)
        for appended in self._appended:
            send = partial(writer.append, appended)
            yield _Written(_Kind.NEXT, appended.offset, (writer.delay_topic,), appended.record, send)
        for receipt in self._receipts:
            send, record = partial(writer.answer, receipt), receipt_record(receipt)
            yield _Written(_Kind.RECEIPT, receipt.offset, (writer.receipts_topic,), record, send)

    def _about_next(self, verdict: Rejection) -> Rejection:
        message = f"what follows it cannot be written to {self._writer.delay_topic}: {verdict.message}"
        return verdict._replace(message=message)


def _suspects(written: Sequence[_Written]) -> list[Suspect]:
    """Each under its place among what is written."""
    return [Suspect(place, each.route, each.record, each.send) for place, each in enumerate(written)]

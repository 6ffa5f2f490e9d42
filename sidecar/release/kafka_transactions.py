"""Transactions on a real cluster: what a transaction says is written with a producer, and its errors are classified.

Rejected: waiting until the released records are written before the progress is, so that a transaction that is torn
doubles records and loses none. It costs two more round trips, half as much again for a record alone (24 and 38 ms on a
busy machine), and nothing tears a transaction any more that a producer of its own epoch alone has begun
(:mod:`sidecar.kafka.connections`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaException

from index.pending import Entry
from index.schedule import Rejection
from sidecar.clock import Clock
from sidecar.kafka import transactions
from sidecar.kafka.connections import ConnectionLostError
from sidecar.kafka.errors import Verdict, classify, error_of, reason_of
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
        self._tells_which = False

    def commit(self, transaction: Transaction) -> Result:
        """Write and commit it; what is refused, or can be written again as it is, has been aborted on return."""
        try:
            self._producer.begin_transaction()
            self._writer.timestamps = transaction.timestamps
            self._writer.occurrences = transaction.occurrences
            self._appended = transaction.appended
            if self._crowded:
                suspects = self._suspects(transaction.released, transaction.rejected)
                send_in_small_batches(self._producer, suspects, self._crowded)
            else:
                self._writer.write_records(transaction)
            offsets = self._writer.write_requests(transaction)
            transactions.commit(self._producer)
        except ConnectionLostError as error:
            return Result(Outcome.UNKNOWN, error=error, why=str(error))
        except KafkaException as exception:
            return self._after(exception)
        of_requests = zip(offsets, transaction.requests, strict=True)
        return Result(
            Outcome.COMMITTED, [[noted[number] for number in range(len(each.segments))] for noted, each in of_requests]
        )

    def find_refused(
        self, released: Sequence[Entry[Scheduled]], rejected: Sequence[tuple[int, Refused]], within_s: float
    ) -> Refusals:
        """By trial, in transactions that are aborted; KafkaException when trials end in anything but a verdict."""
        findings = find_refused(
            self._producer,
            self._suspects(released, rejected),
            by_size=not self._compresses,
            tells_which=self._tells_which,
            within_s=within_s,
            now_s=self._clock.running_s,
        )
        self._tells_which |= findings.tells_which
        for topic, most in findings.crowded.items():
            self._crowded[topic] = min(most, self._crowded.get(topic, most))
        verdicts = {name: Rejection(reason_of(error), error.str()) for name, error in findings.refused.items()}
        refused = {name: verdict for name, verdict in verdicts.items() if name >= 0}
        unfollowed = {-1 - name: _about(self._writer.delay_topic, each) for name, each in verdicts.items() if name < 0}
        undecided = {each.name for each in findings.undecided if not findings.doubted.isdisjoint(each.route)}
        return Refusals(refused, frozenset(findings.doubted), frozenset(undecided), unfollowed)

    def _after(self, exception: KafkaException) -> Result:
        error = error_of(exception)
        outcome = _OUTCOMES.get(classify(error), Outcome.UNKNOWN)
        if outcome in (Outcome.REFUSED, Outcome.ABORTED):
            try:
                self._producer.abort_transaction()
            except KafkaException as another:
                return Result(Outcome.UNKNOWN, error=another, why=error_of(another).str())
        return Result(outcome, error=exception, why=error.str())

    def _suspects(self, released: Sequence[Entry[Scheduled]], rejected: Sequence[tuple[int, Refused]]) -> list[Suspect]:
        writer = self._writer
        leaving = [
            Suspect(offset, scheduled.schedule.targets, scheduled.record, partial(writer.release, [entry]))
            for entry in released
            for _, offset, scheduled in [entry]
        ]
        refused = [
            Suspect(offset, (writer.rejected_topic,), each.record, partial(writer.reject, offset, each))
            for offset, each in rejected
        ]
        return leaving + refused + self._suspects_appended()

    def _suspects_appended(self) -> list[Suspect]:
        """What is appended, under names that no offset is: -1 - offset."""
        route = (self._writer.delay_topic,)
        return [
            Suspect(-1 - each.offset, route, each.record, partial(self._writer.append, each)) for each in self._appended
        ]


def _about(delay_topic: str, verdict: Rejection) -> Rejection:
    return verdict._replace(message=f"its next occurrence cannot be written to {delay_topic}: {verdict.message}")

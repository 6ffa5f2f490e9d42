"""Finds the records that a broker refuses, so that they can be diverted and never hold up the others.

librdkafka fails a whole produce batch when the broker refuses one record in it, and the transaction can then only be
aborted. What cannot be told from the error is found by trying, in transactions that are always aborted, so nothing of
a trial ever becomes visible. A trial sends its suspects in groups and waits for the answers after each: the group that
fails is then sent record by record, and what was accepted before it is cleared. Measured: 2.5 ms a group.

Three things the broker's answer may mean beside "this record":

* *Another record of the batch.* ``_INVALID_DIFFERENT_RECORD`` says so; ``MSG_SIZE_TOO_LARGE`` does not.
* *Nothing about a record.* After a refused batch the sequence numbers that it used are missing, and the next batch for
  that partition is refused as out of order. Aborting that transaction bumps the producer's epoch, and then it is heard
  again: such a trial is repeated.
* *The batch as such.* A topic may take every record and yet not the batch librdkafka makes of them (Java's producer
  splits such a batch, librdkafka does not): that topic is *crowded*, and gets fewer records between two flushes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from index.headers import MAX_ID_BYTES
from index.record import Record
from sidecar.kafka_errors import Verdict, classify, is_too_large
from sidecar.transaction import OnDelivery

GROUP_RECORDS: Final = 64
MOST_UNCLEAR: Final = 5
"""Trials in a row that end without a verdict; one is usual after every refusal."""

FLUSH_STEP_S: Final = 0.1
FLUSH_STEPS: Final = 300


class Suspect(NamedTuple):
    """A record that may be the one, the topics it goes to, and how to produce it."""

    name: int
    route: tuple[str, ...]
    record: Record | None
    send: Callable[[OnDelivery | None], None]

    def size(self) -> tuple[int, int]:
        """Least and most bytes in a produce batch, up to what is equal for all: a header costs 2 to 10 beside itself,
        and those that are added differ by a delivery id.
        """
        assert self.record is not None, f"offset {self.name} was not re-read"
        key, value, headers, _ = self.record
        bare = len(key or b"") + len(value or b"") + sum(len(name) + len(of or b"") for name, of in headers)
        return bare + 2 * len(headers), bare + 10 * len(headers) + MAX_ID_BYTES + 100


@dataclass(slots=True)
class Findings:
    """Names of the suspects that the broker refuses, with its error, and topics that need smaller batches."""

    refused: dict[int, KafkaError] = field(default_factory=dict)
    crowded: dict[str, int] = field(default_factory=dict)


class _Failure(NamedTuple):
    suspect: Suspect
    error: KafkaError
    topic: str


def find_refused(producer: Producer, suspects: Sequence[Suspect], *, by_size: bool) -> Findings:
    """Try the suspects; O(suspects / GROUP_RECORDS + refused x GROUP_RECORDS) round trips.

    ``by_size``: a record refused for its size speaks for all larger ones on the same route (not so when batches are
    compressed). KafkaException when trials end in anything but a verdict about a record: then nothing may be concluded.
    """
    findings = Findings()
    left = list(suspects)
    steps = [len(left), GROUP_RECORDS, 1]
    level, unclear = 0, 0
    while left:
        window = left if level < len(steps) - 1 else left[:GROUP_RECORDS]
        passed, failures = _try(producer, window, steps[level])
        left = left[passed:]
        if not failures:
            level, unclear = 1, 0
        elif culprits := _culprits(failures):
            findings.refused |= culprits
            if by_size:
                findings.refused |= _larger_ones(left, culprits)
            left = [suspect for suspect in left if suspect.name not in findings.refused]
            level, unclear = 1, 0
        elif any(_is_verdict(failure.error) for failure in failures) and level < len(steps) - 1:
            level, unclear = level + 1, 0
            for failure in failures:
                if is_too_large(failure.error) and failure.topic:
                    findings.crowded[failure.topic] = steps[level]
        elif (unclear := unclear + 1) > MOST_UNCLEAR:
            raise KafkaException(failures[0].error)
    # A batch that held a culprit says nothing about the others.
    blamed = {topic for suspect in suspects if suspect.name in findings.refused for topic in suspect.route}
    findings.crowded = {topic: step for topic, step in findings.crowded.items() if topic not in blamed}
    return findings


def _try(producer: Producer, suspects: Sequence[Suspect], step: int) -> tuple[int, list[_Failure]]:
    """Send groups of ``step`` in one transaction and abort it: how many suspects passed, and how the next group failed.

    KafkaException when the trial got no answer.
    """
    failures: list[_Failure] = []

    def note(suspect: Suspect, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(_Failure(suspect, error, message.topic() or ""))

    passed, unanswered = 0, 0
    producer.begin_transaction()
    try:
        for start in range(0, len(suspects), step):
            for suspect in suspects[start : start + step]:
                try:
                    suspect.send(partial(note, suspect))
                except KafkaException as exception:
                    # Refused by the client itself, or because the transaction is spoilt already.
                    failures.append(_Failure(suspect, exception.args[0], ""))
            unanswered = _flush_until(producer, failures)
            if failures or unanswered:
                break
            passed = start + step
    finally:
        # Also fails what was still queued, so that everybody behind the culprit stays a suspect.
        producer.abort_transaction()
    if unanswered and not failures:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{unanswered} records of a trial got no answer"))
    return passed, failures


def _flush_until(producer: Producer, failures: list[_Failure]) -> int:
    """Wait until every suspect has its answer or one has failed: a spoilt transaction sends no more."""
    unanswered = 1
    for _ in range(FLUSH_STEPS):
        unanswered = producer.flush(FLUSH_STEP_S)
        if not unanswered or failures:
            break
    return unanswered


def _culprits(failures: list[_Failure]) -> dict[int, KafkaError]:
    """Those of a failed group about whom there is no doubt."""
    verdicts = [failure for failure in failures if _is_verdict(failure.error)]
    others_are_cleared = any(failure.error.code() == KafkaError._INVALID_DIFFERENT_RECORD for failure in failures)
    if others_are_cleared or len({failure.suspect.name for failure in failures}) == 1:
        return {failure.suspect.name: failure.error for failure in verdicts}
    return {}


def _is_verdict(error: KafkaError) -> bool:
    """Whether the broker speaks about a record; ``_STATE`` only tells that the transaction was spoilt before."""
    return classify(error) is Verdict.REFUSED and error.code() != KafkaError._STATE


def _larger_ones(suspects: Sequence[Suspect], culprits: dict[int, KafkaError]) -> dict[int, KafkaError]:
    bounds: dict[tuple[str, ...], tuple[int, KafkaError]] = {}
    for suspect in suspects:
        error = culprits.get(suspect.name)
        if error is not None and is_too_large(error):
            _, most_bytes = suspect.size()
            known = bounds.get(suspect.route)
            if known is None or most_bytes < known[0]:
                bounds[suspect.route] = (most_bytes, error)
    return {
        suspect.name: bound[1]
        for suspect in suspects
        if (bound := bounds.get(suspect.route)) is not None and suspect.size()[0] >= bound[0]
    }


def send_in_small_batches(producer: Producer, records: Sequence[Suspect], crowded: Mapping[str, int]) -> None:
    """Produce all, with no more than so many records for a crowded topic between two flushes."""
    room = dict(crowded)
    for record in records:
        if any(room.get(topic) == 0 for topic in record.route):
            _flush(producer)
            room = dict(crowded)
        for topic in record.route:
            if topic in room:
                room[topic] -= 1
        record.send(None)


def _flush(producer: Producer) -> None:
    for _ in range(FLUSH_STEPS):
        if not producer.flush(FLUSH_STEP_S):
            return
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "a small batch got no answer"))

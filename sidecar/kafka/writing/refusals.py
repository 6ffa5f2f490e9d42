"""Finds the records that a broker refuses, so that they can be diverted and never hold up other records.

librdkafka fails a whole produce batch if the broker refuses one record in it, and then the transaction can only be
aborted. If the error does not name the record, trials find it. Every trial is a transaction that is aborted, so no
record of a trial ever becomes visible. If a group of records fails, the records outside the failed batches are tried
first, and then the records of the failed batches in halves. A trial takes some 10 ms, and half a second if the next one
needs a new epoch.

Meanings that an answer of the broker may have beside "this record":

* *Another record of the batch.* ``_INVALID_DIFFERENT_RECORD`` says so; ``MSG_SIZE_TOO_LARGE`` does not. A broker that
  has said so once tells which records it refuses, and one trial finds all of them.
* *Nothing about a record.* The sequence numbers of a refused batch are missing, so the broker refuses the next batch
  for that partition as out of order. The abort of that transaction bumps the epoch of the producer, and then the broker
  takes its records again: such a trial is repeated.
* *The batch as such.* A topic may take every record and yet refuse the batch that librdkafka makes of them (the
  producer of Java splits such a batch, librdkafka does not). Such a topic is *crowded*, and gets fewer records between
  two flushes.

A search is bounded in time, since other records wait for its end. The caller gets the records that are undecided then.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from index.protocol.readers import MAX_ID_BYTES
from index.protocol.record import Record
from sidecar.kafka.client.errors import is_about_record, is_innocent, is_of_this_record, is_too_large
from sidecar.kafka.writing.transactions import OnDelivery

MOST_UNCLEAR: Final = 5
"""Trials in a row that end without a verdict; one is usual after every refusal."""

FLUSH_STEP_S: Final = 0.1
FLUSH_STEPS: Final = 300


class Suspect(NamedTuple):
    """A record that the broker may refuse: its name, the topics it goes to, and a call that produces it."""

    name: int
    route: tuple[str, ...]
    record: Record | None
    send: Callable[[OnDelivery | None], None]

    def size(self) -> tuple[int, int]:
        """Return the least and the most bytes of the record in a produce batch, without bytes that all records have.

        A header costs 2 to 10 bytes beside its name and value. The headers that the router adds differ by a delivery
        id.
        """
        assert self.record is not None, f"offset {self.name} was not re-read"
        key, value, headers, _ = self.record
        bare = len(key or b"") + len(value or b"") + sum(len(name) + len(of or b"") for name, of in headers)
        return bare + 2 * len(headers), bare + 10 * len(headers) + MAX_ID_BYTES + 100


@dataclass(slots=True)
class Findings:
    """The findings of a search.

    * ``refused``: names of the suspects that the broker refuses, with its error.
    * ``crowded``: topics that need smaller batches, with the most records of such a batch.
    * ``doubted``: topics that have refused a batch with an undecided record.
    * ``undecided``: suspects that the search had no time for.
    * ``tells_which``: whether the brokers have shown that they tell which records of a batch they refuse.
    """

    refused: dict[int, KafkaError] = field(default_factory=dict)
    crowded: dict[str, int] = field(default_factory=dict)
    doubted: set[str] = field(default_factory=set)
    undecided: list[Suspect] = field(default_factory=list)
    tells_which: bool = False


class _Failure(NamedTuple):
    suspect: Suspect
    error: KafkaError
    topic: str


def find_refused(
    producer: Producer,
    suspects: Sequence[Suspect],
    *,
    by_size: bool,
    tells_which: bool = False,
    within_s: float = math.inf,
    now_s: Callable[[], float],
) -> Findings:
    """Try the suspects, and return the findings.

    The search takes O(refused x log(suspects)) trials, or one for each topic if the brokers tell which records they
    refuse. ``by_size`` says that a record that is refused for its size speaks for all larger records on the same route;
    it does not if batches are compressed.

    Raise KafkaException if the trials end without a verdict about a record: then nothing may be concluded.
    """
    findings = Findings(tells_which=tells_which)
    until_s = now_s() + within_s
    # The last group is tried next.
    groups, unclear = [list(suspects)], 0
    while groups and now_s() <= until_s:
        group = groups.pop()
        failures = _try(producer, group) if group else []
        findings.tells_which |= any(is_innocent(failure.error) for failure in failures)
        if culprits := _culprits(failures, tells_which=findings.tells_which):
            groups.append(group)
            findings.refused |= culprits
            if by_size:
                findings.refused |= _larger_ones([each for several in groups for each in several], culprits)
            groups = [[each for each in several if each.name not in findings.refused] for several in groups]
            unclear = 0
        elif accused := {failure.suspect.name for failure in failures if is_about_record(failure.error)}:
            groups += _parts(group, accused, failures, findings)
            unclear = 0
        elif failures:
            groups.append(group)
            unclear += 1
            if unclear > MOST_UNCLEAR:
                raise KafkaException(failures[0].error)
        else:
            unclear = 0
    findings.undecided = [each for several in groups for each in several]
    _forget_blamed(suspects, findings)
    return findings


def _parts(
    group: list[Suspect], accused: set[int], failures: list[_Failure], findings: Findings
) -> list[list[Suspect]]:
    """Return the groups to try instead of a group, the last one first.

    The first to try are the suspects whose batches have not failed. Then follow the two halves of the remainder.
    """
    suspected = [each for each in group if each.name in accused]
    half = -(-len(suspected) // 2)
    for failure in failures:
        if failure.topic and is_about_record(failure.error):
            findings.doubted.add(failure.topic)
            if is_too_large(failure.error):
                findings.crowded[failure.topic] = min(half, findings.crowded.get(failure.topic, half))
    return [suspected[half:], suspected[:half], [each for each in group if each.name not in accused]]


def _forget_blamed(suspects: Sequence[Suspect], findings: Findings) -> None:
    """Drop findings about topics: ``crowded`` where a refused record explains it, ``doubted`` where all is decided."""
    blamed = {topic for suspect in suspects if suspect.name in findings.refused for topic in suspect.route}
    findings.crowded = {topic: most for topic, most in findings.crowded.items() if topic not in blamed}
    findings.doubted &= {topic for suspect in findings.undecided for topic in suspect.route}


def _try(producer: Producer, suspects: Sequence[Suspect]) -> list[_Failure]:
    """Send the suspects in one transaction, abort it, and return the failures.

    Raise KafkaException if the trial got no answer.
    """
    failures: list[_Failure] = []

    def note(suspect: Suspect, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(_Failure(suspect, error, message.topic() or ""))

    unanswered = 0
    producer.begin_transaction()
    try:
        for suspect in suspects:
            try:
                suspect.send(partial(note, suspect))
            except KafkaException as exception:
                # The client itself refuses the record, or the transaction is spoilt already.
                failures.append(_Failure(suspect, exception.args[0], ""))
        unanswered = _flush_until(producer, failures)
    finally:
        # The abort also fails the records in the queue, so that all records behind the culprit stay suspects.
        producer.abort_transaction()
    if unanswered and not failures:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{unanswered} records of a trial got no answer"))
    return failures


def _flush_until(producer: Producer, failures: list[_Failure]) -> int:
    """Wait until every suspect has its answer or one has failed, and return the number of unanswered records.

    A spoilt transaction sends no more records.
    """
    unanswered = 1
    for _ in range(FLUSH_STEPS):
        unanswered = producer.flush(FLUSH_STEP_S)
        if not unanswered or failures:
            break
    return unanswered


def _culprits(failures: list[_Failure], *, tells_which: bool) -> dict[int, KafkaError]:
    """Return the suspects that the broker refuses without doubt, each with its error."""
    verdicts = [failure for failure in failures if is_about_record(failure.error)]
    if len({failure.suspect.name for failure in failures}) > 1:
        verdicts = [failure for failure in verdicts if tells_which and is_of_this_record(failure.error)]
    return {failure.suspect.name: failure.error for failure in verdicts}


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
    """Produce all records; between two flushes a topic in ``crowded`` gets at most its number of records."""
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

"""Finds the records that a broker refuses, so that they can be diverted and never hold up the others.

librdkafka fails a whole produce batch when the broker refuses one record in it, and the transaction can then only be
aborted. What cannot be told from the error is found by trying: suspects are produced in transactions that are always
aborted, and those that fail again are halved until each stands alone. Nothing of a trial ever becomes visible.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sidecar.kafka_errors import Verdict, classify, error_of
from sidecar.transaction import OnDelivery

TRIAL_STEP_S = 0.1
TRIAL_STEPS = 300


class Suspect(NamedTuple):
    """A record that may be the one, and how to produce it."""

    name: int
    send: Callable[[OnDelivery], None]


def find_refused(producer: Producer, suspects: Sequence[Suspect]) -> dict[int, KafkaError]:
    """Names of the suspects that the broker refuses, with its error; O(refused x log suspects) trials.

    KafkaException when a trial ends in anything but a verdict about a record: then nothing may be concluded.
    """
    failed = _try(producer, suspects)
    if len(suspects) == 1 or not failed:
        return failed
    flagged = [suspect for suspect in suspects if suspect.name in failed]
    middle = max(1, len(flagged) // 2)
    refused: dict[int, KafkaError] = {}
    for half in (flagged[:middle], flagged[middle:]):
        if half:
            refused |= find_refused(producer, half)
    return refused


def _try(producer: Producer, suspects: Sequence[Suspect]) -> dict[int, KafkaError]:
    failed: dict[int, KafkaError] = {}

    def note(name: int, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed[name] = error

    producer.begin_transaction()
    try:
        for suspect in suspects:
            try:
                suspect.send(partial(note, suspect.name))
            except KafkaException as exception:
                # Refused by the client itself, or because an earlier suspect has already spoilt the transaction.
                failed[suspect.name] = error_of(exception)
        unsent = _flush_until(producer, failed)
    finally:
        # Also fails what was still queued, so that everybody behind the culprit stays a suspect.
        producer.abort_transaction()
    if unsent and not failed:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{unsent} records of a trial got no answer"))
    if len(suspects) == 1 and failed and classify(failed[suspects[0].name]) is not Verdict.REFUSED:
        raise KafkaException(failed[suspects[0].name])
    return failed


def _flush_until(producer: Producer, failed: dict[int, KafkaError]) -> int:
    """Wait until every suspect has its answer or one has failed: a spoilt transaction sends no more."""
    unsent = 1
    for _ in range(TRIAL_STEPS):
        unsent = producer.flush(TRIAL_STEP_S)
        if not unsent or failed:
            break
    return unsent

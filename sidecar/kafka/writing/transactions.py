"""Steps that every transactional producer of the router shares: fence the old owner, produce, commit, abort."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from index.errors import RefusedError
from sidecar.kafka.client.admin import REQUEST_TIMEOUT_S
from sidecar.kafka.client.errors import Verdict, classify, error_of

OnDelivery = Callable[[KafkaError | None, Message], None]

_QUEUE_WAIT_S: Final = 0.05

FENCE_WITHIN_S: Final = 60.0
"""Time without an answer after which the caller begins with a new client, and so with the bootstrap servers: this
client may know only addresses that no longer exist (see ``clients.producer``)."""


def fence(producer: Producer, stopping: Callable[[], bool], remedy: str) -> None:
    """Become the only writer of a partition.

    Raise KafkaException when the cluster refuses or is silent, or when stopping, and RefusedError, with the remedy,
    when the brokers will never accept transactions like ours.
    """
    given_up_s = time.monotonic() + FENCE_WITHIN_S
    while True:
        try:
            producer.init_transactions(REQUEST_TIMEOUT_S)
        except KafkaException as exception:
            verdict = classify(error_of(exception))
            if verdict is Verdict.MISCONFIGURED:
                raise RefusedError(f"{error_of(exception).str()}; {remedy}") from exception
            # Another call resumes the one that timed out; the timeout is short only to look at `stopping`.
            if verdict is not Verdict.RETRY or stopping() or time.monotonic() > given_up_s:
                raise
        else:
            return


def produce(
    producer: Producer,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    partition: int,
    headers: Sequence[tuple[str, bytes | None]],
    timestamp_ms: int,
    on_delivery: OnDelivery | None,
) -> None:
    """Produce a record; wait while the queue of the client is full, as a transaction may be larger than the queue."""
    # The stubs want a list that may also hold str values; lists are invariant, so a list of bytes does not fit.
    given: Any = list(headers)
    while True:
        try:
            # The fifth is `callback`: if it is given, even as None, the client ignores `on_delivery` behind it.
            producer.produce(topic, value, key, partition, on_delivery, None, timestamp_ms, given)
        except BufferError:
            producer.poll(_QUEUE_WAIT_S)
        else:
            return


def commit(producer: Producer) -> None:
    """Commit the open transaction; a commit that timed out is called again, which resumes it."""
    _resumed(producer.commit_transaction)


def abort(producer: Producer) -> None:
    """Abort the open transaction; an abort that timed out is called again, which resumes it."""
    _resumed(producer.abort_transaction)


def _resumed(call: Callable[[], None]) -> None:
    while True:
        try:
            call()
        except KafkaException as exception:
            if classify(error_of(exception)) is not Verdict.RETRY:
                raise
        else:
            return

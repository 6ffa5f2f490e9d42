"""Steps that every transactional producer of the router shares: fence the old owner, produce, commit, abort."""

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from index.errors import RefusedError
from index.protocol.record import Record
from sidecar.config.model import Config
from sidecar.engine.ports import Place
from sidecar.kafka.client.admin import REQUEST_TIMEOUT_S
from sidecar.kafka.client.commands import ANY_ROUTER, acl_command, principal_of
from sidecar.kafka.client.errors import Verdict, classify, error_of

OnDelivery = Callable[[KafkaError | None, Message], None]

_QUEUE_WAIT_S: Final = 0.05

FENCE_WITHIN_S: Final = 60.0
"""Time without an answer after which the caller begins with a new client, and so with the bootstrap servers: this
client may know only addresses that no longer exist (see ``clients.producer``)."""

_FLUSH_WITHIN_S: Final = 60.0
_FLUSH_STEP_S: Final = 0.1
"""Below 0.2 s, because longer calls go on calling back after an error (:mod:`sidecar.kafka.client.connections`)."""


def fence(producer: Producer, stopping: Callable[[], bool], remedy: str, *, within_s: float = FENCE_WITHIN_S) -> None:
    """Become the only writer of a partition.

    Raise KafkaException when the cluster refuses or is silent, or when stopping, and RefusedError, with the remedy,
    when the brokers will never accept transactions like ours.
    """
    given_up_s = time.monotonic() + within_s
    while True:
        try:
            producer.init_transactions(min(REQUEST_TIMEOUT_S, within_s))
        except KafkaException as exception:
            verdict = classify(error_of(exception))
            if verdict is Verdict.MISCONFIGURED:
                raise RefusedError(f"{error_of(exception).str()}; {remedy}") from exception
            # Another call resumes the one that timed out; the timeout is short only to look at `stopping`.
            if verdict is not Verdict.RETRY or stopping() or time.monotonic() > given_up_s:
                raise
        else:
            return


@contextmanager
def naming_right(config: Config, place: Place, transactional_id: str, group: str) -> Iterator[None]:
    """Raise RefusedError with the missing right if the brokers do not let the block fence a transactional id.

    ``group`` is the group of routers that the id belongs to, and ``place`` the delay partition that they serve.
    """
    try:
        yield
    except KafkaException as exception:
        if error_of(exception).code() != KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise
        principal = principal_of(config.kafka)
        who = "this user" if principal == ANY_ROUTER else principal
        lacks = f"{who} may not Write transactional id {transactional_id}"
        # The command that `check --acls` prints for the configuration of that group.
        resource = f"--transactional-id {shlex.quote(f'{group}.')} --resource-pattern-type prefixed"
        grant = f"to grant it: {acl_command(config.bootstrap, ['Write'], resource, principal)}"
        own = config.router.group_id
        if group == own:
            raise RefusedError(f"{lacks}; {grant}") from exception
        raise RefusedError(
            f"routers of group {group} have served {place[0]}/{place[1]}, and group {own} may not fence them: {lacks}."
            " If one of them still runs, records would be delivered twice. Take the name of the topic out of the"
            f" configuration of one group. If it is to be group {own} that serves it, stop group {group}; {grant}"
        ) from exception


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


def write_all(producer: Producer, records: Sequence[tuple[Place, Record]]) -> list[int]:
    """Produce the records within the open transaction, and return their offsets."""
    offsets: dict[int, int] = {}

    def told(number: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            offsets[number] = message.offset() or 0

    for number, ((topic, partition), (key, value, headers, timestamp_ms)) in enumerate(records):
        produce(producer, topic, value, key, partition, headers, max(timestamp_ms, 0), partial(told, number))
    until_s = time.monotonic() + _FLUSH_WITHIN_S
    while producer.flush(_FLUSH_STEP_S) and time.monotonic() < until_s:
        pass
    if len(offsets) < len(records):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the brokers did not take all records"))
    return [offsets[number] for number in range(len(records))]


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

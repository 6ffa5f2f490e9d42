"""Runs the questions and changes of the paths in bounded calls, and turns errors into refusals."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, TypeVar

import structlog
from confluent_kafka import KafkaException

from index.errors import ClusterError, ClusterTrouble, ConfigError, DelayRouterError
from sidecar.config.model import Config
from sidecar.http import problems
from sidecar.http.api.calls import (
    CANCELLING_THREADS,
    CHANGING_THREADS,
    PRODUCING_THREADS,
    READING_THREADS,
    TIMEOUT_S,
    Calls,
)
from sidecar.http.problems import Refusal
from sidecar.kafka.client.errors import cluster_error, error_of
from sidecar.kafka.writing.record_writer import OutcomeUnknownError
from sidecar.operations.controls.ordering import UnknownPartitionError
from sidecar.operations.controls.receipts import ChangedError, NoReceiptError, NothingPendingError
from sidecar.operations.desk import IrreconcilableError, Operations
from sidecar.operations.rejected.log import OutOfTimeError
from sidecar.operations.rejected.redriving import AnotherRunError
from sidecar.process.broker_pulse import AlwaysAnswering, Pulse

T = TypeVar("T")

ALWAYS_ANSWERING: Final = AlwaysAnswering()
LOOK_EVERY_S: Final = 0.25
"""Interval at which a waiting question checks whether the brokers still answer."""

_STATUS: Final[Mapping[type[DelayRouterError], HTTPStatus]] = {
    NothingPendingError: HTTPStatus.NOT_FOUND,
    UnknownPartitionError: HTTPStatus.NOT_FOUND,
    ChangedError: HTTPStatus.CONFLICT,
    AnotherRunError: HTTPStatus.CONFLICT,
    NoReceiptError: HTTPStatus.GATEWAY_TIMEOUT,
    OutOfTimeError: HTTPStatus.GATEWAY_TIMEOUT,
    OutcomeUnknownError: HTTPStatus.GATEWAY_TIMEOUT,
    IrreconcilableError: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""The status of each error, and of its kinds, whose text is for the caller.

Any other ConfigError is 404 for a question and 422 for a change. Any other error is 503, and only the log has its text.
"""


class Backend:
    """The operations of one process behind bounded calls; the coroutines are for the event loop."""

    def __init__(
        self, config: Config, operations: Operations, pulse: Pulse = ALWAYS_ANSWERING, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.config = config
        self.operations = operations
        self.pulse = pulse
        self._reading = Calls("admin-read", READING_THREADS, timeout_s)
        self._changing = Calls("admin-change", CHANGING_THREADS, timeout_s)
        # Redrives run one after the other, since a later one would fence an earlier one; no pause waits behind them.
        self._redriving = Calls("admin-redrive", 1, timeout_s)
        self._producing = Calls("admin-produce", PRODUCING_THREADS, timeout_s)
        # Each call waits for a receipt, for seconds where its partition is not served: no other call waits behind it.
        self._cancelling = Calls("admin-cancel", CANCELLING_THREADS, timeout_s)
        self._all_calls = (self._reading, self._changing, self._redriving, self._producing, self._cancelling)

    async def ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return the answer to a question; refuse with 404 where nothing is found, with 503 once brokers are silent."""
        self._refuse_silence()
        answer = asyncio.ensure_future(_refusing(self._reading, HTTPStatus.NOT_FOUND, function, *arguments))
        try:
            while not (await asyncio.wait({answer}, timeout=LOOK_EVERY_S))[0]:
                self._refuse_silence()
            return await answer
        finally:
            answer.cancel()

    async def change(self, function: Callable[..., T], *arguments: Any) -> T:
        """Change a policy; refuse an impossible change with 422 and the remedy."""
        return await self._carry_out(self._changing, function, *arguments)

    async def redrive(self, function: Callable[..., T], *arguments: Any) -> T:
        """Drive rejected records again; refuse an impossible order with 422."""
        return await self._carry_out(self._redriving, function, *arguments)

    async def produce(self, function: Callable[..., T], *arguments: Any) -> T:
        """Write a record."""
        return await self._carry_out(self._producing, function, *arguments)

    async def cancel(self, function: Callable[..., T], *arguments: Any) -> T:
        """Write controls, and wait for their receipts."""
        return await self._carry_out(self._cancelling, function, *arguments)

    async def _carry_out(self, calls: Calls, function: Callable[..., T], *arguments: Any) -> T:
        """Carry out a call, but begin none while the brokers are silent; one that has begun may still take effect."""
        self._refuse_silence(", and nothing was begun")
        return await _refusing(calls, HTTPStatus.UNPROCESSABLE_ENTITY, function, *arguments)

    def silence(self) -> str:
        """Return a sentence on since when the brokers do not answer and its consequence; empty while they answer."""
        since_ms = self.pulse.silent_since_ms()
        if since_ms is None:
            return ""
        since = datetime.fromtimestamp(since_ms // 1_000, UTC)
        return (
            f"the brokers do not answer, since {since:%Y-%m-%d %H:%M:%S}Z: this router releases nothing until they do"
        )

    def _refuse_silence(self, more: str = "") -> None:
        if told := self.silence():
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, told + more)

    def require_topic(self, topic: str) -> None:
        """Raise a Refusal unless the topic is a delay topic of this router's configuration."""
        if self.config.delay_topic(topic) is None:
            raise Refusal(HTTPStatus.NOT_FOUND, f"{topic} is not a delay topic of this router")

    def stop(self) -> None:
        """Begin no further call."""
        for calls in self._all_calls:
            calls.stop()


async def _refusing(calls: Calls, wrong: HTTPStatus, function: Callable[..., T], *arguments: Any) -> T:
    try:
        return await calls.run(function, *arguments)
    except (DelayRouterError, KafkaException) as error:
        raise _refusal(error, wrong) from None


def _refusal(error: DelayRouterError | KafkaException, wrong: HTTPStatus) -> Refusal:
    """Return the refusal for an error; ``wrong`` is the status where the caller has asked for something impossible."""
    for kind, status in {**_STATUS, ConfigError: wrong}.items():
        if isinstance(error, kind):
            return Refusal(status, str(error))
    failed = next((each for each in (error, error.__cause__) if isinstance(each, KafkaException)), None)
    cluster = cluster_error(error_of(failed)) if failed is not None else error
    # The text of either error may name brokers, so only the log has it.
    if isinstance(cluster, ClusterError):
        structlog.get_logger().warning("admin_kafka_failed", error=str(cluster), code=cluster.code)
        is_unanswered = cluster.kind is ClusterTrouble.UNANSWERED
        told = "the brokers did not answer in time" if is_unanswered else "the cluster did not do it"
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{told} ({cluster.code})")
    structlog.get_logger().warning("admin_refused", why=str(error))
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"the router cannot do that now; {problems.INTERNAL}")

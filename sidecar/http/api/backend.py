"""Runs the questions and changes of the paths in bounded calls, and turns errors into refusals."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, Protocol, Self, TypeVar

import structlog

from index.errors import ClusterError, ClusterTrouble, ConfigError, DelayRouterError
from index.protocol.headers import Headers
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
from sidecar.kafka.client.errors import cluster_errors
from sidecar.kafka.writing.record_writer import WrittenRecord
from sidecar.operations.controls.ordering import ControlOrder
from sidecar.operations.controls.receipts import ReceiptAnswer
from sidecar.operations.rejected.counting import Counted
from sidecar.operations.rejected.listing import Position, RejectedPage
from sidecar.operations.rejected.redriving import Redrive, RedriveReport
from sidecar.operations.rejected.selection import RejectedSelection
from sidecar.operations.status.answers import Inquiries
from sidecar.policies.origin import ChangeOrigin
from sidecar.policies.policy import Policy, Scope
from sidecar.policies.switches import Switches
from sidecar.policies.table import PolicyTable
from sidecar.process.broker_pulse import AlwaysAnswering, Pulse

T = TypeVar("T")

LOOK_EVERY_S: Final = 0.25
"""Interval at which a waiting question checks whether the brokers still answer."""

FRESH_FOR_S: Final = 0.25
"""Age up to which the policies are reused. A look for newer ones costs a fetch; many readers share four a second."""


class Operating(Switches, Protocol):
    """The part of :class:`sidecar.policies.operations.Operations` that has a path."""

    def by(self, origin: ChangeOrigin) -> Self:
        """Return the same operations with changes written in the name of ``origin``."""

    def table(self) -> PolicyTable:
        """Return all present policies."""

    def replace(self, scope: Scope, values: Mapping[str, object]) -> Policy:
        """Make these values the whole policy of a scope."""

    def change(self, scope: Scope, values: Mapping[str, object], unset: Iterable[str] = ()) -> Policy:
        """Set some values of a policy and unset others."""

    def remove(self, scope: Scope) -> None:
        """Remove the policy of a scope."""


class RejectedRecords(Protocol):
    """The part of :class:`sidecar.operations.rejected.operations.RejectedOperations` that has a path."""

    def page(self, selection: RejectedSelection, begin: Position, most: int) -> RejectedPage:
        """Return selected records from a position of the rejected topic on."""

    def counts(self, topic: str) -> Counted:
        """Return the counts of rejected records by code."""

    def redrive(self, order: Redrive) -> RedriveReport:
        """Drive records again."""


class RecordSink(Protocol):
    """The methods of :class:`sidecar.kafka.writing.record_writer.RecordWriter`."""

    def write(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> WrittenRecord:
        """Write one record to a delay topic."""


class Controls(Protocol):
    """The methods of :class:`sidecar.operations.controls.operations.ControlOperations`."""

    def carry_out(self, topic: str, order: ControlOrder) -> ReceiptAnswer:
        """Cancel or move pending schedules, and return them once that is committed."""

    def replace(
        self, topic: str, deliver_id: str, key: bytes | None, write: Callable[[], tuple[int, int]]
    ) -> ReceiptAnswer:
        """Write a record that replaces pending schedules, and return its receipt."""


@dataclass(frozen=True, slots=True)
class Services:
    """The services that the paths use."""

    operations: Operating
    inquiries: Inquiries
    rejected: RejectedRecords
    records: RecordSink
    controls: Controls
    pulse: Pulse = field(default_factory=AlwaysAnswering)


class Backend:
    """The services of one process behind bounded calls; the coroutines are for the event loop."""

    def __init__(self, config: Config, services: Services, *, timeout_s: float = TIMEOUT_S) -> None:
        self.config = config
        self.operations = services.operations
        self.inquiries = services.inquiries
        self.rejected = services.rejected
        self.records = services.records
        self.controls = services.controls
        self.pulse = services.pulse
        self._reading = Calls("admin-read", READING_THREADS, timeout_s)
        self._changing = Calls("admin-change", CHANGING_THREADS, timeout_s)
        # Redrives run one after the other, since a later one would fence an earlier one; no pause waits behind them.
        self._redriving = Calls("admin-redrive", 1, timeout_s)
        self._producing = Calls("admin-produce", PRODUCING_THREADS, timeout_s)
        # Each call waits for a receipt, for seconds where its partition is not served: no other call waits behind it.
        self._cancelling = Calls("admin-cancel", CANCELLING_THREADS, timeout_s)
        self._all_calls = (self._reading, self._changing, self._redriving, self._producing, self._cancelling)
        self._looking = threading.Lock()
        self._table: PolicyTable | None = None
        self._looked_s = 0.0
        self._changes = self._seen_changes = 0

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
        """Carry out a change; refuse an impossible one with 422 and the remedy."""
        try:
            return await self._carry_out(self._changing, function, *arguments)
        finally:
            # The next reader must see the change.
            self._changes += 1

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

    def table(self) -> PolicyTable:
        """Return all policies, at most ``FRESH_FOR_S`` old; blocks."""
        with self._looking:
            now_s, changes = time.monotonic(), self._changes
            if self._table is None or now_s - self._looked_s > FRESH_FOR_S or changes != self._seen_changes:
                self._table = self.operations.table()
                self._looked_s, self._seen_changes = now_s, changes
            return self._table

    def require_topic(self, topic: str) -> None:
        """Raise a Refusal unless the topic is a delay topic of this router's configuration."""
        if self.config.delay_topic(topic) is None:
            raise Refusal(HTTPStatus.NOT_FOUND, f"{topic} is not a delay topic of this router")

    @property
    def is_idle(self) -> bool:
        """True while no call is under way."""
        return all(calls.is_idle for calls in self._all_calls)

    def stop(self) -> None:
        """Begin no further call."""
        for calls in self._all_calls:
            calls.stop()


async def _refusing(calls: Calls, wrong: HTTPStatus, function: Callable[..., T], *arguments: Any) -> T:
    try:
        with cluster_errors():
            return await calls.run(function, *arguments)
    except ConfigError as error:
        raise Refusal(wrong, str(error)) from None
    except ClusterError as failed:
        # The text of the error may name brokers, so only the log has it.
        structlog.get_logger().warning("admin_kafka_failed", error=str(failed), code=failed.code)
        is_unanswered = failed.kind is ClusterTrouble.UNANSWERED
        told = "the brokers did not answer in time" if is_unanswered else "the cluster did not do it"
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{told} ({failed.code})") from None
    except DelayRouterError as error:
        structlog.get_logger().warning("admin_refused", why=str(error))
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"the router cannot do that now; {problems.INTERNAL}") from None

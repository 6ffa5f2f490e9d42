"""Runs applications that forward released records with their headers, in transactions, and checks the result.

Each copy has the additional header ``forwarded``. So the auditor can judge the router without the copies, and the
copies can be counted: there are as many as the application committed, after any number of take-overs by a router.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from confluent_kafka import Producer

from sidecar.dev.audit import AuditedRecord, AuditReport, join
from sidecar.kafka.client.admin import log_range, uncommitted_end
from tests.faults.streams import FORWARDED
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import TIMEOUT_S, Header, Stage, now_ms, wait_until

READY_WITHIN_S: Final = 20.0
"""The time from the start of the process; on a busy machine an undisturbed start takes a quarter of this."""

NEVER: Final = float("inf")
TRANSACTION_MS: Final = 300_000
"""Longer than any test: only the application ends its transactions."""


def _pause() -> None:
    time.sleep(0.05)


def restarted(router: RouterProcess, meanwhile: Callable[[], None] = _pause, within_s: float = READY_WITHIN_S) -> float:
    """Kill a router, start it, and return the seconds until it was ready, or NEVER after ``within_s``."""
    router.kill()
    router.start()
    began_s = time.monotonic()
    while (took_s := time.monotonic() - began_s) < within_s:
        if router.ready():
            return took_s
        meanwhile()
    return NEVER


class ForwardingStage(Stage):
    """A stage whose audit leaves out the copies that applications have written."""

    def audit(self, delays: Sequence[str] = (), targets: Sequence[str] = ()) -> AuditReport:
        """Find the fate of every record sent, by the records of the topics without the copies."""
        delays = delays or list(self.delays)
        # Outgoing topics first: the origins of all their records are in the delay topic by then.
        released = [record for topic in targets or self.targets for record in self.written_by_router(topic)]
        rejected = [record for delay in delays for record in self.records(f"{delay}.rejected")]
        receipts = [record for delay in delays for record in self.records(f"{delay}.receipts")]
        asked_ms = now_ms()
        sent = [record for delay in delays for record in self.records(delay)]
        defaults = {name: options.get("default_target", "") for name, options in self.delays.items()}
        return join(sent, released, rejected, receipts, now_ms=asked_ms, default_targets=defaults)

    def written_by_router(self, topic: str) -> list[AuditedRecord]:
        """Return the committed records of a target that are no copies."""
        return [record for record in self.records(topic) if not is_copy(record)]

    def copies(self, topic: str) -> Counter[bytes | None]:
        """Return the number of copies by value; a receipt and a record have different values."""
        return Counter(record.value for record in self.records(topic) if is_copy(record))


def is_copy(record: AuditedRecord) -> bool:
    """Say whether an application has written the record."""
    return FORWARDED in dict(record.headers)


class Application:
    """Writes in a transaction that stays open until ``end``."""

    def __init__(self, stage: Stage, name: str = "application") -> None:
        settings = {"transactional.id": f"{stage.word}.{name}", "transaction.timeout.ms": TRANSACTION_MS}
        self._producer = Producer({**stage.kafka, **settings, "linger.ms": 1})
        self._producer.init_transactions(TIMEOUT_S)
        self._producer.begin_transaction()

    def copy(self, records: Iterable[AuditedRecord], target: str) -> None:
        """Write records on with their headers."""
        for record in records:
            headers: list[Header] = [*record.headers, (FORWARDED, None)]
            self._producer.produce(target, record.value, record.key, headers=list(headers))
        self._flush()

    def write(self, target: str, value: bytes, *headers: Header) -> None:
        """Write a new record."""
        self._producer.produce(target, value, headers=[*headers, (FORWARDED, None)])
        self._flush()

    def end(self, *, commit: bool) -> None:
        """Commit or abort the open transaction."""
        ended = self._producer.commit_transaction if commit else self._producer.abort_transaction
        ended(TIMEOUT_S)

    def _flush(self) -> None:
        assert self._producer.flush(TIMEOUT_S) == 0


@dataclass
class Scene:
    """A delay topic that delivers to two targets, ``out`` and ``copy``, and the router that serves it."""

    stage: ForwardingStage
    router: RouterProcess
    delay: str
    partitions: int
    out: str
    copy: str

    @classmethod
    def make(cls, stage: ForwardingStage, lanes: int = 0) -> "Scene":
        """Create the topics of a scene, and its router, which does not run yet; a lane has two delay partitions."""
        out, copy = stage.target("x.out"), stage.target("x.copy")
        delay = stage.delay(partitions=1 + lanes, default_target=out, allowed_targets=[f"{stage.word}.x.*"])
        return cls(stage, stage.router(lanes=lanes), delay, 1 + lanes, out, copy)

    def to(self, target: str) -> Header:
        """Return the header that names a target."""
        return "deliver-to", target.encode()

    def send(self, count: int, *headers: Header, name: str = "first") -> None:
        """Send records with these headers, each with its own value."""
        for number in range(count):
            partition = number % self.partitions
            self.stage.post(self.delay, *headers, value=f"{name}-{number}".encode(), partition=partition)
        self.stage.flush()

    def release(self, target: str, count: int, name: str) -> None:
        """Send records that are due at once, and wait until the router has released them, visible or hidden."""
        before = self.released(target)
        self.send(count, self.to(target), name=name)
        wait_until(lambda: self.released(target) >= before + count, f"{count} releases to {target}")

    def released(self, target: str) -> float:
        """Return the number of records that the running router reports as released to a target."""
        return self.router.metric(f'records_released_total{{target="{target}",topic="{self.delay}"}}')

    def settle(self, target: str, copies: Counter[bytes | None]) -> AuditReport:
        """Assert that each record was released once, and that ``target`` has the committed copies."""
        self.router.wait_ready()
        wait_until(partial(self._has_at_least, target, copies), f"the copies in {target}")
        report = self.stage.settle()
        assert self.stage.copies(target) == copies, "copies were written by somebody else, or are missing"
        return report

    def _has_at_least(self, target: str, copies: Counter[bytes | None]) -> bool:
        return copies <= self.stage.copies(target)


class Feed:
    """Sends records to each target in turn, due within two seconds, during a wait for something else."""

    def __init__(self, scene: Scene, rng: Random) -> None:
        self._scene = scene
        self._rng = rng
        self._number = 0

    def post(self) -> None:
        """Send one record to each target, and pause."""
        for target in (self._scene.out, self._scene.copy):
            self._number += 1
            wait: Header = ("deliver-after", b"%d" % self._rng.randint(0, 2_000))
            self._scene.stage.post(self._scene.delay, wait, self._scene.to(target), value=b"fed-%d" % self._number)
        time.sleep(0.05)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Send until a condition holds. Raise AssertionError, which names the condition, after the timeout."""

        def is_so() -> bool:
            self.post()
            return condition()

        wait_until(is_so, what)


def hidden(stage: Stage, topic: str) -> int:
    """Return the number of offsets that an open transaction hides at the end of a topic with one partition."""
    _, settled = log_range(stage.admin, topic, 0)
    return uncommitted_end(stage.admin, topic, 0) - settled


def values(records: Iterable[AuditedRecord]) -> Counter[bytes | None]:
    """Return how often each value is among these records."""
    return Counter(record.value for record in records)

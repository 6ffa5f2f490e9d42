"""An admin API with a double behind it: policies in memory, and answers that a test sets."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
from fastapi import FastAPI
from starlette.types import ASGIApp

from index.errors import ConfigError
from index.named.receipts import Matched
from index.protocol.headers import Headers
from index.protocol.record import Record
from sidecar.config.model import Config
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.http.api.application import application, document
from sidecar.http.api.backend import Backend
from sidecar.http.guard import NO_FILES, Guard
from sidecar.http.pace import Pace
from sidecar.http.page.files import page_files
from sidecar.http.tokens import TokenFile
from sidecar.kafka.writing.record_writer import RecordWriter, WrittenRecord
from sidecar.operations.controls.orders import (
    WAIT_S,
    Cancelled,
    ControlOrder,
    NewRecord,
    QueryOrder,
    ReceiptAnswer,
    Written,
)
from sidecar.operations.controls.replacing import headers_of
from sidecar.operations.desk import Operations
from sidecar.operations.finding.wanted import ScheduleFilter
from sidecar.operations.rejected.counting import CodeCount, Counted
from sidecar.operations.rejected.listing import Listed, Position, RejectedPage
from sidecar.operations.rejected.records import RecordPosition, RejectedRecord
from sidecar.operations.rejected.redriving import Progress, Redrive, RedriveReport
from sidecar.operations.rejected.selection import RejectedSelection
from sidecar.operations.status.answers import (
    AttemptsAnswer,
    DueRange,
    Fate,
    IdAnswer,
    IdTrace,
    LookupAnswer,
    MatchingAnswer,
    PartitionAnswer,
    PendingAnswer,
    ScheduleAnswer,
    SchedulesAnswer,
    StatusAnswer,
    TopicAnswer,
)
from sidecar.operations.status.reports import Reported, Vitals
from sidecar.operations.watching.history import HistoryAnswer, MinuteAnswer
from sidecar.operations.watching.routers import RoutersAnswer, routers_answer
from sidecar.policies.origin import Change, remembered
from sidecar.policies.policy import Policy, Scope, plain_of
from sidecar.policies.table import NO_POLICIES, PolicyTable, refuse_impossible, with_policy

READ: Final = "reads-only-0123456789abcdef0123456789"
CHANGED_MS: Final = 1_790_000_000_000
"""The time at which policies were changed."""

SCHEDULES: Final = 7
"""The number of schedules that are pending one by one."""

OPERATE: Final = "operates-0123456789abcdef0123456789ab"
PRODUCE: Final = "produces-0123456789abcdef0123456789ab"
SEES: Final = "sees-payload-0123456789abcdef01234567"
"""Reads, and sees the contents of records."""

OPERATE_SEES: Final = "operates-and-sees-0123456789abcdef0123"

JSON: Final = {"content-type": "application/json"}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def config(**admin: Any) -> Config:
    return Config.model_validate(
        {
            "kafka": {"bootstrap.servers": "broker.example:1"},
            "admin": admin,
            "delay_topics": [
                {"name": "d", "default_target": "out", "allowed_targets": ["a", "b.*"], "max_delay": "1h"},
                {"name": "e", "default_target": "out"},
            ],
        }
    )


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """Return method, path and description of every operation of the API, as the document has them."""
    made = config()
    paths = document(application(Backend(made, FakeOperations(made))))["paths"]
    return [(method.upper(), path, each) for path, methods in paths.items() for method, each in methods.items()]


def concrete(path: str) -> str:
    """Return a path of the document with a delay topic, a target, a record and an id in it."""
    return path.format(topic="d", target="a", partition=0, offset=0, id="order/7")


class _Policies:
    """Policies in memory; ``asked`` counts the looks at them."""

    def __init__(self) -> None:
        self.table = NO_POLICIES
        self.asked = 0
        self.fails: Exception | None = None

    def settle(self) -> None:
        self.asked += 1
        if self.fails:
            raise self.fails


class _Writer(RecordWriter):
    """Notes records, with the broker's time as their timestamp."""

    def __init__(self, timestamp_ms: int = 1_800_000_000_000) -> None:
        self.timestamp_ms = timestamp_ms
        self.written: list[tuple[str, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = []

    def write(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> WrittenRecord:
        self.written.append((topic, key, value, [*headers]))
        return WrittenRecord(1, len(self.written) - 1, self.timestamp_ms)


class HangingCall:
    """A value of FakeOperations.before: the call ends once ``released`` is set, or after a minute."""

    def __init__(self) -> None:
        self.begun, self.released, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        self.released.wait(60)
        self.ended.set()


class FakeOperations(Operations):
    """Operations in memory: what a test sets is answered, and what is changed or written is kept for it.

    There are ``partitions`` of each delay topic, and records of partition 0 are pending below offset 10. A cancel, a
    move and a replacement affect one schedule each.
    """

    def __init__(self, made: Config, partitions: int = 2) -> None:
        nobody: Any = None
        self.known = _Policies()
        super().__init__(made, nobody, self.known, nobody)
        self.writer = _Writer()
        self._records = self.writer
        self.topics = [topic.name for topic in made.delay_topics]
        self.partitions = partitions
        self.before: Callable[[], None] = lambda: None
        self.wanted: ScheduleFilter | None = None
        self.content = Record(b"canary", b"canary", [("c", b"canary")], 1_000)
        self.asked_due_ms: int | None = None
        self.controls: list[tuple[str, ControlOrder | QueryOrder]] = []
        self.dry_runs: list[tuple[str, QueryOrder, str]] = []
        self.rejections: list[RejectedRecord] = []
        self.redriven: set[int] = set()
        self.redrives: list[Redrive] = []

    @property
    def held(self) -> PolicyTable:
        return self.known.table

    @property
    def written(self) -> list[tuple[str, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
        return self.writer.written

    def fail(self, failure: Exception) -> None:
        """Let everything that concerns policies, controls, records and rejected records fail from now on."""
        self.known.fails = failure

    def _fail(self) -> None:
        if self.known.fails:
            raise self.known.fails

    def _require_target(self, target: str) -> None:
        """Take any target: the document of the API cannot know which ones are allowed."""

    def _write(self, table: PolicyTable, scope: Scope, policy: Policy) -> dict[str, Any]:
        values = plain_of(policy)
        written = policy if values else None
        table = with_policy(table, scope, written)
        if written:
            refuse_impossible(table, self._config, scope)
        change = Change(scope, written, self.origin, CHANGED_MS)
        self.known.table = replace(table, changes=remembered(table.changes, change))
        self._look.expire()
        return values

    def status(self, topic: str = "") -> StatusAnswer:
        self.before()
        answers = tuple(PartitionAnswer(partition=n, state="active", pending=n) for n in range(self.partitions))
        topics = [
            TopicAnswer(topic=name, pending=1, paused=False, drained=False, partitions=answers)
            for name in self.topics
            if topic in ("", name)
        ]
        return StatusAnswer(topics=tuple(topics), instances=("one", "two"), kernels={"one": "native"})

    def routers(self) -> RoutersAnswer:
        vitals = {"one": Vitals("0.2.0", "host-1", 1_700_000_000_000, 0.25, 300 << 20)}
        statuses = (PartitionStatus(self.topics[0], n, PartitionState.ACTIVE) for n in range(self.partitions))
        return routers_answer((Reported(each, "one", 0, 0) for each in statuses), {"one": "native", "two": ""}, vitals)

    def history(self, topic: str = "") -> HistoryAnswer:
        minute = MinuteAnswer(at_ms=60_000, released=7, lateness_p50_ms=1.5, lateness_p99_ms=9.0, pending=3)
        return HistoryAnswer(topic=topic, minutes=(minute,))

    def pending(self, topic: str) -> PendingAnswer:
        self.before()
        by_due = (DueRange(within_s=0, records=1), DueRange(within_s=None, records=2))
        return PendingAnswer(topic=topic, records=3, by_due=by_due, by_target={"out": 3})

    def lookup(self, topic: str, partition: int, offset: int) -> LookupAnswer:
        self.before()
        if partition >= self.partitions:
            raise ConfigError(f"{topic} has no partition {partition}")
        fate = Fate.PENDING if offset < 10 else Fate.UNKNOWN
        return LookupAnswer(topic=topic, partition=partition, offset=offset, fate=fate)

    def record(self, topic: str, partition: int, offset: int, due_ms: int | None = None) -> Record:
        self.before()
        self.asked_due_ms = due_ms
        if partition >= self.partitions or offset >= 10:
            raise ConfigError(f"{topic}/{partition}/{offset}: there is no such record")
        return self.content

    def rejected_record(self, topic: str, partition: int, offset: int) -> Record:
        self._fail()
        found = next((each for each in self.rejections if each.place == (partition, offset)), None)
        if found is None or found.source.topic != topic:
            raise ConfigError(f"{topic}: no record lies there")
        return Record(found.key, found.value, found.headers, found.rejected_ms)

    def find(self, topic: str, deliver_id: bytes) -> IdAnswer:
        self.before()
        trace = IdTrace(fate=Fate.RELEASED, place="out/0/7", at_ms=1_000, why=f"{topic}/0/3", source=f"{topic}/0/3")
        return IdAnswer(topic=topic, id=deliver_id.decode(), traces=(trace,))

    def schedules(self, wanted: ScheduleFilter, begin: str, most: int, upcoming: int = 0) -> SchedulesAnswer:
        """Return at most ``most`` of SCHEDULES schedules, due one after the other, from the end of the page before."""
        self.before()
        self.wanted = wanted
        first = int(begin.rpartition("/")[2]) if begin else 0
        shown = {"key": "canary", "id": None if wanted.deliver_id is None else wanted.deliver_id.decode()}
        found = [
            ScheduleAnswer(partition=0, offset=offset, due_ms=1_000 + offset, targets=("out",), **shown)
            for offset in range(first, min(first + most, SCHEDULES))
        ]
        last = first + len(found)
        next_from = f"0/log/{last}" if last < SCHEDULES else None
        return SchedulesAnswer(topic=wanted.topic, schedules=tuple(found), next_from=next_from)

    def matching(self, topic: str, order: QueryOrder, begin: str = "") -> MatchingAnswer:
        """Count 1,207 schedules, of which the second call counts 207."""
        self.before()
        self.dry_runs.append((topic, order, begin))
        first = ScheduleAnswer(partition=1, offset=5, due_ms=1_900_000_000_000, targets=("out", "audit"), id="order-7")
        if begin:
            return MatchingAnswer(topic=topic, matching=207)
        return MatchingAnswer(topic=topic, matching=1_000, first=(first,), next_from="1/log/7")

    def attempts(self, topic: str, most: int) -> AttemptsAnswer:
        self.before()
        return AttemptsAnswer(topic=topic, records=most, by_attempt={"1": 2, "4-7": 1}, exhausted=1, is_whole=most > 9)

    def cancel_or_move(self, topic: str, order: ControlOrder, wait_s: float = WAIT_S) -> ReceiptAnswer:
        self.controls.append((topic, order))
        self._fail()
        due_ms = None if order.moves_to is None else int(order.moves_to[1])
        return ReceiptAnswer(order.done, (Cancelled(order.partition or 0, 7, 1_000),), due_ms)

    def cancel_where(self, topic: str, order: QueryOrder, wait_s: float = WAIT_S) -> Matched:
        self.controls.append((topic, order))
        self._fail()
        return Matched(None, 90_000) if order.where.target == "out" else Matched(1_207)

    def write_record(self, topic: str, record: NewRecord) -> Written:
        self._fail()
        return super().write_record(topic, record)

    def replace_schedules(
        self, topic: str, deliver_id: str, record: NewRecord, if_due_ms: int | None = None, wait_s: float = WAIT_S
    ) -> tuple[Written, ReceiptAnswer]:
        written = self.write_record(topic, record.with_headers(headers_of(deliver_id, if_due_ms)))
        return written, ReceiptAnswer("replaced", (Cancelled(written.partition, 7, 1_000),), 2_000)

    def reject(self, topic: str, code: str, message: str = "no", deliver_id: bytes | None = None) -> None:
        """Put a record into a rejected topic, at the next offset of partition 0."""
        offset = len(self.rejections)
        place = RecordPosition(topic, 1, 40 + offset)
        headers: Headers = [("c", b"canary")]
        told = (1_000 + offset, place, code, message, 0, deliver_id, "")
        self.rejections.append(RejectedRecord(0, offset, *told, b"canary", b"canary", headers))

    def rejected(self, selection: RejectedSelection, begin: Position, most: int) -> dict[str, Any]:
        self._fail()
        found = [each for each in self.rejections if selection.takes(each) and each.place >= begin]
        next_from = found[most].place if len(found) > most else None
        listed = [Listed(each, each.offset in self.redriven) for each in found[:most]]
        return RejectedPage(listed, next_from).as_json()

    def rejected_codes(self, topic: str) -> Counted:
        self._fail()
        codes: dict[str, CodeCount] = {}
        for each in self.rejections:
            if each.source.topic == topic:
                count = codes.setdefault(each.code, CodeCount())
                count.records += 1
                count.redriven += each.offset in self.redriven
                count.last_ms = each.rejected_ms
        return Counted(codes, is_whole=True)

    def rejected_counts(self) -> dict[str, Counted]:
        return {topic: self.rejected_codes(topic) for topic in self.topics}

    def redrive(self, order: Redrive, on_progress: Progress) -> dict[str, int]:
        self._fail()
        self.redrives.append(order)
        found = [each.offset for each in self.rejections if order.selection.takes(each)]
        waiting = [offset for offset in found if offset not in self.redriven][: order.most]
        report = RedriveReport(selected=len(found), to_drive=len(waiting), already_redriven=len(found) - len(waiting))
        if not order.dry_run:
            self.redriven.update(waiting)
            report.driven = len(waiting)
        return report.as_json()


class FakePulse:
    """Brokers that answer until a test sets the time since when they do not."""

    def __init__(self) -> None:
        self.since_ms: int | None = None

    def silent_since_ms(self) -> int | None:
        return self.since_ms


class _InMemory(httpx.BaseTransport):
    """Gives requests to the application without a socket, each in a loop of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        content = request.read()

        async def answered() -> httpx.Response:
            again = httpx.Request(request.method, request.url, headers=request.headers, content=content)
            # An exception that the application does not turn into an answer fails the test.
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=True)
            answer = await transport.handle_async_request(again)
            await answer.aread()
            return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

        return asyncio.run(answered())


_APPLICATIONS: Final[dict[str, tuple[FakeOperations, Backend, FastAPI]]] = {}
"""Applications by the options in ``[admin]``: FastAPI takes a second to build one from its models."""


class Api:
    """The application within its guard, and the double behind it.

    Tests with the same options share one application, one after the other. Each begins with new operations and with no
    call under way.
    """

    def __init__(self, directory: Path, *, timeout_s: float = 20.0, **admin: Any) -> None:
        self.token_file = directory / "tokens"
        lines = ("# for tests", f"read {READ}", "", f"operate {OPERATE}", f"produce {PRODUCE}", f"read+payload {SEES}")
        self.token_file.write_text("\n".join((*lines, f"operate+payload {OPERATE_SEES}")))
        self.config = config(token_file=str(self.token_file), **admin)
        self.now_s = 1_000.0
        self.pulse = FakePulse()
        options = repr(sorted(admin.items()))
        if options not in _APPLICATIONS:
            operations = FakeOperations(self.config)
            backend = Backend(self.config, operations)
            _APPLICATIONS[options] = (operations, backend, application(backend))
        self.operations, self.backend, app = _APPLICATIONS[options]
        # The routes of the application hold these two objects.
        FakeOperations.__init__(self.operations, self.config)
        Backend.__init__(self.backend, self.config, self.operations, self.pulse, timeout_s=timeout_s)
        self.tokens = TokenFile(self.token_file, lambda: self.now_s)
        pace = Pace(lambda: self.now_s)
        files = page_files() if self.config.admin.page else NO_FILES
        self.app: ASGIApp = Guard(app, self.config.admin, self.tokens, pace, files)

    def client(self, token: str = "") -> httpx.Client:
        headers = bearer(token) if token else {}
        return httpx.Client(transport=_InMemory(self.app), base_url="http://localhost:8081", headers=headers)

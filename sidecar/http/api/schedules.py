"""Paths of pending schedules: list, cancel, move and replace them, and cancel all that match."""

from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request
from pydantic import ConfigDict, Field
from starlette.responses import Response

from index.named.receipts import Matched
from index.protocol.headers import CONTROL_PREFIX
from index.protocol.where import CancelWhere, WantedHeader
from sidecar.http.api import bodies
from sidecar.http.api.backend import Backend
from sidecar.http.api.content import masking
from sidecar.http.api.records import RecordOrder, RecordWrittenAnswer, record_of, without_condition
from sidecar.http.api.shapes import JSON_ONLY, DueMs, DueMsText, Id, MillisecondsText, TopicName, milliseconds
from sidecar.http.problems import Refusal
from sidecar.http.tokens import Caller
from sidecar.operations.controls.orders import ControlOrder, QueryOrder, ReceiptAnswer
from sidecar.operations.finding.wanted import PLACE, ScheduleFilter
from sidecar.operations.status.answers import Answer, MatchingAnswer, SchedulesAnswer

MOST_LISTED: Final = 500
MOST_PARTITIONS: Final = 1_000_000
MOST_UPCOMING: Final = 5
MAX_KEY_CHARACTERS: Final = 1_024
WAIT_S: Final = 8.0
"""Wait for a receipt; shorter than the time of a call, so that the caller learns that no receipt has come."""

_Id = Annotated[Id | None, Query(description="With this deliver-id")]
_From = Annotated[MillisecondsText | None, Query(description="Due then or later; milliseconds since 1970")]
_To = Annotated[MillisecondsText | None, Query(description="Due before; milliseconds since 1970")]
_Target = Annotated[TopicName | None, Query(description="To this target topic")]
_Key = Annotated[
    str | None, Query(max_length=MAX_KEY_CHARACTERS, description="With this key; only with a +payload token")
]
_Most = Annotated[int, Query(ge=1, le=MOST_LISTED)]
_Upcoming = Annotated[int, Query(ge=0, le=MOST_UPCOMING, description="Due times to foresee of each recurring one")]
_Recurring = Annotated[
    str | None, Query(pattern="^(true|false)$", description="true: only occurrences of recurring schedules")
]
_Begin = Annotated[
    str | None, Query(alias="from", pattern=f"^{PLACE.pattern}$", description="next_from of the page before")
]
_IfDue = Annotated[DueMsText | None, Query(description="Only schedules due exactly then; milliseconds since 1970")]
_Condition = Annotated[
    DueMsText,
    Query(description="Replace only schedules requested for exactly this time; milliseconds since 1970"),
]
_Partition = Annotated[
    int | None,
    Query(ge=0, le=MOST_PARTITIONS, description="Partition of the schedules; left out: every partition is asked"),
]


class CancelledSchedule(Answer):
    """A schedule that is no longer released, or at another time."""

    partition: int
    offset: int
    due_ms: int = Field(description="Milliseconds since 1970")


class CancelledAnswer(Answer):
    """The cancelled schedules, once that is committed."""

    topic: str
    id: str
    cancelled: tuple[CancelledSchedule, ...]


class ReplacedAnswer(RecordWrittenAnswer):
    """The schedule that is pending from now on, and the schedules that it replaced."""

    id: str
    replaced: tuple[CancelledSchedule, ...]


class MoveOrder(Answer):
    """The new due time of a schedule."""

    due_ms: Annotated[DueMs, Field(description="Milliseconds since 1970")]


class MovedAnswer(Answer):
    """The moved schedules, by their former places, once that is committed."""

    topic: str
    id: str
    moved: tuple[CancelledSchedule, ...]
    due_ms: int | None = Field(description="Milliseconds since 1970; null where it could not be written again")


class WantedHeaderOrder(Answer):
    """A header that the record of a schedule must have."""

    name: Annotated[str, Field(pattern=r"^[!-~]([ -~]*[!-~])?$", max_length=249, examples=["customer"])]
    value: Annotated[str, Field(max_length=800, examples=["7"])]


class QueryCancellation(Answer):
    """A predicate: all fields that are given must be true of a schedule. One is needed."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
                for name in ("target", "due_from_ms", "due_to_ms", "id_prefix", "header")
            ]
        }
    )

    target: Annotated[TopicName | None, Field(description="One of the targets of a schedule")] = None
    due_from_ms: Annotated[DueMs | None, Field(description="Requested for then or later; ms since 1970")] = None
    due_to_ms: Annotated[DueMs | None, Field(description="Requested for a time before; ms since 1970")] = None
    id_prefix: Annotated[str | None, Field(min_length=1, max_length=64, description="Beginning of the deliver-id")] = (
        None
    )
    header: WantedHeaderOrder | None = None
    partition: Annotated[int | None, Field(ge=0, le=MOST_PARTITIONS, description="Left out: every partition")] = None

    @property
    def predicate(self) -> CancelWhere:
        """The predicate; without a field it is true of every schedule."""
        prefix = None if self.id_prefix is None else self.id_prefix.encode()
        header = None if self.header is None else WantedHeader(self.header.name, self.header.value.encode())
        return CancelWhere(self.target or "", self.due_from_ms, self.due_to_ms, prefix, header)


class QueryCancelledAnswer(Answer):
    """The number of cancelled schedules, once that is committed."""

    topic: str
    matched: int | None = Field(description="Null where they are too many to be counted")
    estimated: int | None = Field(description="About how many, where that is so")


def routes(backend: Backend) -> APIRouter:
    """Return the paths below ``/topics/{topic}/schedules``."""
    router = APIRouter(tags=["schedules"])
    operations = backend.operations
    is_masked = masking(backend.config.admin)

    @router.get("/topics/{topic}/schedules", response_model=SchedulesAnswer)
    async def list_schedules(
        request: Request,
        wanted: Annotated[ScheduleFilter, Depends(_wanted)],
        limit: _Most = 100,
        begin: _Begin = None,
        upcoming: _Upcoming = 0,
    ) -> Response:
        """Pending schedules of a delay topic: with ids, and keys for a +payload token; without values and headers."""
        backend.require_topic(wanted.topic)
        sees_payload = request.state.caller.sees_payload
        if wanted.key is not None and not sees_payload:
            raise Refusal(HTTPStatus.FORBIDDEN, "this token may not see the content of records: keys are for +payload")
        page = await backend.ask(operations.schedules, wanted, begin or "", limit, upcoming)
        shown = page.schedules if sees_payload else tuple(each.without_key() for each in page.schedules)
        return bodies.whole(page.model_copy(update={"schedules": shown}))

    @router.post("/topics/{topic}/cancellations", response_model=QueryCancelledAnswer, dependencies=JSON_ONLY)
    async def cancel_matching_schedules(topic: TopicName, body: QueryCancellation) -> Response:
        """Cancel all pending schedules that match, and answer once that is certain, also when there is none."""
        backend.require_topic(topic)
        order, told = _order(body), Matched(0)
        if not order.where.is_empty:
            told = await backend.cancel(operations.cancel_where, topic, order, WAIT_S)
        return bodies.whole(QueryCancelledAnswer(topic=topic, matched=told.exact, estimated=told.estimated))

    @router.post("/topics/{topic}/cancellations/dry-run", response_model=MatchingAnswer, dependencies=JSON_ONLY)
    async def count_matching_schedules(
        request: Request, topic: TopicName, body: QueryCancellation, begin: _Begin = None
    ) -> Response:
        """Count the schedules that the same cancellation would cancel; where there are many, in several calls.

        A count by header takes a +payload token, and a name that masked_headers does not match.
        """
        backend.require_topic(topic)
        if body.header is not None:
            _require_count_by(body.header.name, request.state.caller, is_masked)
        return bodies.whole(await backend.ask(operations.matching, topic, _order(body), begin or ""))

    @router.delete("/topics/{topic}/schedules/{id:id}", response_model=CancelledAnswer)
    async def cancel_schedule(
        topic: TopicName,
        id: Id,  # noqa: A002 - the name in the path
        if_due_ms: _IfDue = None,
        partition: _Partition = None,
    ) -> Response:
        """Cancel all pending schedules of an id, and answer once that is certain; 404 when there is none."""
        backend.require_topic(topic)
        order = ControlOrder(id.encode(), milliseconds(if_due_ms), partition)
        told = await backend.cancel(operations.cancel_or_move, topic, order, WAIT_S)
        return bodies.whole(CancelledAnswer(topic=topic, id=id, cancelled=_schedules(told)))

    @router.patch("/topics/{topic}/schedules/{id:id}", response_model=MovedAnswer, dependencies=JSON_ONLY)
    async def move_schedule(
        topic: TopicName,
        id: Id,  # noqa: A002 - the name in the path
        body: MoveOrder,
        if_due_ms: _IfDue = None,
        partition: _Partition = None,
    ) -> Response:
        """Give the schedule of an id another due time, and answer once that is certain; 404 when there is none.

        Of several in a partition the last is moved, and the others are cancelled.
        """
        backend.require_topic(topic)
        moves_to = CONTROL_PREFIX + "at", b"%d" % body.due_ms
        order = ControlOrder(id.encode(), milliseconds(if_due_ms), partition, moves_to)
        told = await backend.cancel(operations.cancel_or_move, topic, order, WAIT_S)
        return bodies.whole(MovedAnswer(topic=topic, id=id, moved=_schedules(told), due_ms=told.due_ms))

    @router.post(
        "/topics/{topic}/schedules/{id:id}",
        response_model=ReplacedAnswer,
        dependencies=[*JSON_ONLY, Depends(_require_condition)],
    )
    async def replace_schedule(
        topic: TopicName,
        id: Id,  # noqa: A002 - the name in the path
        body: RecordOrder,
        if_due_ms: _Condition,
    ) -> Response:
        """Write a record that replaces the schedules of an id pending for a time; 404 or 409 when there is none."""
        backend.require_topic(topic)
        order = topic, id, record_of(body), milliseconds(if_due_ms), WAIT_S
        written, told = await backend.cancel(operations.replace_schedules, *order)
        return bodies.whole(ReplacedAnswer(**asdict(written), id=id, replaced=_schedules(told)))

    return router


def _wanted(
    topic: TopicName,
    id: _Id = None,  # noqa: A002 - the name in the query
    due_from_ms: _From = None,
    due_to_ms: _To = None,
    target: _Target = None,
    key: _Key = None,
    recurring: _Recurring = None,
) -> ScheduleFilter:
    """Return the conditions of a query."""
    return ScheduleFilter(
        topic,
        None if id is None else id.encode(),
        milliseconds(due_from_ms),
        milliseconds(due_to_ms),
        target or "",
        None if key is None else key.encode(),
        recurring == "true",
    )


def _require_condition(request: Request) -> None:
    if "if_due_ms" not in request.query_params:
        raise without_condition(request.state.caller, "if_due_ms")


def _require_count_by(header: str, caller: Caller, is_masked: Callable[[str], bool]) -> None:
    """Raise a Refusal unless a caller may count by values of this header: a count of a guessed value confirms it."""
    if not caller.sees_payload:
        detail = "this token may not see the content of records: counts by header are for +payload; leave header out"
        raise Refusal(HTTPStatus.FORBIDDEN, detail)
    if is_masked(header):
        detail = f"admin.masked_headers has {header}, so nobody may count by its values; leave header out"
        raise Refusal(HTTPStatus.FORBIDDEN, detail)


def _order(body: QueryCancellation) -> QueryOrder:
    """Return the order in a body; raise a Refusal for one without a field."""
    where = body.predicate
    if where == CancelWhere():
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "no field is given, which would cancel everything")
    return QueryOrder(where, body.partition)


def _schedules(told: ReceiptAnswer) -> tuple[CancelledSchedule, ...]:
    return tuple(CancelledSchedule(**each.as_json()) for each in told.cancelled)

"""Paths of pending schedules: list, cancel, move and replace them."""

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from starlette.responses import Response

from index.protocol.control_headers import IF_DUE, REPLACE
from index.protocol.headers import CONTROL_PREFIX, Headers
from sidecar.http.api import bodies
from sidecar.http.api.backend import Backend
from sidecar.http.api.records import RecordOrder, RecordWrittenAnswer, bytes_of, write
from sidecar.http.api.shapes import JSON_ONLY, DueMs, DueMsText, Id, MillisecondsText, TopicName, milliseconds
from sidecar.http.problems import Refusal
from sidecar.operations.controls.ordering import ControlOrder, UnknownPartitionError
from sidecar.operations.controls.receipts import ChangedError, NoReceiptError, NothingPendingError, ReceiptAnswer
from sidecar.operations.finding.wanted import PLACE, ScheduleFilter
from sidecar.operations.status.answers import Answer, SchedulesAnswer

MOST_LISTED: Final = 500
MOST_PARTITIONS: Final = 1_000_000
MAX_KEY_CHARACTERS: Final = 1_024

_Id = Annotated[Id | None, Query(description="With this deliver-id")]
_From = Annotated[MillisecondsText | None, Query(description="Due then or later; milliseconds since 1970")]
_To = Annotated[MillisecondsText | None, Query(description="Due before; milliseconds since 1970")]
_Target = Annotated[TopicName | None, Query(description="To this target topic")]
_Key = Annotated[
    str | None, Query(max_length=MAX_KEY_CHARACTERS, description="With this key; takes a token that sees payload")
]
_Most = Annotated[int, Query(ge=1, le=MOST_LISTED)]
_Begin = Annotated[
    str | None, Query(alias="from", pattern=f"^{PLACE.pattern}$", description="next_from of the page before")
]
_IfDue = Annotated[DueMsText | None, Query(description="Only what is due exactly then; milliseconds since 1970")]
_Partition = Annotated[
    int | None, Query(ge=0, le=MOST_PARTITIONS, description="Where it lies; left out: every partition is asked")
]


T = TypeVar("T")


class CancelledSchedule(Answer):
    """A schedule that is not released any more, or not when it was to be."""

    partition: int
    offset: int
    due_ms: int = Field(description="Milliseconds since 1970")


class CancelledAnswer(Answer):
    """What was cancelled, once that is committed."""

    topic: str
    id: str
    cancelled: tuple[CancelledSchedule, ...]


class ReplacedAnswer(RecordWrittenAnswer):
    """What is pending from now on, and what was in its place."""

    id: str
    replaced: tuple[CancelledSchedule, ...]


class MoveOrder(Answer):
    """When what is moved is due from now on."""

    due_ms: Annotated[DueMs, Field(description="Milliseconds since 1970")]


class MovedAnswer(Answer):
    """What was moved, by where it lay, once that is committed."""

    topic: str
    id: str
    moved: tuple[CancelledSchedule, ...]
    due_ms: int | None = Field(description="Milliseconds since 1970; null where it could not be written again")


def routes(backend: Backend) -> APIRouter:
    """Return the paths below ``/topics/{topic}/schedules``."""
    router = APIRouter(tags=["schedules"])

    @router.get("/topics/{topic}/schedules", response_model=SchedulesAnswer)
    async def list_schedules(
        request: Request,
        wanted: Annotated[ScheduleFilter, Depends(_wanted)],
        limit: _Most = 100,
        begin: _Begin = None,
    ) -> Response:
        """Pending schedules of a delay topic: with ids, and keys for who sees payload; without values and headers."""
        backend.require_topic(wanted.topic)
        sees_payload = request.state.caller.sees_payload
        if wanted.key is not None and not sees_payload:
            raise Refusal(HTTPStatus.FORBIDDEN, "this token may not see what is in records: keys are for +payload")
        page = await backend.ask(backend.inquiries.schedules, wanted, begin or "", limit)
        shown = page.schedules if sees_payload else tuple(each.without_key() for each in page.schedules)
        return bodies.whole(page.model_copy(update={"schedules": shown}))

    # An id may hold a slash.
    @router.delete("/topics/{topic}/schedules/{id:path}", response_model=CancelledAnswer)
    async def cancel_schedule(
        topic: TopicName,
        id: Id,  # noqa: A002 - the name in the path
        if_due_ms: _IfDue = None,
        partition: _Partition = None,
    ) -> Response:
        """Cancel all that is pending under an id, and answer once that is certain; 404 when nothing is."""
        backend.require_topic(topic)
        order = ControlOrder(id.encode(), milliseconds(if_due_ms), partition)
        told = await backend.cancel(_definitely, partial(backend.controls.carry_out, topic, order))
        return bodies.whole(CancelledAnswer(topic=topic, id=id, cancelled=_schedules(told)))

    @router.patch("/topics/{topic}/schedules/{id:path}", response_model=MovedAnswer, dependencies=JSON_ONLY)
    async def move_schedule(
        topic: TopicName,
        id: Id,  # noqa: A002 - the name in the path
        body: MoveOrder,
        if_due_ms: _IfDue = None,
        partition: _Partition = None,
    ) -> Response:
        """Give what is pending under an id another due time, and answer once that is certain; 404 when nothing is.

        Of several in a partition the last is moved, and the others are cancelled.
        """
        backend.require_topic(topic)
        moves_to = CONTROL_PREFIX + "at", b"%d" % body.due_ms
        order = ControlOrder(id.encode(), milliseconds(if_due_ms), partition, moves_to)
        told = await backend.cancel(_definitely, partial(backend.controls.carry_out, topic, order))
        return bodies.whole(MovedAnswer(topic=topic, id=id, moved=_schedules(told), due_ms=told.due_ms))

    @router.post("/topics/{topic}/schedules/{id:path}", response_model=ReplacedAnswer, dependencies=JSON_ONLY)
    async def replace_schedule(
        topic: TopicName,
        id: Id,  # noqa: A002 - the name in the path
        body: RecordOrder,
        if_due_ms: _IfDue = None,
    ) -> Response:
        """Write a record that replaces what is pending under an id in its partition; at once, or not at all."""
        backend.require_topic(topic)
        order = partial(_replace, backend, topic, id, body, milliseconds(if_due_ms))
        return bodies.whole(await backend.cancel(_definitely, order))

    return router


def _wanted(
    topic: TopicName,
    id: _Id = None,  # noqa: A002 - the name in the query
    due_from_ms: _From = None,
    due_to_ms: _To = None,
    target: _Target = None,
    key: _Key = None,
) -> ScheduleFilter:
    """Return the conditions of a query."""
    return ScheduleFilter(
        topic,
        None if id is None else id.encode(),
        milliseconds(due_from_ms),
        milliseconds(due_to_ms),
        target or "",
        None if key is None else key.encode(),
    )


def _replace(backend: Backend, topic: str, deliver_id: str, body: RecordOrder, if_due_ms: int | None) -> ReplacedAnswer:
    if_due: Headers = [] if if_due_ms is None else [(IF_DUE, b"%d" % if_due_ms)]
    more: Headers = [(CONTROL_PREFIX + "id", deliver_id.encode()), (REPLACE, b"true"), *if_due]
    written: list[RecordWrittenAnswer] = []

    def write_it() -> tuple[int, int]:
        written.append(write(backend, topic, body, more))
        return written[0].partition, written[0].offset

    told = backend.controls.replace(topic, deliver_id, bytes_of(body.key), write_it)
    return ReplacedAnswer(**written[0].model_dump(), id=deliver_id, replaced=_schedules(told))


def _schedules(told: ReceiptAnswer) -> tuple[CancelledSchedule, ...]:
    return tuple(CancelledSchedule(**each.as_json()) for each in told.cancelled)


def _definitely(order: Callable[[], T]) -> T:
    """Carry out an order and return its result; raise a Refusal when nothing was done or no receipt has come."""
    try:
        return order()
    except (NothingPendingError, UnknownPartitionError) as error:
        raise Refusal(HTTPStatus.NOT_FOUND, str(error)) from None
    except ChangedError as error:
        raise Refusal(HTTPStatus.CONFLICT, str(error)) from None
    except NoReceiptError as error:
        raise Refusal(HTTPStatus.GATEWAY_TIMEOUT, str(error)) from None

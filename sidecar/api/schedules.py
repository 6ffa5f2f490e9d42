"""Pending schedules, one by one: which there are, and that one does not leave."""

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from sidecar.admission.problems import Refusal
from sidecar.api import bodies
from sidecar.api.backend import Backend, Controls
from sidecar.api.shapes import Id, MillisecondsText, TopicName, milliseconds
from sidecar.controls.cancelling import Order
from sidecar.controls.receipts import Cancelled, ChangedError, NoReceiptError, NothingPendingError
from sidecar.finding.wanted import PLACE, Wanted
from sidecar.status.answers import Answer, SchedulesAnswer

MOST_LISTED: Final = 500
MOST_PARTITIONS: Final = 1_000_000

_Id = Annotated[Id | None, Query(description="With this deliver-id")]
_From = Annotated[MillisecondsText | None, Query(description="Due then or later; milliseconds since 1970")]
_To = Annotated[MillisecondsText | None, Query(description="Due before; milliseconds since 1970")]
_Target = Annotated[TopicName | None, Query(description="To this target topic")]
_Most = Annotated[int, Query(ge=1, le=MOST_LISTED)]
_Begin = Annotated[
    str | None, Query(alias="from", pattern=f"^{PLACE.pattern}$", description="next_from of the page before")
]
_IfDue = Annotated[MillisecondsText | None, Query(description="Only what is due exactly then; milliseconds since 1970")]
_Partition = Annotated[
    int | None, Query(ge=0, le=MOST_PARTITIONS, description="Where it lies; left out: every partition is asked")
]


class CancelledSchedule(Answer):
    """A schedule that is not released any more."""

    partition: int
    offset: int
    due_ms: int = Field(description="Milliseconds since 1970")


class CancelledAnswer(Answer):
    """What was cancelled, once that is committed."""

    topic: str
    id: str
    cancelled: tuple[CancelledSchedule, ...]


def routes(backend: Backend) -> APIRouter:
    """Paths below ``/topics/{topic}/schedules``."""
    router = APIRouter(tags=["schedules"])

    @router.get("/topics/{topic}/schedules", response_model=SchedulesAnswer)
    async def list_schedules(
        topic: TopicName,
        id: _Id = None,  # noqa: A002 - the name in the query
        due_from_ms: _From = None,
        due_to_ms: _To = None,
        target: _Target = None,
        limit: _Most = 100,
        begin: _Begin = None,
    ) -> Response:
        """Pending schedules of a delay topic; without keys, values and headers, but with the id."""
        backend.require_topic(topic)
        wanted = Wanted(
            topic,
            None if id is None else id.encode(),
            milliseconds(due_from_ms),
            milliseconds(due_to_ms),
            target or "",
        )
        return bodies.whole(await backend.ask(backend.inquiries.schedules, wanted, begin or "", limit))

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
        order = Order(id.encode(), milliseconds(if_due_ms), partition)
        cancelled = await backend.cancel(_cancel, backend.controls, topic, order)
        schedules = tuple(CancelledSchedule(**each.as_json()) for each in cancelled)
        return bodies.whole(CancelledAnswer(topic=topic, id=id, cancelled=schedules))

    return router


def _cancel(controls: Controls, topic: str, order: Order) -> list[Cancelled]:
    try:
        return controls.cancel(topic, order)
    except NothingPendingError as error:
        raise Refusal(HTTPStatus.NOT_FOUND, str(error)) from None
    except ChangedError as error:
        raise Refusal(HTTPStatus.CONFLICT, str(error)) from None
    except NoReceiptError as error:
        raise Refusal(HTTPStatus.GATEWAY_TIMEOUT, str(error)) from None

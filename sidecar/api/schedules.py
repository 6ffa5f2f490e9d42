"""Pending schedules, one by one."""

from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from sidecar.api import bodies
from sidecar.api.backend import Backend
from sidecar.api.shapes import Id, MillisecondsText, TopicName, milliseconds
from sidecar.finding.wanted import PLACE, Wanted
from sidecar.status.answers import SchedulesAnswer

MOST_LISTED: Final = 500

_Id = Annotated[Id | None, Query(description="With this deliver-id")]
_From = Annotated[MillisecondsText | None, Query(description="Due then or later; milliseconds since 1970")]
_To = Annotated[MillisecondsText | None, Query(description="Due before; milliseconds since 1970")]
_Target = Annotated[TopicName | None, Query(description="To this target topic")]
_Most = Annotated[int, Query(ge=1, le=MOST_LISTED)]
_Begin = Annotated[
    str | None, Query(alias="from", pattern=f"^{PLACE.pattern}$", description="next_from of the page before")
]


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

    return router

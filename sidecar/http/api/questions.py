"""Paths of questions: status, pending records, look-ups, routers, the last hour, the caller, and the brokers."""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from sidecar.http.api import bodies
from sidecar.http.api.backend import Backend
from sidecar.http.api.shapes import BrokersAnswer, CallerAnswer, Id, Offset, Partition, TopicName
from sidecar.operations.status.answers import (
    AttemptsAnswer,
    IdAnswer,
    LookupAnswer,
    PendingAnswer,
    StatusAnswer,
    TopicAnswer,
)
from sidecar.operations.watching.history import HistoryAnswer
from sidecar.operations.watching.routers import RoutersAnswer

MOST_COUNTED: Final = 50_000

_MostCounted = Annotated[int, Query(ge=1, le=MOST_COUNTED, description="Records to count at most")]


def routes(backend: Backend) -> APIRouter:
    """Return the paths below ``/topics``, and ``/routers``, ``/history``, ``/caller`` and ``/brokers``."""
    router = APIRouter(tags=["questions"])
    operations = backend.operations
    _add_group(router, backend)

    @router.get("/caller", response_model=CallerAnswer)
    async def get_caller(request: Request) -> Response:
        """Return the rights of the token of this request, of any role, and the links of the configuration."""
        caller, admin = request.state.caller, backend.config.admin
        return bodies.whole(
            CallerAnswer(
                role=caller.role,
                sees_payload=caller.sees_payload,
                token=caller.name,
                topic_link=admin.topic_link,
                record_link=admin.record_link,
            )
        )

    @router.get("/brokers", response_model=BrokersAnswer)
    async def get_brokers() -> Response:
        """Tell whether the brokers answer this router, and since when they do not; at once, without asking them."""
        since_ms, detail = backend.pulse.silent_since_ms(), backend.silence()
        return bodies.whole(BrokersAnswer(answering=not detail, silent_since_ms=since_ms, detail=detail))

    @router.get("/topics", response_model=StatusAnswer)
    async def list_topics() -> Response:
        """Status of all delay topics and their partitions, of the whole group."""
        return bodies.of_status(await backend.ask(operations.status))

    @router.get("/topics/{topic}", response_model=TopicAnswer)
    async def get_topic(topic: TopicName) -> Response:
        """Status of one delay topic."""
        backend.require_topic(topic)
        (found,) = (await backend.ask(operations.status, topic)).topics
        return bodies.of_topic(found)

    @router.get("/topics/{topic}/pending", response_model=PendingAnswer)
    async def get_pending(topic: TopicName) -> Response:
        """Count the pending records, by due time and by target."""
        backend.require_topic(topic)
        return bodies.whole(await backend.ask(operations.pending, topic))

    @router.get("/topics/{topic}/attempts", response_model=AttemptsAnswer)
    async def get_attempts(topic: TopicName, limit: _MostCounted = 5_000) -> Response:
        """Count the pending records by the attempt that they wait for, up to a limit."""
        backend.require_topic(topic)
        return bodies.whole(await backend.ask(operations.attempts, topic, limit))

    @router.get("/topics/{topic}/partitions/{partition}/records/{offset}", response_model=LookupAnswer)
    async def get_record(topic: TopicName, partition: Partition, offset: Offset) -> Response:
        """Show the fate of one record of a delay topic: pending, released, rejected or unknown."""
        backend.require_topic(topic)
        return bodies.whole(await backend.ask(operations.lookup, topic, partition, offset))

    @router.get("/topics/{topic}/ids/{id:id}", response_model=IdAnswer)
    async def find_id(topic: TopicName, id: Id) -> Response:  # noqa: A002 - the name in the path
        """Show every fate of an id: pending, cancelled, replaced, moved, rejected, released; the newest first."""
        backend.require_topic(topic)
        return bodies.whole(await backend.ask(operations.find, topic, id.encode()))

    return router


def _add_group(router: APIRouter, backend: Backend) -> None:
    """Add the paths about the routers of the group: each by its last report, and the last hour of all together."""
    operations = backend.operations

    @router.get("/routers", response_model=RoutersAnswer)
    async def list_routers() -> Response:
        """Routers of the group: version, host, start, CPU, memory and partitions of each."""
        return bodies.whole(await backend.ask(operations.routers))

    @router.get("/history", response_model=HistoryAnswer)
    async def get_history() -> Response:
        """Last hour by minute, of all delay topics together: released, late, pending; from the router's memory."""
        return bodies.whole(await backend.ask(operations.history))

    @router.get("/topics/{topic}/history", response_model=HistoryAnswer)
    async def get_topic_history(topic: TopicName) -> Response:
        """Last hour by minute, of one delay topic."""
        backend.require_topic(topic)
        return bodies.whole(await backend.ask(operations.history, topic))

"""Paths about the routers of the group: each one by its last report, and the last hour of all together."""

from fastapi import APIRouter
from starlette.responses import Response

from sidecar.http.api import bodies
from sidecar.http.api.backend import Backend
from sidecar.http.api.shapes import TopicName
from sidecar.operations.watching.history import HistoryAnswer
from sidecar.operations.watching.routers import RoutersAnswer


def routes(backend: Backend) -> APIRouter:
    """Return the paths ``/routers``, ``/history`` and ``/topics/{topic}/history``."""
    router = APIRouter(tags=["group"])
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

    return router

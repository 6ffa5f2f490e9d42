"""Pause, resume, drain: policies of one key, with a path of their own."""

from http import HTTPStatus

from fastapi import APIRouter
from starlette.responses import Response

from sidecar.admission.problems import Refusal
from sidecar.api import bodies
from sidecar.api.backend import Backend
from sidecar.api.shapes import JSON_ONLY, Confirmation, Nothing, SwitchAnswer, TopicName
from sidecar.policies.policy import target_scope, topic_scope


def routes(backend: Backend) -> APIRouter:
    """Paths that end in a verb."""
    router = APIRouter(tags=["operations"], dependencies=JSON_ONLY)
    operations = backend.operations

    @router.post("/topics/{topic}/pause", response_model=SwitchAnswer)
    async def pause_topic(topic: TopicName, _: Nothing) -> Response:
        """Release nothing from a delay topic any more; what comes in is still indexed."""
        backend.require_topic(topic)
        await backend.change(operations.pause, topic)
        return _of_topic(topic, "paused", value=True)

    @router.post("/topics/{topic}/resume", response_model=SwitchAnswer)
    async def resume_topic(topic: TopicName, _: Nothing) -> Response:
        """Release again: what has become due meanwhile leaves at once, in order."""
        backend.require_topic(topic)
        await backend.change(operations.resume, topic)
        return _of_topic(topic, "paused", value=False)

    @router.post("/topics/{topic}/drain", response_model=SwitchAnswer)
    async def drain_topic(topic: TopicName, confirmation: Confirmation) -> Response:
        """Seal every partition and give it up, before maintenance; nothing is released until undrain."""
        backend.require_topic(topic)
        if confirmation.confirm != topic:
            raise Refusal(HTTPStatus.CONFLICT, "drain stops a delay topic: name it once more as confirm")
        await backend.change(operations.drain, topic)
        return _of_topic(topic, "drained", value=True)

    @router.post("/topics/{topic}/undrain", response_model=SwitchAnswer)
    async def undrain_topic(topic: TopicName, _: Nothing) -> Response:
        """Serve the partitions of a delay topic again."""
        backend.require_topic(topic)
        await backend.change(operations.undrain, topic)
        return _of_topic(topic, "drained", value=False)

    @router.post("/targets/{target}/pause", response_model=SwitchAnswer)
    async def pause_target(target: TopicName, _: Nothing) -> Response:
        """Hold back what goes to a target topic, whichever delay topic it comes from."""
        await backend.change(operations.pause_target, target)
        return _of_target(target, value=True)

    @router.post("/targets/{target}/resume", response_model=SwitchAnswer)
    async def resume_target(target: TopicName, _: Nothing) -> Response:
        """Give a target topic what was held for it."""
        await backend.change(operations.resume_target, target)
        return _of_target(target, value=False)

    return router


def _of_topic(topic: str, key: str, *, value: bool) -> Response:
    return bodies.whole(SwitchAnswer(scope=str(topic_scope(topic)), key=key, value=value))


def _of_target(target: str, *, value: bool) -> Response:
    return bodies.whole(SwitchAnswer(scope=str(target_scope(target)), key="paused", value=value))

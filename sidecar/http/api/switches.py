"""Paths of pause, resume and drain: policies of one key, with a path for each row of the table of switches."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends
from starlette.responses import Response

from sidecar.http.api import bodies
from sidecar.http.api.backend import Backend
from sidecar.http.api.shapes import (
    JSON_ONLY,
    Changer,
    Confirmation,
    Nothing,
    PauseTerms,
    SwitchAnswer,
    scope_of_target,
    scope_of_topic,
)
from sidecar.http.problems import Refusal
from sidecar.policies.policy import Scope, ScopeKind
from sidecar.policies.switches import SWITCHES, Switch

_PATHS: Final = {ScopeKind.TOPIC: "/topics/{topic}", ScopeKind.TARGET: "/targets/{target}"}
_SHAPES: Final = {("drained", True): Confirmation, ("paused", True): PauseTerms}
_SCOPES: Final = {ScopeKind.TOPIC: scope_of_topic, ScopeKind.TARGET: scope_of_target}


def routes(backend: Backend) -> APIRouter:
    """Return the paths that end in a verb, such as ``pause``."""
    router = APIRouter(tags=["operations"], dependencies=JSON_ONLY)
    for switch in SWITCHES:
        _add(router, backend, switch)
    return router


def _add(router: APIRouter, backend: Backend, switch: Switch) -> None:
    in_scope: Any = Annotated[Scope, Depends(_SCOPES[switch.kind])]
    shape: Any = _SHAPES.get((switch.key, switch.on), Nothing)
    path = f"{_PATHS[switch.kind]}/{switch.verb}"
    name = f"{switch.verb}_{switch.kind.value}"

    @router.post(path, name=name, description=switch.does, response_model=SwitchAnswer)
    async def set_switch(scope: in_scope, body: shape, changer: Changer) -> Response:
        if scope.kind is ScopeKind.TOPIC:
            backend.require_topic(scope.name)
        if switch.needs_confirmation and body.confirm != scope.name:
            raise Refusal(HTTPStatus.CONFLICT, f"{switch.verb} stops a delay topic: name it once more as confirm")
        terms = {"until_ms": body.until, "reason": body.reason or ""} if switch.is_pause else {}
        await backend.change(partial(backend.operations.by(changer).switch, scope, switch.key, on=switch.on, **terms))
        return bodies.whole(SwitchAnswer(scope=str(scope), key=switch.key, value=switch.on))

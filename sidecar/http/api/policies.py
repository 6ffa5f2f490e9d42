"""Paths of policies: the policy of each scope, and the effective values of a delay topic."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Query
from pydantic import WithJsonSchema
from starlette.responses import Response

from sidecar.http.api import bodies
from sidecar.http.api.backend import Backend
from sidecar.http.api.shapes import (
    JSON_ONLY,
    Changer,
    Effective,
    EffectiveAnswer,
    PoliciesAnswer,
    PolicyAnswer,
    PolicyChangesAnswer,
    TopicName,
    policy_schema,
    scope_of_target,
    scope_of_topic,
)
from sidecar.http.problems import Refusal
from sidecar.policies.policy import DEFAULT, Scope, ScopeKind

_Target = Annotated[TopicName | None, Query(description="A target topic: only the settings for its records")]


def routes(backend: Backend) -> APIRouter:
    """Return the paths below ``/policies``, and that of the effective policy of a delay topic."""
    router = APIRouter(tags=["policies"])
    operations = backend.operations

    @router.get("/policies", response_model=PoliciesAnswer)
    async def list_policies() -> Response:
        """All policies."""
        policies, unreadable = await backend.ask(operations.policies)
        return bodies.whole(PoliciesAnswer(policies=policies, unreadable=unreadable))

    @router.get("/policies/changes", response_model=PolicyChangesAnswer)
    async def list_policy_changes() -> Response:
        """List the changes of policies, with authors, times and settings: 200 at most, from the policies topic."""
        changes = await backend.ask(operations.policy_changes)
        return bodies.whole(PolicyChangesAnswer.model_validate({"changes": changes}))

    @router.get("/topics/{topic}/policy", response_model=EffectiveAnswer)
    async def get_effective_policy(topic: TopicName, target: _Target = None) -> Response:
        """Every key with the value in force and its origin."""
        backend.require_topic(topic)
        found = await backend.ask(operations.effective, topic, target or "")
        values = {
            key: Effective(value=each.value, origin=each.origin, is_default=each.is_default)
            for key, each in found.items()
        }
        return bodies.whole(EffectiveAnswer(topic=topic, target=target or "", values=values))

    for kind, path, scope_of in _SCOPES:
        _add(router, backend, kind, path, scope_of)
    return router


def _default() -> Scope:
    return DEFAULT


_SCOPES: Final[tuple[tuple[ScopeKind, str, Callable[..., Scope]], ...]] = (
    (ScopeKind.DEFAULT, "/policies/default", _default),
    (ScopeKind.TOPIC, "/policies/topics/{topic}", scope_of_topic),
    (ScopeKind.TARGET, "/policies/targets/{target}", scope_of_target),
)


def _add(router: APIRouter, backend: Backend, kind: ScopeKind, path: str, scope_of: Callable[..., Scope]) -> None:
    """Add the four methods of one kind of scope."""
    in_scope: Any = Annotated[Scope, Depends(scope_of)]
    whole: Any = Annotated[dict[str, Any], Body(), WithJsonSchema(policy_schema(kind))]
    part: Any = Annotated[dict[str, Any], Body(), WithJsonSchema(policy_schema(kind, null_unsets=True))]
    operations = backend.operations
    name = f"{kind.value}_policy"

    @router.get(path, name=f"get_{name}", response_model=PolicyAnswer)
    async def get_policy(scope: in_scope) -> Response:
        """Return the policies that are set in this scope; 404 if there are none."""
        policies, _ = await backend.ask(operations.policies)
        if str(scope) not in policies:
            raise Refusal(HTTPStatus.NOT_FOUND, f"no policy {scope} is set")
        return _answer(scope, policies[str(scope)])

    @router.put(path, name=f"put_{name}", response_model=PolicyAnswer, dependencies=JSON_ONLY)
    async def put_policy(scope: in_scope, values: whole, changer: Changer) -> Response:
        """Make this the whole policy of the scope."""
        _check(scope, values)
        if None in values.values():
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "null is no value; leave the key out, or use PATCH")
        return _answer(scope, await backend.change(operations.by(changer).replace_policy, scope, values))

    @router.patch(path, name=f"patch_{name}", response_model=PolicyAnswer, dependencies=JSON_ONLY)
    async def patch_policy(scope: in_scope, values: part, changer: Changer) -> Response:
        """Set these keys and unset those that are null; others stay (RFC 7396)."""
        _check(scope, values)
        unset = [key for key, value in values.items() if value is None]
        given = {key: value for key, value in values.items() if value is not None}
        return _answer(scope, await backend.change(operations.by(changer).change_policy, scope, given, unset))

    @router.delete(path, name=f"delete_{name}", status_code=HTTPStatus.NO_CONTENT)
    async def delete_policy(scope: in_scope, changer: Changer) -> Response:
        """Remove the policy; less specific ones hold from then on. Succeeds also when there is none."""
        await backend.change(operations.by(changer).remove_policy, scope)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    def _check(scope: Scope, values: dict[str, Any]) -> None:
        if scope.kind is ScopeKind.TOPIC:
            backend.require_topic(scope.name)
        if not values:
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "no key is named; DELETE removes a policy")


def _answer(scope: Scope, values: dict[str, Any]) -> Response:
    return bodies.whole(PolicyAnswer(scope=str(scope), values=values))

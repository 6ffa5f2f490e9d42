"""Builds one ASGI application from the paths, and the document that describes them."""

import json
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import sidecar
from sidecar.http import problems
from sidecar.http.api import bodies, content, policies, questions, records, rejected, schedules, switches
from sidecar.http.api.backend import Backend
from sidecar.http.guard import NO_SUCH_PATH, role_for
from sidecar.http.problems import Problem, Refusal

PREFIX: Final = "/api/v1"

_SCHEME: Final = "token"
_SHOWN_ERRORS: Final = 10


def application(backend: Backend) -> FastAPI:
    """Return the application that answers requests which have passed the guard."""
    # FastAPI's own pages are off: they load scripts from elsewhere.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    routers = [each.routes(backend) for each in (questions, content, schedules, records, rejected, policies, switches)]
    api = APIRouter(prefix=PREFIX, generate_unique_id_function=_name)
    for router in routers:
        api.include_router(router)

    @api.get("/openapi.json", tags=["document"], response_model=dict[str, Any])
    async def get_document() -> Response:
        """Return this document."""
        return Response(text(), media_type=bodies.JSON)

    @cache
    def text() -> bytes:
        # Made when it is first asked for: it takes as long as all else here together.
        return json.dumps(document(app)).encode()

    app.include_router(api)
    app.add_exception_handler(Refusal, _on_refusal)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    # Starlette raises the exception again after this answer, and the guard logs it.
    app.add_exception_handler(Exception, _on_defect)
    return app


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with the token, role and errors that the guard adds to every path."""
    made = get_openapi(
        title="kafka-delay-router",
        version=sidecar.__version__,
        description="Questions to a group of routers, and changes in it. Numbers count the whole group.",
        routes=app.routes,
    )
    schemas = made["components"]["schemas"]
    # The API never sends FastAPI's own form of errors.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = Problem.model_json_schema()
    made["components"]["securitySchemes"] = {
        _SCHEME: {"type": "http", "scheme": "bearer", "description": "A token of admin.token_file"}
    }
    made["components"]["responses"] = {
        "Problem": {
            "description": "Not done, and why",
            "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    }
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            operation["security"] = [{_SCHEME: []}]
            operation["x-role"] = role_for(method.upper(), path).value
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = {"$ref": "#/components/responses/Problem"}
    return made


def _name(route: APIRoute) -> str:
    return route.name


async def _on_refusal(request: Request, exception: Exception) -> Response:
    assert isinstance(exception, Refusal)
    return _problem(request, exception.status, exception.detail, exception.headers)


async def _on_http(request: Request, exception: Exception) -> Response:
    assert isinstance(exception, HTTPException)
    is_lost = exception.status_code == HTTPStatus.NOT_FOUND
    detail = NO_SUCH_PATH if is_lost else exception.detail
    return _problem(request, exception.status_code, detail, dict(exception.headers or {}))


async def _on_invalid(request: Request, exception: Exception) -> Response:
    """Answer with the place and the kind of each error, without the given value."""
    assert isinstance(exception, RequestValidationError)
    found = [
        f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}"
        for each in list(exception.errors())[:_SHOWN_ERRORS]
    ]
    return _problem(request, HTTPStatus.UNPROCESSABLE_ENTITY, "\n".join(found), {})


async def _on_defect(request: Request, _: Exception) -> Response:
    return _problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, problems.INTERNAL, {})


def _problem(request: Request, status: int, detail: str, headers: dict[str, str]) -> Response:
    body = problems.body_of(status, detail, request.state.request_id)
    return Response(body, status, headers, problems.MEDIA_TYPE)

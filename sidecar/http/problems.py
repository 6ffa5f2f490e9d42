"""Problem JSON (RFC 9457) for errors: written for the caller, with the request id under which the log says more."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

MEDIA_TYPE: Final = "application/problem+json"
INTERNAL: Final = "the router's log says why, by the request id"
MAX_DETAIL_CHARACTERS: Final = 2_000

HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
"""Headers of every answer."""


class Problem(BaseModel):
    """Why a request was not done."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str = Field("about:blank", description="about:blank: no page says more than the title")
    title: str
    status: int
    detail: str
    request_id: str = Field(description="Id of the request; the router's log has it, too")


class Refusal(Exception):
    """A request is refused; ``detail`` is for the caller."""

    def __init__(self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})


def body_of(status: int, detail: str, request_id: str) -> bytes:
    """Return the problem as JSON in ASCII, since the detail may quote arbitrary text of the caller."""
    shown = detail if len(detail) <= MAX_DETAIL_CHARACTERS else f"{detail[:MAX_DETAIL_CHARACTERS]}..."
    problem = Problem(title=HTTPStatus(status).phrase, status=status, detail="", request_id=request_id)
    return json.dumps({**problem.model_dump(), "detail": shown}).encode()

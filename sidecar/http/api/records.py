"""Writes a record to a delay topic, for programs that use HTTP and are no Kafka clients.

A schedule takes the role ``produce``. A control (``deliver-cancel``, ``-replace``, ``-move``) takes ``operate`` on each
path, since it changes schedules that another caller has written. The name of a header alone decides, not its value.

A replacement also takes a condition, ``deliver-if-due``. Where no schedule is pending for that time, the router
delivers nothing. Without the condition the replacement would be a new schedule there, which is for ``produce`` alone.

A repeated call writes a second record: a caller that gets no answer looks before it asks again.
"""

import base64
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from index.protocol.control_headers import IF_DUE, NAMES, REPLACE
from index.protocol.headers import lowered
from sidecar.http.api import bodies
from sidecar.http.api.backend import Backend
from sidecar.http.api.shapes import JSON_ONLY, TopicName
from sidecar.http.guard import refuse_role
from sidecar.http.problems import Refusal
from sidecar.http.tokens import Caller, Role
from sidecar.operations.controls.orders import NewRecord
from sidecar.operations.status.answers import Answer

_BASE64: Final = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


class Base64(Answer):
    """Bytes that are no text."""

    base64: Annotated[str, Field(pattern=_BASE64, examples=["AAEC"])]


Content = Annotated[str | Base64 | None, Field(description="Text, or bytes in base 64; null differs from empty")]


class RecordHeader(Answer):
    """One header; order counts, and a name may be there twice."""

    # Every Kafka client hands a name of this form over unchanged.
    name: Annotated[str, Field(pattern=r"^[!-~]([ -~]*[!-~])?$", max_length=249, examples=["deliver-after"])]
    value: Content = None


class RecordOrder(Answer):
    """A record for a delay topic."""

    key: Content = None
    value: Content = None
    headers: Annotated[tuple[RecordHeader, ...], Field(max_length=100)] = ()


class RecordWrittenAnswer(Answer):
    """Place of the record in its delay topic, its due time and its targets."""

    topic: str
    partition: int
    offset: int
    due_ms: int = Field(description="Milliseconds since 1970; of a cron schedule, the time when it begins")
    targets: tuple[str, ...]


def routes(backend: Backend) -> APIRouter:
    """Return the path ``/topics/{topic}/records``."""
    router = APIRouter(tags=["records"])

    @router.post(
        "/topics/{topic}/records",
        response_model=RecordWrittenAnswer,
        status_code=HTTPStatus.CREATED,
        dependencies=JSON_ONLY,
    )
    async def write_record(request: Request, topic: TopicName, body: RecordOrder) -> Response:
        """Write a record to a delay topic, unless it would be rejected there; twice when it is asked for twice.

        A control (deliver-cancel, -replace, -move, -if-due) takes the role operate, and deliver-replace takes
        deliver-if-due beside it.
        """
        require_role(request.state.caller, body)
        backend.require_topic(topic)
        written = await backend.produce(backend.operations.write_record, topic, record_of(body))
        return bodies.whole(RecordWrittenAnswer(**asdict(written)), HTTPStatus.CREATED)

    return router


def require_role(caller: Caller, body: RecordOrder) -> None:
    """Raise a Refusal unless the caller's role may write a record with these headers."""
    controls = {lowered(each.name): each.name for each in body.headers if lowered(each.name) in NAMES}
    if not controls:
        refuse_role(caller, Role.PRODUCE)
        return
    refuse_role(caller, Role.OPERATE, f"a record with {next(iter(controls.values()))}, which changes other schedules,")
    if REPLACE in controls and IF_DUE not in controls:
        raise without_condition(caller, IF_DUE)


def without_condition(caller: Caller, condition: str) -> Refusal:
    """Return the refusal of a replacement without a condition, which may become a new schedule."""
    why = f"this token may only {caller.role.value}, and a replacement without {condition} may be a new schedule"
    remedy = f"give {condition}, the time for which the pending schedule was requested"
    return Refusal(HTTPStatus.FORBIDDEN, f"{why}: {remedy}; a new schedule takes one of {Role.PRODUCE.value}")


def record_of(body: RecordOrder) -> NewRecord:
    """Return the record of a request."""
    return NewRecord(
        bytes_of(body.key), bytes_of(body.value), [(each.name, bytes_of(each.value)) for each in body.headers]
    )


def bytes_of(content: str | Base64 | None) -> bytes | None:
    """Return the bytes of a key or a value; None is null."""
    if isinstance(content, Base64):
        return base64.b64decode(content.base64)
    return None if content is None else content.encode()

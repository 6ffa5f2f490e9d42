"""Rejected records: how many by which code, which they are, and driving them again."""

from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final

from confluent_kafka import KafkaException
from fastapi import APIRouter, Query
from starlette.responses import Response

from index.errors import DelayRouterError
from index.schedule import Reason
from sidecar.admission.problems import Refusal
from sidecar.api import bodies
from sidecar.api.backend import Backend, RejectedRecords
from sidecar.api.rejected_shapes import (
    MOST_LISTED,
    CodeAnswer,
    CodesAnswer,
    Id,
    MillisecondsText,
    Position,
    RedriveAnswer,
    RedriveOrder,
    RejectedPageAnswer,
)
from sidecar.api.shapes import JSON_ONLY, TopicName
from sidecar.rejected.counting import Counted
from sidecar.rejected.log import OutOfTimeError
from sidecar.rejected.redriving import AnotherRunError, Order, Report
from sidecar.rejected.selection import HeaderChanges, Selection

REDRIVE_FOR_S: Final = 12.0
"""Leaves time for fencing and for the last commit within the time of a call."""

_Codes = Annotated[list[Reason], Query(max_length=len(Reason), description="Rejected for one of these reasons")]
_Ids = Annotated[list[Id], Query(max_length=100, description="With one of these deliver-ids")]
_Since = Annotated[MillisecondsText | None, Query(description="Rejected then or later; milliseconds since 1970")]
_Until = Annotated[MillisecondsText | None, Query(description="Rejected before; milliseconds since 1970")]
_Most = Annotated[int, Query(ge=1, le=MOST_LISTED)]
_From = Annotated[Position, Query(alias="from", description="next_from of the page before")]


def routes(backend: Backend) -> APIRouter:
    """Paths below ``/topics/{topic}/rejected``."""
    router = APIRouter(tags=["rejected"])

    @router.get("/topics/{topic}/rejected", response_model=RejectedPageAnswer)
    async def list_rejected(
        topic: TopicName,
        code: _Codes = [],  # noqa: B006 - FastAPI copies it
        id: _Ids = [],  # noqa: A002, B006 - the name in the query
        since_ms: _Since = None,
        until_ms: _Until = None,
        limit: _Most = 100,
        begin: _From = "0/0",
    ) -> Response:
        """Rejected records of a delay topic, with code and reason; without keys, values and headers."""
        backend.require_topic(topic)
        selection = _selection(topic, code, id, _number(since_ms), _number(until_ms))
        partition, offset = begin.split("/")
        page = await backend.ask(backend.rejected.page, selection, (int(partition), int(offset)), limit)
        return bodies.whole(RejectedPageAnswer.model_validate(page.as_json()))

    @router.get("/topics/{topic}/rejected/codes", response_model=CodesAnswer)
    async def count_rejected(topic: TopicName) -> Response:
        """How many records of a delay topic were rejected, by code; of the newest 20,000 in the rejected topic."""
        backend.require_topic(topic)
        found = await backend.ask(_counts, backend.rejected, topic)
        codes = tuple(
            CodeAnswer(code=code, records=each.records, redriven=each.redriven, last_ms=each.last_ms)
            for code, each in found.codes.items()
        )
        return bodies.whole(CodesAnswer(topic=topic, codes=codes, is_whole=found.is_whole))

    @router.post("/topics/{topic}/rejected/redrive", response_model=RedriveAnswer, dependencies=JSON_ONLY)
    async def redrive_rejected(topic: TopicName, body: RedriveOrder) -> Response:
        """Copy rejected records back into their delay topic, each exactly once; safe to repeat."""
        backend.require_topic(topic)
        report = await backend.redrive(partial(_redrive, backend.rejected, topic, body))
        return bodies.whole(RedriveAnswer.model_validate({**report.as_json(), "dry_run": body.dry_run}))

    return router


def _selection(
    topic: str, codes: Iterable[Reason], ids: Iterable[str], since_ms: int | None, until_ms: int | None
) -> Selection:
    return Selection(topic, frozenset(map(str, codes)), frozenset(each.encode() for each in ids), since_ms, until_ms)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _counts(rejected: RejectedRecords, topic: str) -> Counted:
    try:
        return rejected.counts(topic)
    except OutOfTimeError as error:
        raise Refusal(HTTPStatus.GATEWAY_TIMEOUT, str(error)) from None


def _redrive(rejected: RejectedRecords, topic: str, body: RedriveOrder) -> Report:
    selection = _selection(topic, body.codes, body.ids, body.since_ms, body.until_ms)
    changes = HeaderChanges(body.drop_headers, tuple((put.name, put.value.encode()) for put in body.set_headers))
    order = Order(selection, changes, body.max_redriven, body.most, body.dry_run, REDRIVE_FOR_S)
    try:
        return rejected.redrive(order)
    except AnotherRunError as error:
        raise Refusal(HTTPStatus.CONFLICT, str(error)) from None
    except OutOfTimeError as error:
        remedy = "nothing was driven; the command has the time: delay-router rejected redrive"
        raise Refusal(HTTPStatus.GATEWAY_TIMEOUT, f"{error}; {remedy}") from None
    except DelayRouterError as error:
        # Its text may name brokers, and the answer only the code.
        raise (error.__cause__ if isinstance(error.__cause__, KafkaException) else error) from None

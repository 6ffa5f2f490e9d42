"""Paths of rejected records: counts by code, lists, and driving them again.

Answers have no keys and no values of records. Of the headers they have the ``deliver-id``, and the control header that
a message quotes.
"""

from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final

from confluent_kafka import KafkaException
from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from index.errors import DelayRouterError
from index.protocol.schedule import Reason
from sidecar.http.api import bodies
from sidecar.http.api.backend import Backend, RejectedRecords
from sidecar.http.api.shapes import JSON_ONLY, Id, MillisecondsText, Offset, TopicName, milliseconds
from sidecar.http.problems import Refusal
from sidecar.operations.rejected.counting import Counted
from sidecar.operations.rejected.log import OutOfTimeError
from sidecar.operations.rejected.redriving import AnotherRunError, Redrive, RedriveReport
from sidecar.operations.rejected.selection import MOST_REDRIVEN, HeaderChanges, RejectedSelection
from sidecar.operations.status.answers import Answer

REDRIVE_FOR_S: Final = 12.0
"""Time for driving in one call; it leaves time for fencing and for the last commit."""

MOST_LISTED: Final = 500
MOST_DRIVEN: Final = 5_000
"""Most records of one call, which has to end in time; more take more calls, or the command line."""

MAX_HEADER_CHARACTERS: Final = 8_192

Position = Annotated[
    str,
    Field(pattern=r"^[0-9]{1,9}/[0-9]{1,18}$", description="Partition and offset in the rejected topic"),
]
Milliseconds = Annotated[Offset, Field(description="Milliseconds since 1970")]

HeaderName = Annotated[str, Field(min_length=1, max_length=249)]


class RejectedRecordAnswer(Answer):
    """One rejected record."""

    partition: int = Field(description="Of the rejected topic")
    offset: int = Field(description="In the rejected topic")
    rejected_ms: int
    source: str = Field(description="topic/partition/offset where it lay in the delay topic")
    code: str
    message: str = Field(description="Why; quotes the control header that cannot be what it is")
    id: str | None = Field(description="Its deliver-id")
    redriven_before: int = Field(description="How often it had been driven again before it was rejected this time")
    is_redriven: bool | None = Field(description="Whether it was driven again since; null: not known")
    obstacle: str = Field(description="Why it cannot be driven again; empty where it can")


class RejectedPageAnswer(Answer):
    """Rejected records in the order of the rejected topic."""

    records: tuple[RejectedRecordAnswer, ...]
    next_from: str | None = Field(description="Where the next page begins; null behind the last record")


class CodeAnswer(Answer):
    """What was rejected with one code."""

    code: str
    records: int
    redriven: int = Field(description="Of these, driven again since")
    last_ms: int = Field(description="When the newest was rejected")


class CodesAnswer(Answer):
    """What lies in the rejected topic, by code."""

    topic: str
    codes: tuple[CodeAnswer, ...]
    is_whole: bool = Field(description="False: older records lie in the rejected topic, and are not counted")


class SetHeader(Answer):
    """A header in place of all of that name."""

    name: HeaderName
    value: Annotated[str, Field(max_length=MAX_HEADER_CHARACTERS)]


class RedriveOrder(Answer):
    """Which records to drive again, and how; what is left out selects all."""

    codes: Annotated[tuple[Reason, ...], Field(max_length=len(Reason))] = ()
    ids: Annotated[tuple[Id, ...], Field(max_length=100)] = ()
    since_ms: Milliseconds | None = None
    until_ms: Milliseconds | None = None
    set_headers: Annotated[tuple[SetHeader, ...], Field(max_length=20)] = ()
    drop_headers: Annotated[tuple[HeaderName, ...], Field(max_length=20)] = ()
    most: Annotated[int, Field(ge=1, le=MOST_DRIVEN, description="Drive so many at most; the others wait")] = 1_000
    max_redriven: Annotated[int, Field(ge=1, le=1_000, description="Leave what was driven so often")] = MOST_REDRIVEN
    dry_run: bool = Field(False, description="Only count")


class RedriveAnswer(Answer):
    """What became of the selected records."""

    selected: int
    already_redriven: int
    over_limit: int = Field(description="Driven so often before that they stay")
    not_whole: int = Field(description="The rejected topic does not have all of them")
    to_drive: int = Field(description="Chosen for this call")
    driven: int = Field(description="Less than to_drive: there was no time for more, so ask again")
    dry_run: bool


_Codes = Annotated[list[Reason], Query(max_length=len(Reason), description="Rejected for one of these reasons")]
_Ids = Annotated[list[Id], Query(max_length=100, description="With one of these deliver-ids")]
_Since = Annotated[MillisecondsText | None, Query(description="Rejected then or later; milliseconds since 1970")]
_Until = Annotated[MillisecondsText | None, Query(description="Rejected before; milliseconds since 1970")]
_Most = Annotated[int, Query(ge=1, le=MOST_LISTED)]
_From = Annotated[Position, Query(alias="from", description="next_from of the page before")]


def routes(backend: Backend) -> APIRouter:
    """Return the paths below ``/topics/{topic}/rejected``."""
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
        selection = _selection(topic, code, id, milliseconds(since_ms), milliseconds(until_ms))
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
) -> RejectedSelection:
    return RejectedSelection(
        topic, frozenset(map(str, codes)), frozenset(each.encode() for each in ids), since_ms, until_ms
    )


def _counts(rejected: RejectedRecords, topic: str) -> Counted:
    try:
        return rejected.counts(topic)
    except OutOfTimeError as error:
        raise Refusal(HTTPStatus.GATEWAY_TIMEOUT, str(error)) from None


def _redrive(rejected: RejectedRecords, topic: str, body: RedriveOrder) -> RedriveReport:
    selection = _selection(topic, body.codes, body.ids, body.since_ms, body.until_ms)
    changes = HeaderChanges(body.drop_headers, tuple((put.name, put.value.encode()) for put in body.set_headers))
    order = Redrive(selection, changes, body.max_redriven, body.most, body.dry_run, REDRIVE_FOR_S)
    try:
        return rejected.redrive(order)
    except AnotherRunError as error:
        raise Refusal(HTTPStatus.CONFLICT, str(error)) from None
    except OutOfTimeError as error:
        remedy = "nothing was driven; the command has the time: delay-router rejected redrive"
        raise Refusal(HTTPStatus.GATEWAY_TIMEOUT, f"{error}; {remedy}") from None
    except DelayRouterError as error:
        # The text of the error may name brokers, so the answer has only the code of its cause.
        raise (error.__cause__ if isinstance(error.__cause__, KafkaException) else error) from None

"""Paths of rejected records: counts by code, lists, and driving them again.

Answers have no keys and no values of records. Of the headers they have the ``deliver-id``, and the control header that
a message quotes.
"""

from collections.abc import Iterable
from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from index.protocol.schedule import Reason
from sidecar.http.api import bodies
from sidecar.http.api.backend import Backend
from sidecar.http.api.shapes import JSON_ONLY, Id, MillisecondsText, Offset, TopicName, milliseconds
from sidecar.operations.rejected.counting import Counted
from sidecar.operations.rejected.redriving import Redrive
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

    partition: int = Field(description="Partition in the rejected topic")
    offset: int = Field(description="Offset in the rejected topic")
    rejected_ms: int
    source: str = Field(description="topic/partition/offset of the record in the delay topic")
    code: str
    message: str = Field(description="Reason, which quotes the invalid control header")
    id: str | None = Field(description="deliver-id of the record")
    redriven_before: int = Field(description="Times that it was driven again before this rejection")
    is_redriven: bool | None = Field(description="True: it was driven again since; null: not known")
    obstacle: str = Field(description="Reason why it cannot be driven again; empty where it can")


class RejectedPageAnswer(Answer):
    """Rejected records in the order of the rejected topic."""

    records: tuple[RejectedRecordAnswer, ...]
    next_from: str | None = Field(description="Beginning of the next page; null after the last record")


class CodeAnswer(Answer):
    """Number of records rejected with one code."""

    code: str
    records: int
    redriven: int = Field(description="Number of these that were driven again since")
    last_ms: int = Field(description="Time when the newest was rejected")


class CodesAnswer(Answer):
    """Numbers of records in the rejected topic, by code."""

    topic: str
    codes: tuple[CodeAnswer, ...]
    is_whole: bool = Field(description="False: the rejected topic has older records, which are not counted")


class RejectedCountsAnswer(Answer):
    """Numbers of rejected records of every delay topic."""

    topics: tuple[CodesAnswer, ...] = Field(description="Without topics that could not be read, or not yet")


class SetHeader(Answer):
    """A header in place of all of that name."""

    name: HeaderName
    value: Annotated[str, Field(max_length=MAX_HEADER_CHARACTERS)]


class RedriveOrder(Answer):
    """Records to drive again, and changes in them; a field that is left out selects all."""

    codes: Annotated[tuple[Reason, ...], Field(max_length=len(Reason))] = ()
    ids: Annotated[tuple[Id, ...], Field(max_length=100)] = ()
    since_ms: Milliseconds | None = None
    until_ms: Milliseconds | None = None
    set_headers: Annotated[tuple[SetHeader, ...], Field(max_length=20)] = ()
    drop_headers: Annotated[tuple[HeaderName, ...], Field(max_length=20)] = ()
    most: Annotated[int, Field(ge=1, le=MOST_DRIVEN, description="Most records to drive; the others wait")] = 1_000
    max_redriven: Annotated[int, Field(ge=1, le=1_000, description="Leave records that were driven so often")] = (
        MOST_REDRIVEN
    )
    dry_run: bool = Field(False, description="Only count, and drive nothing")


class RedriveAnswer(Answer):
    """Numbers of the selected records, by outcome."""

    selected: int
    already_redriven: int
    over_limit: int = Field(description="Records that stay, as they were driven so often before")
    not_whole: int = Field(description="Records that the rejected topic does not have whole")
    to_drive: int = Field(description="Records chosen for this call")
    driven: int = Field(
        description="Records driven again; less than to_drive: there was no time for more, so ask again"
    )
    dry_run: bool


_Codes = Annotated[list[Reason], Query(max_length=len(Reason), description="Rejected for one of these reasons")]
_Ids = Annotated[list[Id], Query(max_length=100, description="With one of these deliver-ids")]
_Since = Annotated[MillisecondsText | None, Query(description="Rejected then or later; milliseconds since 1970")]
_Until = Annotated[MillisecondsText | None, Query(description="Rejected before; milliseconds since 1970")]
_Most = Annotated[int, Query(ge=1, le=MOST_LISTED)]
_From = Annotated[Position, Query(alias="from", description="next_from of the page before")]


def routes(backend: Backend) -> APIRouter:
    """Return the paths ``/rejected`` and below ``/topics/{topic}/rejected``."""
    router = APIRouter(tags=["rejected"])
    operations = backend.operations

    @router.get("/rejected", response_model=RejectedCountsAnswer)
    async def count_all_rejected() -> Response:
        """Count the rejected records of all delay topics, by code; where many must be read, in several calls."""
        found = await backend.ask(operations.rejected_counts)
        return bodies.whole(RejectedCountsAnswer(topics=tuple(_codes(name, each) for name, each in found.items())))

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
        page = await backend.ask(operations.rejected, selection, (int(partition), int(offset)), limit)
        return bodies.whole(RejectedPageAnswer.model_validate(page))

    @router.get("/topics/{topic}/rejected/codes", response_model=CodesAnswer)
    async def count_rejected(topic: TopicName) -> Response:
        """Count the rejected records of a delay topic, by code; of the newest 20,000 in the rejected topic."""
        backend.require_topic(topic)
        return bodies.whole(_codes(topic, await backend.ask(operations.rejected_codes, topic)))

    @router.post("/topics/{topic}/rejected/redrive", response_model=RedriveAnswer, dependencies=JSON_ONLY)
    async def redrive_rejected(topic: TopicName, body: RedriveOrder) -> Response:
        """Copy rejected records back into their delay topic, each exactly once; safe to repeat."""
        backend.require_topic(topic)
        report = await backend.redrive(lambda: operations.redrive(_order(topic, body), lambda _: None))
        return bodies.whole(RedriveAnswer.model_validate({**report, "dry_run": body.dry_run}))

    return router


def _codes(topic: str, found: Counted) -> CodesAnswer:
    codes = tuple(
        CodeAnswer(code=code, records=each.records, redriven=each.redriven, last_ms=each.last_ms)
        for code, each in found.codes.items()
    )
    return CodesAnswer(topic=topic, codes=codes, is_whole=found.is_whole)


def _selection(
    topic: str, codes: Iterable[Reason], ids: Iterable[str], since_ms: int | None, until_ms: int | None
) -> RejectedSelection:
    return RejectedSelection(
        topic, frozenset(map(str, codes)), frozenset(each.encode() for each in ids), since_ms, until_ms
    )


def _order(topic: str, body: RedriveOrder) -> Redrive:
    selection = _selection(topic, body.codes, body.ids, body.since_ms, body.until_ms)
    changes = HeaderChanges(body.drop_headers, tuple((put.name, put.value.encode()) for put in body.set_headers))
    return Redrive(selection, changes, body.max_redriven, body.most, body.dry_run, REDRIVE_FOR_S)

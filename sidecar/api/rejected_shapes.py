"""Shapes of what the paths of rejected records take and answer.

Neither keys nor values of records; of headers the ``deliver-id``, and the control header that a message quotes.
"""

from typing import Annotated, Final

from pydantic import Field

from index.schedule import Reason
from sidecar.api.shapes import Offset
from sidecar.rejected.selection import MOST_REDRIVEN
from sidecar.status.answers import Answer

MOST_LISTED: Final = 500
MOST_DRIVEN: Final = 5_000
"""In one call, which has to end in time; more takes more calls, or the command line."""

MAX_HEADER_CHARACTERS: Final = 8_192

Position = Annotated[
    str,
    Field(pattern=r"^[0-9]{1,9}/[0-9]{1,18}$", description="Partition and offset in the rejected topic"),
]
Id = Annotated[str, Field(min_length=1, max_length=512)]
Milliseconds = Annotated[Offset, Field(description="Milliseconds since 1970")]
MillisecondsText = Annotated[str, Field(pattern=r"^[0-9]{1,16}$", description="Milliseconds since 1970")]
"""In a query, where a number of JSON could also be spelled 30.0."""

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

"""Paths that show one record: of a delay topic, or of a rejected topic.

Every reader gets the names of the headers and the size of each part. Only a token with ``+payload`` gets the key and
the values of headers, and only it may ask for the value, by a path of its own. Values of headers whose names
``admin.masked_headers`` matches are for nobody. All parts are cut at a bound, and the log has every such request
(:mod:`sidecar.http.guard`).
"""

import codecs
import json
import re
from collections.abc import Callable
from fnmatch import translate
from http import HTTPStatus
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from index.protocol.record import Record
from index.rules.unreadable import DELAY_UNREADABLE_HEADERS
from sidecar.config.listeners import AdminConfig
from sidecar.http.api import bodies
from sidecar.http.api.backend import Backend
from sidecar.http.api.shapes import MillisecondsText, Offset, Partition, TopicName, milliseconds
from sidecar.http.problems import Refusal
from sidecar.operations.status.answers import Answer

SHOWN_VALUE_BYTES: Final = 4_096
SHOWN_HEADER_BYTES: Final = 1_024
"""Bound on the shown bytes of a header's value, and of a key."""

SHOWN_HEADERS: Final = 100
SHOWN_NAME_CHARACTERS: Final = 249

# Control characters mark bytes that are no text, though they may be valid UTF-8.
_NO_TEXT: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

_Due = Annotated[
    MillisecondsText | None,
    Query(description="Due time of a pending schedule, to find it where the delay topic has it no more"),
]


class PartAnswer(Answer):
    """A key, a value, or the value of a header."""

    form: Literal["null", "masked", "text", "json", "hex"] = Field(description="masked: this token may not see it")
    size_bytes: int
    shown: str = Field("", description="The text, or the bytes as hexadecimal digits; of a large part its beginning")
    is_cut: bool = Field(False, description="True: the part goes on behind what is shown")


class ShownHeader(Answer):
    """One header, in the order of the record."""

    name: str
    value: PartAnswer


class RecordHeadersAnswer(Answer):
    """One record without its value."""

    topic: str = Field(description="Delay topic")
    partition: int
    offset: int
    timestamp_ms: int
    key: PartAnswer
    headers: tuple[ShownHeader, ...]
    more_headers: int = Field(description="Number of headers behind the shown ones")
    value_bytes: int | None = Field(description="Size of the value; null: the value is null")


class RecordValueAnswer(Answer):
    """The value of one record."""

    topic: str = Field(description="Delay topic")
    partition: int
    offset: int
    value: PartAnswer


def routes(backend: Backend) -> APIRouter:
    """Return the paths ``…/headers`` and ``…/value`` below the place of a record."""
    router = APIRouter(tags=["content"])
    is_masked = masking(backend.config.admin)
    kept, rejected = "/topics/{topic}", "/topics/{topic}/rejected"
    place = "/partitions/{partition}/records/{offset}"

    async def read(topic: str, partition: int, offset: int, due_ms: str | None) -> Record:
        backend.require_topic(topic)
        return await backend.ask(backend.operations.record, topic, partition, offset, milliseconds(due_ms))

    async def read_rejected(topic: str, partition: int, offset: int) -> Record:
        backend.require_topic(topic)
        return await backend.ask(backend.operations.rejected_record, topic, partition, offset)

    @router.get(kept + place + "/headers", response_model=RecordHeadersAnswer)
    async def get_headers(
        request: Request, topic: TopicName, partition: Partition, offset: Offset, due_ms: _Due = None
    ) -> Response:
        """Headers of one record, and sizes; key and values of headers for a +payload token, others masked."""
        record = await read(topic, partition, offset, due_ms)
        return bodies.whole(_headers((topic, partition, offset), record, request, is_masked))

    @router.get(kept + place + "/value", response_model=RecordValueAnswer)
    async def get_value(
        request: Request, topic: TopicName, partition: Partition, offset: Offset, due_ms: _Due = None
    ) -> Response:
        """Value of one record, its first 4 KiB, for a +payload token only."""
        _require_payload(request)
        record = await read(topic, partition, offset, due_ms)
        return bodies.whole(_value((topic, partition, offset), record))

    @router.get(rejected + place + "/headers", response_model=RecordHeadersAnswer)
    async def get_rejected_headers(
        request: Request, topic: TopicName, partition: Partition, offset: Offset
    ) -> Response:
        """Headers of a rejected record, by its place in the rejected topic, as for a record of the delay topic."""
        record = await read_rejected(topic, partition, offset)
        return bodies.whole(_headers((topic, partition, offset), record, request, is_masked))

    @router.get(rejected + place + "/value", response_model=RecordValueAnswer)
    async def get_rejected_value(request: Request, topic: TopicName, partition: Partition, offset: Offset) -> Response:
        """Value of a rejected record, its first 4 KiB, for a +payload token only."""
        _require_payload(request)
        record = await read_rejected(topic, partition, offset)
        return bodies.whole(_value((topic, partition, offset), record))

    return router


def _require_payload(request: Request) -> None:
    if not request.state.caller.sees_payload:
        raise Refusal(HTTPStatus.FORBIDDEN, "this token may not see the content of records: values are for +payload")


def masking(admin: AdminConfig) -> Callable[[str], bool]:
    """Return a function that says whether a header of a name is masked for everybody; case does not count."""
    masked = re.compile("|".join(map(translate, (*admin.masked_headers, DELAY_UNREADABLE_HEADERS))))
    return lambda name: masked.match(name.lower()) is not None


def _headers(
    place: tuple[str, int, int], record: Record, request: Request, is_masked: Callable[[str], bool]
) -> RecordHeadersAnswer:
    topic, partition, offset = place
    sees = request.state.caller.sees_payload
    headers = tuple(
        ShownHeader(
            name=name[:SHOWN_NAME_CHARACTERS],
            value=part_of(value, SHOWN_HEADER_BYTES) if sees and not is_masked(name) else masked_part(value),
        )
        for name, value in record.headers[:SHOWN_HEADERS]
    )
    return RecordHeadersAnswer(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=record.timestamp_ms,
        key=part_of(record.key, SHOWN_HEADER_BYTES) if sees else masked_part(record.key),
        headers=headers,
        more_headers=len(record.headers) - len(headers),
        value_bytes=None if record.value is None else len(record.value),
    )


def _value(place: tuple[str, int, int], record: Record) -> RecordValueAnswer:
    topic, partition, offset = place
    return RecordValueAnswer(
        topic=topic, partition=partition, offset=offset, value=part_of(record.value, SHOWN_VALUE_BYTES)
    )


def masked_part(content: bytes | None) -> PartAnswer:
    """Return the size of a part and nothing else.

    >>> masked_part(b"hunter2")
    PartAnswer(form='masked', size_bytes=7, shown='', is_cut=False)
    """
    return PartAnswer(form="null", size_bytes=0) if content is None else _part("masked", content, "", 0)


def part_of(content: bytes | None, most: int) -> PartAnswer:
    r"""Return the first ``most`` bytes of a part, as text where they are text.

    >>> part_of(b'{"a": 1}', 9).form, part_of("\u20ac\u20ac".encode(), 4).shown, part_of(b"\x00\xff", 9).shown
    ('json', '€', '00ff')
    """
    if content is None:
        return masked_part(None)
    begin = content[:most]
    try:
        # The bound may cut a character in two.
        text = codecs.getincrementaldecoder("utf-8")().decode(begin, final=len(begin) == len(content))
    except UnicodeDecodeError:
        text = "\0"
    if _NO_TEXT.search(text):
        return _part("hex", content, begin.hex(), most)
    return _part("json" if len(begin) == len(content) and _is_json(text) else "text", content, text, most)


def _part(form: Literal["masked", "text", "json", "hex"], content: bytes, shown: str, most: int) -> PartAnswer:
    return PartAnswer(form=form, size_bytes=len(content), shown=shown, is_cut=bool(shown) and len(content) > most)


def _is_json(text: str) -> bool:
    """Say whether a text is an object or an array of JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True

"""Encodes answers as JSON, long ones in pieces: encoding holds the interpreter's lock, which releases need, too."""

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final

from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from sidecar.operations.status.answers import StatusAnswer, TopicAnswer

PARTITIONS_AT_ONCE: Final = 50
"""Partitions that are encoded at once, in a fraction of a millisecond."""

JSON: Final = "application/json"


def whole(answer: BaseModel, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return a short answer, encoded at once."""
    return Response(answer.model_dump_json(), status, media_type=JSON)


def of_topic(topic: TopicAnswer) -> Response:
    """Return the status of a delay topic in pieces, since it may have thousands of partitions."""
    return StreamingResponse(_topic(topic), media_type=JSON)


def of_status(status: StatusAnswer) -> Response:
    """Return the status of all delay topics in pieces."""
    return StreamingResponse(_status(status), media_type=JSON)


async def _status(status: StatusAnswer) -> AsyncIterator[bytes]:
    yield b'{"topics":['
    for number, topic in enumerate(status.topics):
        if number:
            yield b","
        async for piece in _topic(topic):
            yield piece
    yield b"]," + status.model_dump_json(exclude={"topics"}).encode()[1:]


async def _topic(topic: TopicAnswer) -> AsyncIterator[bytes]:
    yield topic.model_dump_json(exclude={"partitions"}).encode()[:-1] + b',"partitions":['
    for first in range(0, len(topic.partitions), PARTITIONS_AT_ONCE):
        some = topic.partitions[first : first + PARTITIONS_AT_ONCE]
        yield (b"," if first else b"") + b",".join(each.model_dump_json().encode() for each in some)
        await asyncio.sleep(0)
    yield b"]}"

"""Finds the rejection of a record, by the position that the record had in its delay topic."""

from functools import partial
from typing import NamedTuple

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from index.protocol.headers import DELAY_ERROR, DELAY_SOURCE
from index.protocol.schedule import Reason
from sidecar.config.model import Config
from sidecar.kafka.reading.handed_over import readable_headers
from sidecar.operations.status.searching import look_through


class FoundRejection(NamedTuple):
    """A rejected record."""

    reason: Reason


def rejected_code(
    config: Config, admin: AdminClient, rejected: str, source: str, from_ms: int
) -> FoundRejection | None:
    """Return the rejection of the record that came from ``source``, None when it was not rejected.

    Raise the errors of :func:`sidecar.operations.status.searching.look_through`.
    """
    return look_through(config, admin, rejected, from_ms, partial(_look, source.encode()))


def _look(source: bytes, message: Message) -> FoundRejection | None:
    # dict() keeps the last header of each name, and the router adds its own headers last.
    headers = dict(readable_headers(message))
    return FoundRejection(_reason(headers.get(DELAY_ERROR))) if headers.get(DELAY_SOURCE) == source else None


def _reason(code: bytes | None) -> Reason:
    try:
        return Reason((code or b"").decode())
    except ValueError:
        # A newer router has written a code that this version does not know.
        return Reason.INVALID_SCHEDULE

"""Whether a record was rejected, and why, by where it came from."""

from functools import partial
from typing import NamedTuple

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from index.headers import DELAY_ERROR, DELAY_SOURCE
from index.schedule import Reason
from sidecar.config.model import Config
from sidecar.intake.handed_over import readable_headers
from sidecar.status.searching import look_through


class Found(NamedTuple):
    """A rejected record."""

    reason: Reason


def rejected_code(config: Config, admin: AdminClient, rejected: str, source: str, from_ms: int) -> Found | None:
    """The reason of the record that came from ``source``, None when it was not rejected; errors as of the search."""
    return look_through(config, admin, rejected, from_ms, partial(_look, source.encode()))


def _look(source: bytes, message: Message) -> Found | None:
    # The last header of each name, which is the router's own; none of what it cannot have written.
    headers = dict(readable_headers(message))
    return Found(_reason(headers.get(DELAY_ERROR))) if headers.get(DELAY_SOURCE) == source else None


def _reason(code: bytes | None) -> Reason:
    try:
        return Reason((code or b"").decode())
    except ValueError:
        # Of a newer router.
        return Reason.INVALID_SCHEDULE

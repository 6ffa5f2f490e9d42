"""Finds the copy of a released record in its target topic, and the time when it was written there."""

from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient

from index.protocol.headers import DELAY_ERROR_MESSAGE, DELAY_SOURCE
from sidecar.config.model import Config
from sidecar.kafka.client.admin import MISSING
from sidecar.kafka.client.errors import error_of
from sidecar.kafka.reading.handed_over import readable_headers
from sidecar.operations.status.searching import NotFinished, look_through

LEAD_MS: Final = 1_000
"""Time before the due time at which the search begins. The router's clock decides when a record is due and, as a rule,
stamps its copy, so a short lead suffices; everything else that was written meanwhile is read, too.
"""


class Copy(NamedTuple):
    """A record of a target; ``timestamp_ms`` is the time of its release, unless the target is stamped otherwise."""

    place: str
    timestamp_ms: int


def released_copy(config: Config, admin: AdminClient, target: str, source: str, due_ms: int) -> Copy | None:
    """Return the copy of the record that came from ``source``; None where the search does not find it.

    The copy may exist all the same: behind the records that are read for one answer, or stamped with an earlier time.
    Raise KafkaException when the cluster does not answer.
    """
    try:
        return look_through(config, admin, target, max(0, due_ms - LEAD_MS), partial(_look, source.encode()))
    except NotFinished:
        return None
    except KafkaException as exception:
        if error_of(exception).code() not in {*MISSING, KafkaError.TOPIC_AUTHORIZATION_FAILED}:
            raise
        return None


def _look(source: bytes, message: Message) -> Copy | None:
    headers = readable_headers(message)
    # The last header of a name is the router's own.
    last = max((number for number, (name, _) in enumerate(headers) if name == DELAY_SOURCE), default=-1)
    if last < 0 or headers[last][1] != source:
        return None
    if last and headers[last - 1][0] == DELAY_ERROR_MESSAGE:
        # Somebody has copied it from the rejected topic.
        return None
    return Copy(f"{message.topic()}/{message.partition()}/{message.offset()}", message.timestamp()[1])

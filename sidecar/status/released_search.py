"""Where the copy of a released record is in its target, and when it was written there."""

from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient

from index.headers import DELAY_SOURCE
from sidecar.config.model import Config
from sidecar.intake.handed_over import readable_headers
from sidecar.kafka.admin import MISSING
from sidecar.kafka.errors import error_of
from sidecar.status.searching import NotFinished, look_through

LEAD_MS: Final = 1_000
"""What is due is decided and, as a rule, stamped by the router's clock, so the search begins shortly before that: what
else was written meanwhile is read, too.
"""


class Copy(NamedTuple):
    """A record of a target; ``timestamp_ms`` is when it was released, unless the target is stamped otherwise."""

    place: str
    timestamp_ms: int


def released_copy(config: Config, admin: AdminClient, target: str, source: str, due_ms: int) -> Copy | None:
    """The copy of the record that came from ``source``; None where it is not found in what may be read for one answer.

    It may be there all the same: beyond that, or stamped with an earlier time. KafkaException when the cluster does not
    answer.
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
    # The last header of the name, which is the router's own.
    if dict(readable_headers(message)).get(DELAY_SOURCE) != source:
        return None
    return Copy(f"{message.topic()}/{message.partition()}/{message.offset()}", message.timestamp()[1])

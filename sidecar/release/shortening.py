"""Makes a rejected record small enough for a rejected topic that refuses it: its largest part goes first.

Rejecting a record must never hold up its partition, whatever limits the rejected topic has. What is taken away is said
in the message, and the whole record is still where ``delay-source`` says.
"""

import re
from typing import Final

from index.record import Record
from index.schedule import Rejection
from sidecar.payload.records import Refused

_SAID: Final = re.compile(
    r"\(the rejected topic refused its (?:value|headers|key) of [0-9]+ bytes; see delay-source\)\Z"
)


def is_shortened(message: str) -> bool:
    """Whether a rejected record with this message has lost a part so."""
    return _SAID.search(message) is not None


def shortened(refused: Refused) -> Refused | None:
    """The same without its value, its headers or its key, whichever is largest; None when nothing is left to take."""
    record = refused.record
    sizes = {
        "value": len(record.value or b""),
        "headers": sum(len(name) + len(value or b"") for name, value in record.headers),
        "key": len(record.key or b""),
    }
    largest = max(sizes, key=lambda part: sizes[part])
    if not sizes[largest]:
        return None
    reason, message = refused.rejection
    message = f"{message} (the rejected topic refused its {largest} of {sizes[largest]} bytes; see delay-source)"
    return Refused(Rejection(reason, message), _without(record, largest))


def _without(record: Record, part: str) -> Record:
    match part:
        case "value":
            return record._replace(value=None)
        case "headers":
            return record._replace(headers=())
        case _:
            return record._replace(key=None)

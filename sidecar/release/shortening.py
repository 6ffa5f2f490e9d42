"""Makes a rejected record, or a receipt, small enough for a topic that refuses it: its largest part goes first.

Neither may ever hold up its partition, whatever limits those topics have. What is taken away is said in the message, or
in the receipt, and the whole record is still where ``delay-source`` says.
"""

import re
from collections.abc import Callable, Container, Iterable
from typing import Final, TypeVar

from index.receipts import Part, Receipt, receipt_value
from index.record import Record
from index.schedule import Rejection
from sidecar.payload.records import Refused

T = TypeVar("T")

_SAID: Final = re.compile(
    r"\(the rejected topic refused its (?:value|headers|key) of [0-9]+ bytes; see delay-source\)\Z"
)


def is_shortened(message: str) -> bool:
    """Whether a rejected record with this message has lost a part so."""
    return _SAID.search(message) is not None


def shortened_where(
    written: Iterable[tuple[int, T]], refused: Container[int], shorten: Callable[[T], T | None]
) -> dict[int, T] | None:
    """Those that are refused, by offset, made shorter; None where one of them cannot be."""
    shorter: dict[int, T] = {}
    for offset, each in written:
        if offset not in refused:
            continue
        made = shorten(each)
        if made is None:
            return None
        shorter[offset] = made
    return shorter


def shortened(refused: Refused) -> Refused | None:
    """The same without its value, its headers or its key, whichever is largest; None when nothing is left to take."""
    record = refused.record
    sizes = {
        "value": len(record.value or b""),
        "headers": _header_bytes(record),
        "key": len(record.key or b""),
    }
    largest = max(sizes, key=lambda part: sizes[part])
    if not sizes[largest]:
        return None
    reason, message = refused.rejection
    message = f"{message} (the rejected topic refused its {largest} of {sizes[largest]} bytes; see delay-source)"
    return Refused(Rejection(reason, message), _without(record, largest))


def shortened_receipt(receipt: Receipt) -> Receipt | None:
    """The same without the headers of its control or without what it cancelled, whichever is larger; None: neither.

    What it cancelled is as cancelled as before: the receipt still says how many there were.
    """
    sizes = {
        Part.HEADERS: _header_bytes(receipt.record),
        Part.CANCELLED: len(receipt_value(receipt)) if receipt.cancelled else 0,
    }
    left = {part: size for part, size in sizes.items() if size and part not in receipt.omitted}
    if not left:
        return None
    return receipt._replace(omitted=(*receipt.omitted, max(left, key=lambda part: left[part])))


def _header_bytes(record: Record) -> int:
    return sum(len(name) + len(value or b"") for name, value in record.headers)


def _without(record: Record, part: str) -> Record:
    match part:
        case "value":
            return record._replace(value=None)
        case "headers":
            return record._replace(headers=())
        case _:
            return record._replace(key=None)

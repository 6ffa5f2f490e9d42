"""Shortens a rejected record or a receipt for a topic that refuses it: the largest part goes first.

A rejected record or a receipt must never hold up its partition, under any limits of its topic. The message, or the
receipt, names the part that is gone. The whole record is still at the place in ``delay-source``.
"""

import re
from collections.abc import Callable, Container, Iterable
from typing import Final, TypeVar

from index.named.receipts import Part, Receipt, receipt_value
from index.protocol.record import Record
from index.protocol.schedule import Rejection
from sidecar.engine.payload.records import Refused

T = TypeVar("T")

_SAID: Final = re.compile(
    r"\(the rejected topic refused its (?:value|headers|key) of [0-9]+ bytes; see delay-source\)\Z"
)


def is_shortened(message: str) -> bool:
    """Say whether a rejected record with this message was shortened."""
    return _SAID.search(message) is not None


def shortened_where(
    written: Iterable[tuple[int, T]], refused: Container[int], shorten: Callable[[T], T | None]
) -> dict[int, T] | None:
    """Return the refused values in a shorter form, by offset; None if one of them cannot be shortened."""
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
    """Return a rejected record without its largest part: value, headers or key; None if all three are empty."""
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
    """Return a receipt without its larger part: headers of the control or cancelled schedules; None if none is left.

    The schedules stay cancelled, and the receipt still tells their number.
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

"""The fields of a receipt, and the fields that stay when it must be short."""

import json

from index.named.receipts import Part, Receipt, receipt_of, receipt_record
from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.schedule import Action, Control

CANCELLED = (Position(9_000, 4), Position(8_000, 5))
CONTROL = Record(b"key", b"payload", [("deliver-cancel", b"order-7"), ("trace", b"1")], 77)
RECEIPT = receipt_of(12, Control(Action.CANCEL, b"order-7"), CANCELLED, None, CONTROL)


def said(receipt: Receipt) -> object:
    return json.loads(receipt_record(receipt).value or b"")


def test_its_key_is_the_id_and_its_headers_are_those_of_the_control() -> None:
    record = receipt_record(RECEIPT)
    assert (record.key, record.headers, record.timestamp_ms) == (b"order-7", CONTROL.headers, 77)
    assert said(RECEIPT) == {
        "action": "cancel",
        "outcome": "cancelled",
        "cancelled": [{"offset": 4, "due": 9_000}, {"offset": 5, "due": 8_000}],
        "due": None,
    }


def test_what_is_left_out_is_told_and_masked_all_the_same() -> None:
    brief = RECEIPT._replace(omitted=(Part.CANCELLED, Part.HEADERS))
    assert receipt_record(brief).headers == ()
    assert said(brief) == {
        "action": "cancel",
        "outcome": "cancelled",
        "cancelled": [],
        "due": None,
        "omitted": {"cancelled": 2, "headers": 2},
    }
    assert brief.masks == RECEIPT.masks == (4, 5)

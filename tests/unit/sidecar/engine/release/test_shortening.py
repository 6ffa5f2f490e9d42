"""A rejected record or a receipt that its topic refuses loses its largest part, until nothing is left to lose."""

from index.named.receipts import ControlOutcome, Part, Receipt
from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.schedule import Action, Control, Reason, Rejection
from sidecar.engine.payload.records import Refused
from sidecar.engine.release.shortening import is_shortened, shortened, shortened_receipt, shortened_where

NO = Rejection(Reason.TARGET_UNKNOWN, "no such topic")


def test_the_largest_part_goes_first_and_the_message_names_each() -> None:
    refused: Refused | None = Refused(NO, Record(b"keys", b"value", [("n", b"12"), ("m", None)], 7))
    assert refused is not None
    assert not is_shortened(refused.rejection.message)
    told: list[str] = []
    records: list[Record] = []
    while (refused := shortened(refused)) is not None:
        assert is_shortened(refused.rejection.message)
        told.append(refused.rejection.message)
        records.append(refused.record)
    assert records == [
        Record(b"keys", None, [("n", b"12"), ("m", None)], 7),
        Record(b"keys", None, (), 7),
        Record(None, None, (), 7),
    ]
    assert told[0] == "no such topic (the rejected topic refused its value of 5 bytes; see delay-source)"
    assert told[1] == f"{told[0]} (the rejected topic refused its headers of 4 bytes; see delay-source)"
    assert told[2] == f"{told[1]} (the rejected topic refused its key of 4 bytes; see delay-source)"


def test_a_receipt_loses_its_headers_or_its_list_and_then_the_other() -> None:
    def receipt(header: bytes, *offsets: int) -> Receipt:
        control, record = Control(Action.CANCEL, b"order-7"), Record(None, None, [("trace", header)], 7)
        cancelled = tuple(Position(5_000, offset) for offset in offsets)
        return Receipt(9, control, ControlOutcome.CANCELLED, cancelled, None, record)

    def lost(made: Receipt) -> list[tuple[Part, ...]]:
        parts = []
        left: Receipt | None = made
        while left is not None and (left := shortened_receipt(left)) is not None:
            parts.append(left.omitted)
        return parts

    assert lost(receipt(b"x" * 1_000, 1)) == [(Part.HEADERS,), (Part.HEADERS, Part.CANCELLED)]
    assert lost(receipt(b"x", *range(100))) == [(Part.CANCELLED,), (Part.CANCELLED, Part.HEADERS)]
    assert lost(receipt(b"x")) == [(Part.HEADERS,)]
    assert lost(receipt(b"")) == [(Part.HEADERS,)], "the name of a header counts, too"


def test_only_refused_ones_are_shortened_and_all_of_them_can_be() -> None:
    long, empty = Refused(NO, Record(b"k", None, (), 7)), Refused(NO, Record(None, None, (), 7))
    assert shortened_where([(1, long), (2, empty)], {1, 9}, shortened) == {1: shortened(long)}
    assert shortened_where([(2, empty), (1, long)], {1, 2}, shortened) is None
    assert shortened_where([(1, long)], set(), shortened) == {}

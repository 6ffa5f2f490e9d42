"""Notes in transit (:mod:`index.named.transit`) in the state topic: one record for the appended records of a
transaction.

It is written by that transaction, and removed by the one that moves C past the last of it. The key names the
transaction and the lot, where there are very many.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from index.errors import FormatError
from index.named.places import HASH_BYTES
from index.named.transit import InTransit, Lot, named_lots
from index.pending.progress import Position
from snapshots.envelope import Kind, key_text, unwrap, wrap
from snapshots.offsets import MAX_OFFSET
from snapshots.proto import state_pb2

TRANSIT_PREFIX: Final = b"transit/"


def transit_key(lot: Lot) -> bytes:
    """Key of one lot."""
    return b"%b%020d/%d" % (TRANSIT_PREFIX, *lot)


def transit_keys(number: int, count: int) -> list[bytes]:
    """Return the keys under which so many notes of a transaction are stored."""
    return [transit_key(lot) for lot in named_lots(number, count)]


def encode_transit(lot: Lot, notes: Sequence[InTransit]) -> tuple[bytes, bytes]:
    """Key and value of one lot, which has one note at least."""
    message = state_pb2.Transit(
        number=lot[0],
        part=lot[1],
        notes=[
            state_pb2.InTransit(offset=place.offset, due_ms=place.due_ms, id_hash=id_hash) for place, id_hash in notes
        ],
    )
    return transit_key(lot), wrap(Kind.TRANSIT, message.SerializeToString())


def decode_transit(stored: Iterable[tuple[bytes, bytes]]) -> dict[Lot, tuple[InTransit, ...]]:
    """Decode all lots of a partition; FormatError names the fault."""
    lots: dict[Lot, tuple[InTransit, ...]] = {}
    for key, value in stored:
        try:
            lot, notes = parse_transit(value)
        except FormatError as error:
            raise FormatError(f"record {key_text(key)} of the state topic: {error}") from error
        if key != transit_key(lot):
            raise FormatError(f"record {key_text(key)} of the state topic holds lot {lot[1]} of transaction {lot[0]}")
        lots[lot] = notes
    return lots


def parse_transit(stored: bytes) -> tuple[Lot, tuple[InTransit, ...]]:
    """One lot, in the order of the log; FormatError on anything else."""
    message = state_pb2.Transit()
    try:
        message.ParseFromString(unwrap(Kind.TRANSIT, stored))
    except DecodeError as error:
        raise FormatError(str(error)) from error
    notes = tuple(InTransit(Position(n.due_ms, n.offset), n.id_hash) for n in message.notes)
    offsets = [note.place.offset for note in notes]
    if not notes or offsets != sorted(set(offsets)) or not 0 <= offsets[0] <= offsets[-1] <= MAX_OFFSET:
        raise FormatError("the records in transit are none, or not in the order of the log")
    for (due_ms, offset), id_hash in notes:
        if due_ms < 0 or len(id_hash) != HASH_BYTES:
            raise FormatError(f"at offset {offset} nothing can be in transit that is due at {due_ms}")
    return (message.number, message.part), notes

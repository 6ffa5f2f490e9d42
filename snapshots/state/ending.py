"""The note that ``delay-router end-transaction`` has begun to end a forgotten transaction of a delay partition.

While the note is there, no router serves the partition: the transaction may be aborted by now, and its committed
records not yet be written again. The command removes the note in the transaction that writes them.

::

    key      ending
    value    an envelope with one ``Ending`` of ``state.proto``
"""

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from index.errors import FormatError
from snapshots.envelope import Kind, unwrap, wrap
from snapshots.proto import state_pb2

ENDING_KEY: Final = b"ending"


class Ending(NamedTuple):
    """The transaction that an operator ends: its place, its offsets [from_offset, to_offset), outcome and producer."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    committed: bool
    producer_id: int


def encode_ending(ending: Ending) -> bytes:
    """Return the value of the note."""
    topic, partition, from_offset, to_offset, committed, producer_id = ending
    message = state_pb2.Ending(
        topic=topic,
        partition=partition,
        from_offset=from_offset,
        to_offset=to_offset,
        committed=committed,
        producer_id=producer_id,
    )
    return wrap(Kind.ENDING, message.SerializeToString())


def decode_ending(value: bytes) -> Ending:
    """Return the note; FormatError when the value cannot be trusted."""
    message = state_pb2.Ending()
    try:
        message.ParseFromString(unwrap(Kind.ENDING, value))
    except (FormatError, DecodeError) as error:
        raise FormatError(f"record {ENDING_KEY.decode()!r} of the state topic: {error}") from error
    offsets = message.from_offset, message.to_offset
    found = Ending(message.topic, message.partition, *offsets, message.committed, message.producer_id)
    if not found.topic or found.partition < 0 or not 0 <= found.from_offset < found.to_offset:
        raise FormatError(f"record {ENDING_KEY.decode()!r} of the state topic names no range of a partition: {found}")
    return found

"""Records that were committed and that nobody sees: kept whole in the state topic until they are written again.

When the brokers lose the commit marker of one partition (KAFKA-20734), what a committed transaction wrote there stays
hidden, and only its own producer can end that: as committed together with whatever it writes next, or as aborted. So
the hidden records are copied here first, the hidden transaction is aborted, and the copies are written to where they
belong, in one transaction with the tombstones of their keys here.

::

    key      owed/<topic>/<partition>/<offset>/<part>/<parts>
    value    an envelope a part; the bodies of all parts together are one ``Owed`` of ``state.proto``

The offset is that of the hidden record, so that copying it twice leaves one copy. Parts, because a record may be larger
than what the state topic takes.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from index.errors import FormatError
from index.record import Record
from snapshots.envelope import Kind, unwrap, wrap
from snapshots.proto import state_pb2

OWED_PREFIX: Final = b"owed/"
MAX_PART_BYTES: Final = 800_000

_PIECES: Final = 5
_KEY_DIGITS: Final = 60


class Owed(NamedTuple):
    """A record that is to be written to a partition again; ``offset`` is where it lies hidden, ``parts`` as found.

    ``after_number`` is None but for records of the state itself: the number of the progress they follow, -1 for none.
    """

    topic: str
    partition: int
    offset: int
    record: Record
    after_number: int | None = None
    parts: int = 1

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def keys(self) -> list[bytes]:
        """Keys of its parts in the state topic."""
        return [_key(self, part, self.parts) for part in range(self.parts)]


def encode_owed(owed: Owed) -> list[tuple[bytes, bytes]]:
    """Key and value of each part."""
    key, value, headers, timestamp_ms = owed.record
    message = state_pb2.Owed(
        topic=owed.topic,
        partition=owed.partition,
        key=key,
        value=value,
        headers=[state_pb2.OwedHeader(name=name, content=content) for name, content in headers],
        timestamp_ms=timestamp_ms,
        after_number=owed.after_number,
    )
    body = message.SerializeToString()
    pieces = [body[at : at + MAX_PART_BYTES] for at in range(0, len(body), MAX_PART_BYTES)]
    return [(_key(owed, part, len(pieces)), wrap(Kind.OWED, piece)) for part, piece in enumerate(pieces)]


def decode_owed(records: Iterable[tuple[bytes | None, bytes | None]]) -> tuple[Owed, ...]:
    """What is owed after all (key, value) records of a state partition, in log order, by topic, partition and offset.

    Other keys are passed over. FormatError names what cannot be trusted.
    """
    latest: dict[bytes, bytes] = {}
    for key, value in records:
        if key is None or not key.startswith(OWED_PREFIX):
            continue
        if value is None:
            latest.pop(key, None)
        else:
            latest[key] = value
    found: dict[tuple[str, int, int, int], dict[int, bytes]] = {}
    for key, value in latest.items():
        place, part = _place(key)
        try:
            found.setdefault(place, {})[part] = unwrap(Kind.OWED, value)
        except FormatError as error:
            raise FormatError(f"record {key!r} of the state topic: {error}") from error
    return tuple(_decode_one(place, parts) for place, parts in sorted(found.items()))


def _decode_one(place: tuple[str, int, int, int], parts: dict[int, bytes]) -> Owed:
    topic, partition, offset, count = place
    named = f"owed record {topic}/{partition}/{offset} in the state topic"
    if sorted(parts) != list(range(len(parts))) or len(parts) != count:
        raise FormatError(f"{named} has parts {sorted(parts)} of {count}")
    message = state_pb2.Owed()
    try:
        message.ParseFromString(b"".join(parts[part] for part in range(count)))
    except DecodeError as error:
        raise FormatError(f"{named} cannot be read: {error}") from error
    if (message.topic, message.partition) != (topic, partition):
        raise FormatError(f"{named} says that it belongs to {message.topic}/{message.partition}")
    headers = [(each.name, each.content if each.HasField("content") else None) for each in message.headers]
    record = Record(
        message.key if message.HasField("key") else None,
        message.value if message.HasField("value") else None,
        headers,
        message.timestamp_ms,
    )
    after_number = message.after_number if message.HasField("after_number") else None
    return Owed(topic, partition, offset, record, after_number, count)


def _key(owed: Owed, part: int, parts: int) -> bytes:
    return OWED_PREFIX + f"{owed.topic}/{owed.partition}/{owed.offset}/{part}/{parts}".encode()


def _place(key: bytes) -> tuple[tuple[str, int, int, int], int]:
    pieces = key[len(OWED_PREFIX) :].split(b"/")
    numbers = pieces[1:]
    # Python refuses to read numbers of thousands of digits.
    if len(pieces) != _PIECES or not all(each.isdigit() for each in numbers) or sum(map(len, numbers)) > _KEY_DIGITS:
        raise FormatError(f"key {key!r} in the state topic is not known here; upgrade the router")
    partition, offset, part, parts = map(int, numbers)
    return (pieces[0].decode(errors="replace"), partition, offset, parts), part

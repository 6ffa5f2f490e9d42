"""Reads the outcome of a transaction from the log of its coordinator, ``__transaction_state``.

The coordinator decides a transaction by writing PREPARE_COMMIT or PREPARE_ABORT there, with the partitions that get
markers, before it sends any marker. So the log tells the outcome of a transaction whose markers were lost. It is read
where the command may read it (on a cluster without ACLs everybody may); compaction may have removed entries older than
some minutes.

The formats are Kafka's ``TransactionLogKey`` version 0 and ``TransactionLogValue`` versions 0 and 1 (4.x writes version
1).
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from sidecar.config.model import Config
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import MISSING, REQUEST_TIMEOUT_S, log_range
from sidecar.kafka.client.errors import error_of
from sidecar.kafka.reading.scan import PartitionScan

LOG: Final = "__transaction_state"

_COMMITTED: Final = {2: True, 3: False}
"""PREPARE_COMMIT and PREPARE_ABORT; the states that complete them name no partitions."""

_UNREADABLE: Final = MISSING | {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTO_OFFSET_RESET}

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_BEFORE_PARTITIONS: Final = struct.Struct(">qhib")


class LogTells(NamedTuple):
    """The outcome of a transaction, and a text about the log.

    ``committed`` is None where the log does not tell; ``found`` describes the entries of the log.
    """

    committed: bool | None
    found: str


def outcome_of_last(config: Config, admin: AdminClient, transactional_id: str, wrote_to: tuple[str, int]) -> LogTells:
    """Return how the last transaction of this id that wrote to a partition ended.

    KafkaException when the cluster does not answer.
    """
    metadata = admin.list_topics(LOG, timeout=REQUEST_TIMEOUT_S).topics[LOG]
    if metadata.error is not None or not metadata.partitions:
        return LogTells(None, f"{LOG}: {metadata.error or 'it has no partitions'}")
    partition = java_hash(transactional_id) % len(metadata.partitions)
    try:
        committed, found = last_outcome(_values(config, admin, partition, transactional_id), wrote_to)
    except KafkaException as exception:
        if error_of(exception).code() in _UNREADABLE:
            return LogTells(None, f"{LOG}/{partition}: {error_of(exception)}")
        raise
    return LogTells(committed, f"{LOG}/{partition} of {transactional_id}: {found}")


def last_outcome(values: Iterable[bytes], wrote_to: tuple[str, int]) -> LogTells:
    """Return the outcome in the last of these values of one transactional id that decides about a partition."""
    committed: bool | None = None
    count, last = 0, "none"
    for value in values:
        count += 1
        try:
            status, partitions = parse(value)
        except (struct.error, IndexError, UnicodeDecodeError):
            # The version of the value is unknown, so the value may be about any transaction.
            committed, last = None, f"of an unknown version: {value[:2].hex()}"
            continue
        last = f"status {status} with {len(partitions)} partitions"
        if status in _COMMITTED and wrote_to in partitions:
            committed = _COMMITTED[status]
    return LogTells(committed, f"{count} records, the last one {last}")


def parse(value: bytes) -> tuple[int, frozenset[tuple[str, int]]]:
    """Return status and partitions of a value; raise struct.error or IndexError for another version or damage."""
    (version,) = _INT16.unpack_from(value)
    if version not in (0, 1):
        raise IndexError(version)
    *_, status = _BEFORE_PARTITIONS.unpack_from(value, _INT16.size)
    fields = _Fields(value, _INT16.size + _BEFORE_PARTITIONS.size, compact=version == 1)
    return status, frozenset(fields.partitions())


def java_hash(text: str) -> int:
    """Return Kafka's ``Utils.abs(text.hashCode())``, which gives a transactional id its partition.

    >>> java_hash("delay-router.orders.delay.0")
    311475977
    """
    units = text.encode("utf-16-be")
    total = 0
    for at in range(0, len(units), 2):
        total = (31 * total + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    signed = total - (1 << 32) if total >= 1 << 31 else total
    return 0 if signed == -(1 << 31) else abs(signed)


class _Fields:
    """A cursor over the fields of a value."""

    def __init__(self, value: bytes, at: int, *, compact: bool) -> None:
        self._value, self._at, self._compact = value, at, compact

    def partitions(self) -> Iterator[tuple[str, int]]:
        for _ in range(self._count(_INT32)):
            length = self._count(_INT16)
            topic = self._value[self._at : self._at + length].decode()
            self._at += length
            for _ in range(self._count(_INT32)):
                yield topic, self._number(_INT32)
            if self._compact and self._varint():
                raise IndexError("tagged fields")

    def _count(self, plain: struct.Struct) -> int:
        """Read a length or a count, 0 for null."""
        return max(self._varint() - 1 if self._compact else self._number(plain), 0)

    def _number(self, plain: struct.Struct) -> int:
        (number,) = plain.unpack_from(self._value, self._at)
        self._at += plain.size
        return int(number)

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._value[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the highest bit says that more follows
                return number
            shift += 7


def _values(config: Config, admin: AdminClient, partition: int, transactional_id: str) -> Iterator[bytes]:
    key = _INT16.pack(0) + _INT16.pack(len(transactional_id.encode())) + transactional_id.encode()
    # The admin client asks again if a leader has just changed; a consumer raises the error.
    there = range(*log_range(admin, LOG, partition))
    consumer = clients.state_reader(config)
    try:
        for message in PartitionScan(consumer, {(LOG, partition): there}).records():
            value = message.value()
            if message.key() == key and value is not None:
                yield value
    finally:
        consumer.close()

"""One row of a table of schedules: its schedule, its identity, and the delay partition that it belongs in.

This module needs neither Spark nor Kafka. The router's rules decide: they get the headers that the row would have as a
record, with the moment of writing as the record's timestamp.
"""

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from index.protocol.headers import Headers
from index.protocol.partitioner import partition_of_key
from index.protocol.schedule import Reason, Rejection, schedule_of
from index.rules.rules import Rules

MALFORMED: Final = "MALFORMED_ROW"
"""Reason of a row that is no record at all: unreadable in its file, without a due time, or with unreadable headers."""

DIGEST_BYTES: Final = 16


class InputRow(NamedTuple):
    """A row as it was read; ``headers`` are pairs or JSON text, ``damage`` is the unreadable part of its line."""

    due: str | None
    target: str | None
    key: bytes | None
    value: bytes | None
    headers: Headers | str | None = None
    row_id: str | None = None
    damage: str | None = None


class Decision(NamedTuple):
    """The decision on a row.

    * ``digest``: digest of the whole row; equal rows have equal digests.
    * ``partition``: delay partition, by the key as every Kafka producer chooses it, else by the digest.
    * ``headers``: headers of the record, control headers first, without ``deliver-id``.
    * ``reason``, ``message``: why it is not to be written; "" when it is.
    * ``past``: its due time is not after the moment of writing.
    * ``targets``, ``target_partition``: where it is to be released; -1: by key.
    """

    digest: bytes
    partition: int
    headers: Headers
    reason: str
    message: str
    past: bool = False
    targets: tuple[str, ...] = ()
    target_partition: int = -1


class RowRules(NamedTuple):
    """The measures for rows: the router's rules, the delay topic's partitions and size limit, and the moment."""

    rules: Rules
    job: str
    partitions: int
    max_bytes: int
    now_ms: int

    def decide(self, row: InputRow) -> Decision:
        """Decide a row; no content of a row makes it raise."""
        digest = digest_of(row)
        partition = partition_of(row.key, digest, self.partitions)

        def malformed(message: str) -> Decision:
            return Decision(digest, partition, (), MALFORMED, message)

        if row.damage is not None:
            return malformed(f"the line cannot be read with the columns of the table: {row.damage[:80]!r}")
        if row.due is None:
            return malformed("due is null; every row needs the time at which it is due")
        try:
            own = parse_headers(row.headers)
        except ValueError as error:
            return malformed(f"headers: {error}")
        to = [] if row.target is None else [("deliver-to", row.target.encode())]
        headers = [("deliver-at", row.due.encode()), *to, *own]
        named = [*headers, ("deliver-id", deliver_id(self.job, digest, 0))]
        decided = self.rules.decide(named, self.now_ms)
        if isinstance(decided, Rejection):
            return Decision(digest, partition, headers, decided.reason, decided.message)
        schedule = schedule_of(decided)
        assert schedule is not None, "no record with an id and a time only cancels or moves others"
        past, targets = schedule.due_ms <= self.now_ms, schedule.targets
        size = _least_bytes(row, named)
        if size > self.max_bytes:
            message = f"the record takes {size} bytes and the delay topic takes at most {self.max_bytes}"
            return Decision(digest, partition, headers, Reason.RECORD_TOO_LARGE, message, past)
        return Decision(digest, partition, headers, "", "", past, targets, schedule.partition)


def digest_of(row: InputRow) -> bytes:
    """Return the digest of the row as given; each part carries its length, and null differs from empty."""
    parts: list[bytes | None] = [
        None if text is None else text.encode("utf-8", "surrogatepass") for text in (row.due, row.target, row.row_id)
    ]
    parts += row.key, row.value, None if row.damage is None else row.damage.encode("utf-8", "surrogatepass")
    if isinstance(row.headers, str):
        parts.append(row.headers.encode("utf-8", "surrogatepass"))
    else:
        for name, raw in row.headers or ():
            parts += name.encode("utf-8", "surrogatepass"), raw
    told_apart = (b"-" if part is None else b"%d:%b" % (len(part), part) for part in parts)
    return blake2b(b"".join(told_apart), digest_size=DIGEST_BYTES).digest()


def deliver_id(job: str, digest: bytes, occurrence: int) -> bytes:
    """Return ``<job>/<digest>``, followed by ``/<n>`` for the n-th further row that is equal in everything."""
    name = f"{job}/{digest.hex()}"
    return (f"{name}/{occurrence}" if occurrence else name).encode()


def parse_headers(headers: Headers | str | None) -> list[tuple[str, bytes | None]]:
    """Read headers as pairs; text is a JSON object, or an array of [name, value] pairs if order matters.

    Values are strings (UTF-8) or null. The ValueError for other values says which are allowed.
    """
    if headers is None:
        return []
    if not isinstance(headers, str):
        if any(name is None for name, _ in headers):
            raise ValueError("a header has no name")
        return list(headers)
    if not headers.strip():
        return []
    try:
        plain = json.loads(headers, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'not readable as JSON ({error}), as in {{"name": "value"}}') from None
    return [_header(pair) for pair in _pairs(plain)]


class _Pairs(list[tuple[str, object]]):
    """A JSON object, in order and with repeated names."""


def _pairs(plain: object) -> Iterable[object]:
    if isinstance(plain, list):
        return plain
    raise ValueError('an object {"name": "value"} or an array [["name", "value"]] is needed')


def _header(pair: object) -> tuple[str, bytes | None]:
    match pair:
        case [str(name), None]:
            return name.encode().decode(), None
        case [str(name), str(value)]:
            # A lone surrogate, which JSON can spell, is no text: the encoder raises a ValueError.
            return name.encode().decode(), value.encode()
    raise ValueError(f"{str(pair)[:80]} is not a name with a string or null")


def partition_of(key: bytes | None, digest: bytes, partitions: int) -> int:
    """Return the partition that Java's producer gives to this key; spread rows without a key by their digests."""
    if key is None:
        return int.from_bytes(digest[:8], "big") % partitions
    return partition_of_key(key, partitions)


def _least_bytes(row: InputRow, headers: Headers) -> int:
    named = sum(len(name.encode()) + len(raw or b"") + 2 for name, raw in headers)
    return len(row.key or b"") + len(row.value or b"") + named

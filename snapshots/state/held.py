"""Records that were due and may not leave yet: kept whole in the state topic, below the watermark.

A record whose target is paused, or over its rate, is taken out of the index like a record that leaves. The transaction
writes a ``held`` record instead of one to the target. It holds all that release needs: the schedule as it was decided,
and the record itself. Releasing it writes to the target and removes the ``held`` record, in one
transaction.

::

    key      held/<offset>/<part>
    value    an envelope a part; the bodies of all parts together are
             ┌───────┬────────┬──────────────────────────────────┬──────────────┐
             │ parts │ length │ JSON: offset, schedule, key, ... │ value, as is │   4 bytes each, big-endian
             └───────┴────────┴──────────────────────────────────┴──────────────┘

Parts, because a record may be larger than the state topic takes. Key and headers are base64 within the JSON.
A release needs nothing else: no decision, and not the delay topic, which may have let go of the record. A move decides
the record again, so the rule epochs that decided held records stay in the state too.
"""

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from index.errors import FormatError
from index.protocol.record import Record
from index.protocol.schedule import KEEP_KEY, Attempted, Schedule
from snapshots.envelope import Kind, key_text, unwrap, wrap

HELD_PREFIX: Final = b"held/"
MAX_PART_BYTES: Final = 800_000

_HEAD = struct.Struct(">II")
_KEEP: Final = "keep"
_KEY_DIGITS: Final = 40


class HeldEntry(NamedTuple):
    """A record that waits below the watermark, with the schedule it was given; ``parts`` as found."""

    offset: int
    schedule: Schedule
    record: Record
    parts: int = 1

    @property
    def due_ms(self) -> int:
        """Due time of the record."""
        return self.schedule.due_ms


def encode_held(entry: HeldEntry) -> list[tuple[bytes, bytes]]:
    """Key and value of each part."""
    offset, schedule, record, _ = entry
    plain: dict[str, Any] = {
        "offset": offset,
        "due_ms": schedule.due_ms,
        "targets": schedule.targets,
        "partition": schedule.partition,
        "own_key": _KEEP if schedule.key is KEEP_KEY else [_text(schedule.key)],
        "deliver_id": _text(schedule.deliver_id),
        "both_times": schedule.both_times,
        "expire_after_ms": schedule.expire_after_ms,
        "key": _text(record.key),
        "has_value": record.value is not None,
        "headers": [[name, _text(content)] for name, content in record.headers],
        "timestamp_ms": record.timestamp_ms,
    }
    if schedule.shift_ms:
        plain["shift_ms"] = schedule.shift_ms
    if schedule.attempt is not None:
        plain["attempt"] = schedule.attempt
    head, value = json.dumps(plain).encode(), record.value or b""
    count = -(-(_HEAD.size + len(head) + len(value)) // MAX_PART_BYTES)
    body = _HEAD.pack(count, len(head)) + head + value
    parts = [body[at : at + MAX_PART_BYTES] for at in range(0, len(body), MAX_PART_BYTES)]
    return [(held_key(offset, number), wrap(Kind.HELD, part)) for number, part in enumerate(parts)]


def held_key(offset: int, part: int) -> bytes:
    """Key of one part."""
    return b"%b%d/%d" % (HELD_PREFIX, offset, part)


def decode_held(stored: Iterable[tuple[bytes, bytes]]) -> tuple[HeldEntry, ...]:
    """Join the held records of a partition from their parts, by due time and offset; FormatError names the fault."""
    parts: dict[int, dict[int, bytes]] = {}
    for key, value in stored:
        offset, part = _place(key)
        try:
            parts.setdefault(offset, {})[part] = unwrap(Kind.HELD, value)
        except FormatError as error:
            raise FormatError(f"record {key_text(key)} of the state topic: {error}") from error
    entries = [_decode_one(offset, found) for offset, found in parts.items()]
    return tuple(sorted(entries, key=lambda entry: (entry.due_ms, entry.offset)))


def _decode_one(offset: int, parts: dict[int, bytes]) -> HeldEntry:
    body = b"".join(parts[number] for number in sorted(parts))
    try:
        count, length = _HEAD.unpack_from(body)
        # The count is not trusted: it may be any number.
        if len(parts) != count or max(parts) != count - 1:
            raise ValueError(f"has parts {sorted(parts)} of {count}")  # noqa: TRY301 - as the others
        plain: dict[str, Any] = json.loads(body[_HEAD.size : _HEAD.size + length])
        # 0.1.0 did not write it. No checksum covers the key.
        if plain.get("offset", offset) != offset:
            raise ValueError(f"holds the record of offset {plain['offset']}")  # noqa: TRY301 - as the others
        own_key = KEEP_KEY if plain["own_key"] == _KEEP else _bytes(plain["own_key"][0])
        schedule = Schedule(
            int(plain["due_ms"]),
            tuple(str(target) for target in plain["targets"]),
            int(plain["partition"]),
            own_key,
            _bytes(plain["deliver_id"]),
            bool(plain["both_times"]),
            int(plain["expire_after_ms"]),
            int(plain.get("shift_ms", 0)),
            _attempt(*plain["attempt"]) if "attempt" in plain else None,
        )
        headers = tuple((str(name), _bytes(content)) for name, content in plain["headers"])
        value = body[_HEAD.size + length :] if plain["has_value"] else None
        record = Record(_bytes(plain["key"]), value, headers, int(plain["timestamp_ms"]))
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError, struct.error) as error:
        raise FormatError(f"held record of offset {offset} in the state topic cannot be read: {error}") from error
    return HeldEntry(offset, schedule, record, len(parts))


def _attempt(number: int, exhausted: bool, jitter_ms: int) -> Attempted:
    return Attempted(int(number), bool(exhausted), int(jitter_ms))


def _place(key: bytes) -> tuple[int, int]:
    offset, _, part = key[len(HELD_PREFIX) :].partition(b"/")
    # Python refuses to read numbers of thousands of digits.
    if not (offset.isdigit() and part.isdigit() and len(offset) + len(part) < _KEY_DIGITS):
        raise FormatError(f"key {key_text(key)} in the state topic is not known here; upgrade the router")
    place = int(offset), int(part)
    # A tombstone is written under the key that a number has, and would not remove one with zeros in front.
    if key != held_key(*place):
        raise FormatError(f"key {key_text(key)} in the state topic is none that a router writes")
    return place


def _text(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)

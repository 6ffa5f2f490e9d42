"""The backfill topic: buckets that a job has made and the owner of the partition has not adopted yet.

The topic is compacted and has the partitions of its delay topic. In partition p lie, by key:

====================================  ===============================================================
key                                   value
====================================  ===============================================================
``bucket/<job>/<from offset>``        a bucket that waits: its manifest, and its job and rules
``intent/<run>``                      a run of a job writes segments: they must not be trimmed meanwhile
====================================  ===============================================================

The segments of a staged bucket lie in the snapshots topic like any other. Jobs write here, and the owner of the
partition removes the buckets that it has adopted or refused, in a transaction of its own. Only the owner writes state,
so a job that is killed, run again or late does no harm.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from index.buckets.bucket import Manifest
from index.errors import FormatError
from index.rules.rules import Rules
from snapshots.envelope import Kind, key_text, unwrap, wrap
from snapshots.proto import staged_pb2
from snapshots.segments.manifest import manifest_message, manifest_of

STAGED_PREFIX = b"bucket/"
INTENT_PREFIX = b"intent/"

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,64}", re.ASCII)
_MAX_NUMBER = 2**63 - 1
_M = TypeVar("_M", bound=Message)


class StagedBucket(NamedTuple):
    """One bucket that waits to be adopted.

    * ``job``: which made it, 1 to 64 of ``[a-zA-Z0-9._-]``.
    * ``delay_topic_id``: of the delay topic that was read.
    * ``rules``: they decided its records, and must be in force at the cursor of the owner that adopts it.
    * ``manifest``: with bucket id 0, since the owner gives it one of its own; without segments when nothing is pending.
    * ``restores``: made to start a partition whose state is gone, and good for nothing else.
    """

    job: str
    delay_topic_id: str
    rules: Rules
    manifest: Manifest
    restores: bool


class Intent(NamedTuple):
    """A run of a job writes segments at or beyond ``snapshots_from``, which no manifest names yet.

    Nothing from there on may be trimmed from the snapshots topic before ``expires_ms``. ``run`` is of this run alone, 1
    to 64 of ``[a-zA-Z0-9._-]``: of two runs of one job, the first to end must not take the other's intent with it.
    """

    run: str
    snapshots_from: int
    expires_ms: int


def staged_key(job: str, from_offset: int) -> bytes:
    """Key of a staged bucket in the backfill topic."""
    return b"%b%b/%020d" % (STAGED_PREFIX, _checked(job), from_offset)


def intent_key(run: str) -> bytes:
    """Key of the intent of a run of a job in the backfill topic."""
    return INTENT_PREFIX + _checked(run)


def staged_segment_key(job: str, from_offset: int, number: int, attempt: int | str) -> bytes:
    """Key of segment ``number``, from 0, of a staged bucket in the snapshots topic.

    ``attempt`` must be another one each time the segment is written, also by another run of the job: compaction removes
    a record when a newer one has the same key, and a manifest may name the older one.
    """
    return b"%b/%020d/%06d/%b" % (_checked(job), from_offset, number, _checked(str(attempt)))


def staged_page_key(job: str, from_offset: int, number: int, attempt: int | str) -> bytes:
    """Key of page ``number``, from 0, of the ids of a staged bucket in the snapshots topic; no segment has it.

    ``attempt`` as of a segment.
    """
    return b"%b/%020d/id/%06d/%b" % (_checked(job), from_offset, number, _checked(str(attempt)))


def encode_staged(staged: StagedBucket) -> bytes:
    """Value of a ``bucket/...`` record; FormatError when it contradicts itself or is over a cap."""
    _check(staged)
    message = staged_pb2.Staged(
        job=staged.job,
        delay_topic_id=staged.delay_topic_id,
        rules=staged.rules.to_json(),
        manifest=manifest_message(staged.manifest),
        restores=staged.restores,
    )
    return wrap(Kind.STAGED, message.SerializeToString())


def decode_staged(key: bytes, value: bytes) -> StagedBucket:
    """Return the staged bucket under ``key``; FormatError names the key of one that cannot be trusted."""
    try:
        staged = parse_staged(value)
        if key != staged_key(staged.job, staged.manifest.from_offset):
            raise FormatError(f"holds the bucket of job {staged.job} from offset {staged.manifest.from_offset}")  # noqa: TRY301 -- named below
    except FormatError as error:
        raise _named(key, error) from error
    return staged


def parse_staged(value: bytes) -> StagedBucket:
    """Return the checked staged bucket of an envelope; FormatError when it cannot be trusted."""
    message = _parsed(staged_pb2.Staged(), Kind.STAGED, value)
    rules, manifest = Rules.from_json(message.rules), manifest_of(message.manifest)
    staged = StagedBucket(message.job, message.delay_topic_id, rules, manifest, message.restores)
    _check(staged)
    return staged


def encode_intent(intent: Intent) -> bytes:
    """Value of an ``intent/...`` record; FormatError when it is out of range."""
    _check_intent(intent)
    message = staged_pb2.Intent(job=intent.run, snapshots_from=intent.snapshots_from, expires_ms=intent.expires_ms)
    return wrap(Kind.INTENT, message.SerializeToString())


def decode_intent(key: bytes, value: bytes) -> Intent:
    """Return the intent under ``key``; FormatError names the key of one that cannot be trusted."""
    try:
        intent = parse_intent(value)
        if key != intent_key(intent.run):
            raise FormatError(f"holds the intent of {intent.run}")  # noqa: TRY301 -- named below
    except FormatError as error:
        raise _named(key, error) from error
    return intent


def parse_intent(value: bytes) -> Intent:
    """Return the intent in an envelope, checked, without a look at its key; FormatError when it cannot be trusted."""
    message = _parsed(staged_pb2.Intent(), Kind.INTENT, value)
    intent = Intent(message.job, message.snapshots_from, message.expires_ms)
    _check_intent(intent)
    return intent


def latest_of(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[bytes, bytes]:
    """Keep the last value of each key of a backfill partition, in log order; FormatError for a record without a key."""
    latest: dict[bytes, bytes] = {}
    for key, value in records:
        if key is None:
            raise FormatError("a record without a key in the backfill topic: not written by this program")
        if value is None:
            latest.pop(key, None)
        else:
            latest[key] = value
    return latest


def fold_staged(records: Iterable[tuple[bytes | None, bytes | None]]) -> tuple[list[StagedBucket], list[Intent]]:
    """Return the waiting buckets, by offset and job, and the intents of a backfill partition, read in log order.

    A later record of a key replaces an earlier one, a null value removes it. FormatError names the key that cannot be
    trusted.
    """
    staged: list[StagedBucket] = []
    intents: list[Intent] = []
    for key, value in latest_of(records).items():
        if key.startswith(STAGED_PREFIX):
            staged.append(decode_staged(key, value))
        elif key.startswith(INTENT_PREFIX):
            intents.append(decode_intent(key, value))
        else:
            raise FormatError(f"key {key_text(key)} in the backfill topic is not known here; upgrade the router")
    staged.sort(key=lambda each: (each.manifest.from_offset, each.job))
    return staged, intents


def _parsed(message: _M, kind: Kind, value: bytes) -> _M:
    try:
        message.ParseFromString(unwrap(kind, value))
    except DecodeError as error:
        raise FormatError(f"{kind.name.lower()}: {error}") from error
    return message


def _check(staged: StagedBucket) -> None:
    _checked(staged.job)
    manifest = staged.manifest
    if manifest.bucket_id or manifest.built_from is not None:
        raise FormatError(f"staged bucket has id {manifest.bucket_id}; only the owner of the partition gives ids")
    if not staged.delay_topic_id:
        raise FormatError("staged bucket without the id of its delay topic")


def _check_intent(intent: Intent) -> None:
    _checked(intent.run)
    for name, number in (("offset", intent.snapshots_from), ("time", intent.expires_ms)):
        if not 0 <= number <= _MAX_NUMBER:
            raise FormatError(f"intent has {name} {number}; 0 to {_MAX_NUMBER} are possible")


def _checked(name: str) -> bytes:
    if not _NAME.fullmatch(name):
        raise FormatError(f"{name!a} is no name of a job; 1 to 64 letters, digits and ._- are")
    return name.encode("ascii")


def _named(key: bytes, error: FormatError) -> FormatError:
    return FormatError(f"record {key_text(key)} of the backfill topic: {error}")

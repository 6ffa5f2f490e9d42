"""The state of one delay partition: the encoding of its records, and their fold into a state.

The state topic is compacted and has the partitions of its delay topic. In partition p lie, by key:

======================  ===============================================================
key                     value
======================  ===============================================================
``progress``            C, W and S, watermarks of adopted buckets, the id of the delay topic it is all about, which
                        of the keys below there are, see :mod:`snapshots.state.inventory`, and who may write the
                        state, see :mod:`snapshots.state.lane`
``rules``               the rules that decided [S, C) and the buckets, and from which offset each applied
``bucket/<id>``         one manifest per bucket, see :mod:`snapshots.segments.manifest`
``held/<offset>/<n>``   a record that was due and waits for its target, see :mod:`snapshots.state.held`
``mask/<number>``       which offsets were cancelled, see :mod:`snapshots.state.mask`
``transit/<lot>``       records appended to the delay partition and not read yet, see :mod:`snapshots.state.transit`
``query/<offset>``      a predicate that has cancelled schedules, see :mod:`snapshots.state.queries`
``ending``              an operator is ending a forgotten transaction, see :mod:`snapshots.state.ending`
``group/<group_id>``    routers of this group may write the state, see :mod:`snapshots.state.claim`
======================  ===============================================================

A decision must replay (see :mod:`index`), so the rules that decided the records from S on are part of the state. A
change of rules starts a new *epoch* at C; an epoch that ends at or below S is dropped. Rejected: sealing at every
change of rules so that one set of rules is enough. It makes a change of configuration wait for a seal, and a seal that
fails would hold it back; the history costs a few hundred bytes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from google.protobuf.message import DecodeError
from pyroaring import FrozenBitMap64

from index.buckets.bucket import Manifest
from index.buckets.retention import rules_needed_from
from index.errors import FormatError, StateLostError
from index.named.queries import Query
from index.named.transit import InTransit, Lot
from index.pending.progress import Behind, Position, Progress, Skipped
from index.protocol.schedule import AT_ONCE
from index.rules.rule_history import RuleEpoch, RuleHistory
from index.rules.rules import Rules
from snapshots.envelope import Kind, claims, key_text, unwrap, wrap
from snapshots.proto import state_pb2
from snapshots.segments.manifest import MANIFEST_PREFIX, decode_manifest
from snapshots.state.claim import CLAIM_PREFIX, claimed_in, decode_claims
from snapshots.state.ending import ENDING_KEY, Ending, decode_ending
from snapshots.state.held import HELD_PREFIX, HeldEntry, decode_held
from snapshots.state.inventory import Inventory, inventory_message, inventory_of, refuse_other
from snapshots.state.lane import LaneName, lane_message, lane_of
from snapshots.state.mask import MASK_PREFIX, decode_mask
from snapshots.state.queries import QUERY_PREFIX, decode_queries
from snapshots.state.transit import TRANSIT_PREFIX, decode_transit

ManifestOf = Callable[[bytes, bytes], Manifest]
"""The manifest of a key and a value of the state topic; FormatError names the key of one that cannot be trusted."""

PROGRESS_KEY = b"progress"
RULES_KEY = b"rules"


@dataclass(frozen=True, slots=True)
class StoredState:
    """Everything the state topic says about one delay partition.

    ``inventory`` names the buckets and counts the held records that the state must have. It is None where 0.1.0 wrote
    the progress: then records that are gone from the state cannot be noticed.
    ``mask`` are the cancelled offsets. ``transit`` notes the records that were appended and not read yet. ``ending`` is
    the transaction that an operator has begun to end. ``lane`` is the lane that may write the state; None: the producer
    of the partition's own transactional id. ``queries`` are the predicates in force, by offset. ``groups`` are the
    router groups with a claim, and the group of the last owner.
    """

    progress: Progress
    delay_topic_id: str
    history: RuleHistory
    buckets: tuple[Manifest, ...] = ()
    held: tuple[HeldEntry, ...] = ()
    inventory: Inventory | None = None
    mask: FrozenBitMap64 = field(default_factory=FrozenBitMap64)
    transit: Mapping[Lot, tuple[InTransit, ...]] = field(default_factory=dict)
    ending: Ending | None = None
    lane: LaneName | None = None
    queries: tuple[Query, ...] = ()
    groups: frozenset[str] = frozenset()

    def bucket_at(self, offset: int) -> Manifest | None:
        """Return the bucket whose range has this offset, if one has."""
        return next((each for each in self.buckets if each.from_offset <= offset < each.to_offset), None)

    def has_left(self, due_ms: int, offset: int) -> bool:
        """Return whether a committed transaction released or rejected the record at an offset; O(held + buckets).

        A record that is due at once leaves as soon as C passes it, wherever W is. In a bucket that catches up it waits
        for the watermark of that bucket.
        """
        if offset >= self.progress.cursor or any(entry.offset == offset for entry in self.held):
            return False
        bucket = self.bucket_at(offset)
        catches_up = bucket is not None and bucket.bucket_id in dict(self.progress.catching_up)
        if due_ms == AT_ONCE and not catches_up:
            return True
        return (due_ms, offset) <= self.watermark_at(offset)

    def watermark_at(self, offset: int) -> Position:
        """Return the watermark that holds for an offset: that of its bucket while it catches up, else W."""
        bucket = self.bucket_at(offset)
        return self.progress.watermark if bucket is None else self.progress.watermark_of(bucket.bucket_id)


def encode_progress(
    progress: Progress, delay_topic_id: str, inventory: Inventory | None = None, lane: LaneName | None = None
) -> bytes:
    """Value of the ``progress`` record; without an ``inventory`` the other keys of the state are not listed."""
    message = state_pb2.Progress(
        cursor=progress.cursor,
        watermark_due_ms=progress.watermark.due_ms,
        watermark_offset=progress.watermark.offset,
        sealed_to=progress.sealed_to,
        number=progress.number,
        next_bucket=progress.next_bucket,
        delay_topic_id=delay_topic_id,
        catching_up=[
            state_pb2.Behind(bucket_id=bucket_id, watermark_due_ms=due_ms, watermark_offset=offset)
            for bucket_id, (due_ms, offset) in progress.catching_up
        ],
        skipped=[state_pb2.Skipped(from_offset=start, to_offset=end) for start, end in progress.skipped],
        inventory=None if inventory is None else inventory_message(inventory),
        series_key=progress.series_key,
        cancelled=progress.cancelled,
        lane=None if lane is None else lane_message(lane),
        restored_to=progress.restored_to,
    )
    return wrap(Kind.PROGRESS if lane is None else Kind.PROGRESS_IN_LANE, message.SerializeToString())


def series_key_of(value: bytes) -> bytes:
    """Return the key that signs occurrences, of the value of a ``progress`` record; empty where that has none."""
    decoded = _readable(value)
    return b"" if decoded is None else decoded[0].series_key


class Writers(NamedTuple):
    """The lane that may write a state, if the last progress names one, and the router groups that may write it."""

    lane: LaneName | None
    groups: frozenset[str]


def writers_in(records: Iterable[tuple[bytes | None, bytes | None]]) -> Writers:
    """Return the writers that a state partition names, whether the state can be trusted or not."""
    latest = dict(records)
    claimed = claimed_in([key for key, value in latest.items() if key is not None and value is not None])
    decoded = _readable(latest.get(PROGRESS_KEY))
    if decoded is None:
        return Writers(None, claimed)
    _, _, inventory, lane = decoded
    return Writers(lane, claimed | _named_by(inventory))


def has_readable_progress(records: Iterable[tuple[bytes | None, bytes | None]]) -> bool:
    """Return whether the progress can be read. Otherwise a lane may write that the state does not name."""
    return _readable(dict(records).get(PROGRESS_KEY)) is not None


def _named_by(inventory: Inventory | None) -> frozenset[str]:
    """Return the group of the last owner, whose claim may have been removed with the beginning of the state."""
    return frozenset() if inventory is None or not inventory.group else frozenset([inventory.group])


def encode_history(history: RuleHistory) -> bytes:
    """Value of the ``rules`` record; FormatError when it would be larger than a value may be."""
    message = state_pb2.RuleHistory(
        epochs=[state_pb2.RuleEpoch(from_offset=e.from_offset, rules=e.rules.to_json()) for e in history.epochs]
    )
    return wrap(Kind.RULES, message.SerializeToString())


def fold_state(
    records: Iterable[tuple[bytes | None, bytes | None]], manifest_of: ManifestOf = decode_manifest
) -> StoredState | None:
    """State after all (key, value) records of a state partition, in log order; None when it holds claims at most.

    A later record of a key replaces an earlier one, a null value removes it. FormatError names the key that cannot be
    trusted: an unknown key comes from a newer router and is refused like an unknown version. StateLostError when part
    of the state is gone. ``manifest_of`` decodes a manifest, or remembers it.
    """
    latest: dict[bytes | None, bytes] = {}
    for key, value in records:
        if value is None:
            latest.pop(key, None)
        else:
            latest[key] = value
    manifests, held, mask, transit, queries, claims = (
        [(key, latest.pop(key)) for key in list(latest) if key is not None and key.startswith(prefix)]
        for prefix in (MANIFEST_PREFIX, HELD_PREFIX, MASK_PREFIX, TRANSIT_PREFIX, QUERY_PREFIX, CLAIM_PREFIX)
    )
    _refuse_unknown(latest.keys() - {PROGRESS_KEY, RULES_KEY, ENDING_KEY})
    claimed = decode_claims(claims)
    if not any((latest, manifests, held, mask, transit, queries)):
        return None
    missing = {PROGRESS_KEY, RULES_KEY} - set(latest)
    if missing:
        raise StateLostError(f"the state topic lacks key {min(missing)!r}: part of the state was lost")
    progress, delay_topic_id, inventory, lane = _decode_progress(latest[PROGRESS_KEY])
    history = _decode_history(latest[RULES_KEY])
    buckets = tuple(sorted((manifest_of(*stored) for stored in manifests), key=_from_offset))
    if inventory is not None:
        ids = tuple(manifest.bucket_id for manifest in buckets)
        refuse_other(inventory, Inventory(ids, len(held), len(mask), len(transit), len(queries)))
    _refuse_impossible(buckets, progress)
    # Earlier routers dropped the rules of held records.
    history.check(rules_needed_from(progress, buckets, held=()))
    found = decode_held(held), inventory, decode_mask(mask), decode_transit(transit)
    ending = decode_ending(latest[ENDING_KEY]) if ENDING_KEY in latest else None
    groups = claimed | _named_by(inventory)
    return StoredState(
        progress, delay_topic_id, history, buckets, *found, ending, lane, decode_queries(queries), groups
    )


def _refuse_unknown(keys: Collection[bytes | None]) -> None:
    if None in keys:
        raise FormatError(
            "key None in the state topic is not known here: no router writes a record without a key. Once the topic's"
            " log cleaner has removed that record, the partition goes on"
        )
    for key in keys:
        raise FormatError(f"key {key_text(key)} in the state topic is not known here; upgrade the router")


def _from_offset(manifest: Manifest) -> int:
    return manifest.from_offset


def _refuse_impossible(buckets: Sequence[Manifest], progress: Progress) -> None:
    for one, two in pairwise(buckets):
        if one.to_offset > two.from_offset:
            raise FormatError(f"buckets {one.bucket_id} and {two.bucket_id} overlap at offset {two.from_offset}")
    if buckets and buckets[-1].to_offset > progress.sealed_to:
        raise FormatError(f"bucket {buckets[-1].bucket_id} ends beyond S={progress.sealed_to}")
    ids = {manifest.bucket_id for manifest in buckets}
    if any(bucket_id >= progress.next_bucket for bucket_id in ids):
        raise FormatError(f"a bucket has an id at or beyond the next one, {progress.next_bucket}")
    for bucket_id, _ in progress.catching_up:
        if bucket_id not in ids:
            raise FormatError(f"bucket {bucket_id} is catching up by the progress, and is not there")


def _readable(value: bytes | None) -> tuple[Progress, str, Inventory | None, LaneName | None] | None:
    """Decode the value of a ``progress`` record; return None if there is none, or none that can be read."""
    try:
        return _decode_progress(value or b"")
    except FormatError:
        return None


def _decode_progress(value: bytes) -> tuple[Progress, str, Inventory | None, LaneName | None]:
    message = state_pb2.Progress()
    kind = Kind.PROGRESS_IN_LANE if claims(value, Kind.PROGRESS_IN_LANE) else Kind.PROGRESS
    _parse(message, PROGRESS_KEY, kind, value)
    lane = lane_of(message.lane) if kind is Kind.PROGRESS_IN_LANE else None
    watermark = Position(message.watermark_due_ms, message.watermark_offset)
    behind = tuple(
        Behind(each.bucket_id, Position(each.watermark_due_ms, each.watermark_offset)) for each in message.catching_up
    )
    skipped = tuple(Skipped(each.from_offset, each.to_offset) for each in message.skipped)
    numbers = message.cursor, watermark, message.sealed_to, message.number, message.next_bucket
    cancelled, restored_to = max(0, message.cancelled), message.restored_to
    progress = Progress(*numbers, behind, skipped, message.series_key, cancelled, restored_to)
    if any(each.watermark > watermark for each in behind) or list(dict(behind)) != sorted(dict(behind)):
        raise FormatError(f"progress says W={watermark} and that buckets are behind it: {behind}")
    edges = [edge for each in skipped for edge in each]
    if edges != sorted(set(edges)) or any(edge > progress.cursor for edge in edges):
        raise FormatError(f"progress says C={progress.cursor} and that these ranges were skipped: {skipped}")
    if not 0 <= progress.sealed_to <= progress.cursor:
        raise FormatError(f"progress says S={progress.sealed_to} and C={progress.cursor}; S must be in 0..C")
    inventory = inventory_of(message.inventory) if message.HasField("inventory") else None
    return progress, message.delay_topic_id, inventory, lane


def _decode_history(value: bytes) -> RuleHistory:
    message = state_pb2.RuleHistory()
    _parse(message, RULES_KEY, Kind.RULES, value)
    try:
        return RuleHistory(tuple(RuleEpoch(each.from_offset, Rules.from_json(each.rules)) for each in message.epochs))
    except FormatError as error:
        raise FormatError(f"record {RULES_KEY.decode()!r} of the state topic: {error}") from error


def _parse(message: state_pb2.Progress | state_pb2.RuleHistory, key: bytes, kind: Kind, value: bytes) -> None:
    try:
        message.ParseFromString(unwrap(kind, value))
    except (FormatError, DecodeError) as error:
        raise FormatError(f"record {key.decode()!r} of the state topic: {error}") from error

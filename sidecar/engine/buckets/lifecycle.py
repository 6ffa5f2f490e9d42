"""Sealing, merging and removal of one partition: decides which work on buckets the next transaction carries.

::

        mutable bucket full or old, and its turn    all segments committed       manifest committed
    (nothing) ──────────────────────────► SEALING ───────────────────────► INSTALL ──────────────► (nothing)
        │          more than max_buckets, or pointers to write inline         ▲
        └───────────────────────────────► MERGING ────────────────────────────┘

Removal happens beside it: segments that the watermark has passed, and at last the manifest, get tombstones. The
segments of an adopted bucket have keys of the job that wrote them, and are removed when the topic is trimmed.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from index.buckets.bucket import Bucket
from index.buckets.bucket_rules import PlacementRule, to_merge, to_write_inline
from index.partition.batch import Installation
from index.pending.progress import Position
from sidecar import failpoints
from sidecar.engine.buckets.id_pages import IdPageSource, SealedIds
from sidecar.engine.buckets.ids import StoredIds
from sidecar.engine.buckets.merge_reading import PoolReads
from sidecar.engine.buckets.merging import Merging
from sidecar.engine.buckets.sealing import Sealing
from sidecar.engine.buckets.segments import SegmentSource
from sidecar.engine.buckets.trimming import Tombstones
from sidecar.engine.context import PartitionContext
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.ports import Pool, Records
from sidecar.engine.release.transaction import Request
from snapshots.segments.codec import SegmentCodec
from snapshots.segments.manifest import manifest_key


class Housekeeping:
    """Belongs to one owned partition, and owns its requests; used by the worker only."""

    def __init__(
        self,
        context: PartitionContext,
        ledger: PartitionLedger,
        source: SegmentSource,
        pool: Pool,
        ids: StoredIds,
        pages: IdPageSource,
        codec: SegmentCodec,
    ) -> None:
        self._ledger = ledger
        self._rules = context.topic.seal_rules
        self._max_buckets = context.topic.max_buckets
        self._source = source
        self._pool = pool
        self._ids = ids
        self._pages = pages
        self._codec = codec
        self._metrics = context.metrics
        self._topic = context.name
        self._clock = context.clock
        self._limits = context.limits
        self._log = context.log
        self._sealing: Sealing | None = None
        self._merging: Merging | None = None
        self._merge_work: Future[None] | None = None
        self._seal_began_s = self._merge_began_s = 0.0
        self._seal_not_before_s = self._merge_not_before_s = 0.0
        self._mutable_since_s = self._clock.running_s()
        self._now_ms = 0
        self._tombstones = Tombstones(ledger, context.limits)

    @property
    def is_busy(self) -> bool:
        """True while a bucket is being sealed or merged."""
        return self._sealing is not None or self._merging is not None

    @property
    def is_behind(self) -> bool:
        """True when, beside the bucket to seal, the mutable bucket holds another bucket's worth not due soon."""
        most = self._rules.max_entries * (2 if self._sealing is None else 1)
        return len(self._ledger.parts.mutable) >= most and self._far() >= most

    @property
    def being_read(self) -> tuple[int, ...]:
        """Ids of the buckets that a merge under way, or a lookup of ids, still reads."""
        return (*(self._merging.sources if self._merging is not None else ()), *self._ids.being_read)

    def request(self, now_ms: int, *, memory_full: bool) -> Request | None:
        """Return the work on buckets for the next transaction; None most of the time."""
        self._now_ms = now_ms
        reclaimed, removed = self._tombstones.next(self.being_read, ids_are_read=bool(self._ids.being_read))
        if reclaimed or removed:
            failpoints.passing("removal.before")
            return Request(self, reclaimed=reclaimed, removed=removed)
        self.begin(memory_full=memory_full)
        # Sealing goes first, and not only to free memory: while a bucket is being sealed, no merge writes or installs.
        if self._sealing is not None:
            return self._seal(self._sealing, now_ms)
        if self._merging is not None:
            return self._merge(self._merging)
        return None

    def committed(self, request: Request, offsets: Sequence[int]) -> None:
        """Note that segments are written, that a manifest is in force, or that keys are removed."""
        if request.segments:
            self._written(offsets)
        if isinstance(request.installs, Installation):
            self._installed(request.installs)
        elif request.removed or request.reclaimed:
            failpoints.passing("removal.after")
        self._tombstones.committed(request)

    def refused(self, _request: Request, why: str) -> None:
        """Give up the seal or the merge whose segments the broker refuses, and try again later."""
        # Sealing goes first, so a seal under way made the segments that were given last.
        self._give_up("merge" if self._sealing is None else "seal", why)

    def left_out(self, _request: Request) -> None:
        """Do nothing: the next call of ``request`` returns the same work."""

    def _give_up(self, kind: str, why: str) -> None:
        self._metrics.seal_failures.labels(self._topic).inc()
        self._log.error(f"{kind}_failed", why=why, again_in_s=self._limits.bucket_again_s)
        again_s = self._clock.running_s() + self._limits.bucket_again_s
        # A failed merge must not hold up sealing: it may fail each time for a segment that is needed in days.
        if kind == "seal":
            self._ledger.thaw()
            self._end_seal()
            self._seal_not_before_s = again_s
        else:
            self._end_merge()
            self._merge_not_before_s = again_s

    def use_placement(self, placement: PlacementRule) -> None:
        """Seal and merge with this placement from the next time on."""
        self._rules = replace(self._rules, placement=placement)

    def stop(self) -> None:
        """End a merge that is under way, and leave the turns to others."""
        self._end_merge()
        self._end_seal()

    def begin(self, *, memory_full: bool) -> None:
        """Begin to seal or to merge where this is needed; called after each commit, too.

        Just after a commit every indexed record is certainly below the committed C. A moment later this no longer holds
        while records keep coming in, and without this call a bucket could never be frozen.
        """
        if self._sealing is not None:
            return
        if self._may_seal(memory_full=memory_full) and self._ledger.may_freeze:
            to_offset = self._ledger.indexed_to
            frozen = self._ledger.freeze()
            bucket_id, encode, names = self.free_id(), self._pool.encode, self._ledger.named.names
            ids = SealedIds(names.frozen, names.frozen_shifts_ms, encode, self._limits).take
            self._sealing = Sealing(frozen, to_offset, bucket_id, self._rules, self._limits, encode, self._codec, ids)
            self._mutable_since_s = self._seal_began_s = self._clock.running_s()
        elif self._merging is None and self._clock.running_s() >= self._merge_not_before_s:
            buckets, watermark = self._ledger.parts.buckets.values(), self._ledger.committed.watermark
            # A bucket that has left completely is removed before any merge. Otherwise the merge would take it first,
            # since it is the smallest, and merge it into nothing again and again, because a source is never removed.
            if any(bucket.is_done(watermark) for bucket in buckets):
                return
            sources = to_write_inline(buckets, self._rules, watermark) or to_merge(
                buckets, self._max_buckets, watermark, self._now_ms + self._rules.soon_ms
            )
            if not sources:
                self._pool.merges.leave(self)
            elif self._pool.merges.has_come(self, self._clock.running_s()):
                self._begin_merge(sources)

    def free_id(self) -> int:
        """Return an id that no bucket has, had, or is being made with."""
        taken = -1 if self._merging is None else self._merging.bucket_id
        return max(self._ledger.committed.next_bucket, taken + 1)

    def wants_commit(self, *, memory_full: bool) -> bool:
        """Say whether sealing waits only for a commit of everything indexed; records that are owed cause a commit
        anyway.
        """
        waits = self._sealing is None and not self._ledger.may_freeze and not self._ledger.owed
        return waits and self._may_seal(memory_full=memory_full)

    def _may_seal(self, *, memory_full: bool) -> bool:
        """Say whether the mutable bucket has to be sealed and this partition has its turn."""
        if self._must_seal(memory_full=memory_full):
            return self._pool.seals.has_come(self, self._clock.running_s())
        self._pool.seals.leave(self)
        return False

    def _must_seal(self, *, memory_full: bool) -> bool:
        now_s, far = self._clock.running_s(), self._far()
        if not far:
            # Age counts from the first entry that is not due soon.
            self._mutable_since_s = now_s
        if now_s < self._seal_not_before_s:
            return False
        age_ms = int((now_s - self._mutable_since_s) * 1_000)
        span = self._ledger.indexed_to - self._ledger.committed.sealed_to
        if memory_full:
            return len(self._ledger.parts.mutable) > 0
        return self._rules.must_seal(far, span, age_ms)

    def _far(self) -> int:
        """Count the entries of the mutable bucket that are not due soon; the others will be gone before a seal could
        write them.
        """
        mutable = self._ledger.parts.mutable
        return len(mutable) - (mutable.count_until(self._now_ms + self._rules.soon_ms) if self._rules.soon_ms else 0)

    def _begin_merge(self, sources: Sequence[Bucket]) -> None:
        source, pages, pool = self._source, self._pages, self._pool

        def work(reader: Records) -> None:
            merging.run(PoolReads(source, pages, pool, reader))

        watermark, masked = self._ledger.committed.watermark, self._ledger.named.mask.settled()
        handover = pool.handover(self._limits.merge_queue)
        merging = Merging(sources, watermark, self.free_id(), self._rules, self._limits, handover, masked, self._codec)
        self._merge_began_s = self._clock.running_s()
        self._merging = merging
        self._merge_work = self._pool.merge(work)

    def _seal(self, sealing: Sealing, now_ms: int) -> Request | None:
        segments = sealing.next_segments()
        if segments is not None:
            return Request(self, segments=segments) if segments else None
        installs = sealing.installation(Position(now_ms + self._limits.load_lead_ms, 0))
        if installs is None:
            self._ledger.discard_frozen()
            self._end_seal()
            return None
        failpoints.passing("seal.before_manifest")
        return Request(self, installs=installs)

    def _merge(self, merging: Merging) -> Request | None:
        assert self._merge_work is not None
        if self._merge_work.done() and (error := self._merge_work.exception()) is not None:
            self._give_up("merge", repr(error))
            return None
        segments = merging.next_segments()
        if segments is not None:
            return Request(self, segments=segments) if segments else None
        installs = merging.installation()
        if installs is None:
            self._end_merge()
            return None
        failpoints.passing("merge.before_manifest")
        return Request(self, installs=installs, removed=tuple(manifest_key(each) for each in merging.sources))

    def _written(self, record_offsets: Sequence[int]) -> None:
        if self._sealing is not None:
            self._sealing.written(record_offsets)
            failpoints.passing("seal.segment_written")
        elif self._merging is not None:
            self._merging.written(record_offsets)
            failpoints.passing("merge.segment_written")

    def _installed(self, installed: Installation) -> None:
        if not installed.merged_from:
            failpoints.passing("seal.after_manifest")
            self._metrics.seal_seconds.labels(self._topic).observe(self._clock.running_s() - self._seal_began_s)
            self._end_seal()
        elif self._merging is not None:
            failpoints.passing("merge.after_manifest")
            self._metrics.merge_seconds.labels(self._topic).observe(self._clock.running_s() - self._merge_began_s)
            self._metrics.entries_merged.labels(self._topic).inc(installed.manifest.entries)
            self._tombstones.orphaned += self._merging.source_keys
            self._end_merge()

    def _end_seal(self) -> None:
        self._sealing = None
        self._pool.seals.leave(self)

    def _end_merge(self) -> None:
        if self._merging is not None:
            self._merging.stop()
        self._merging = self._merge_work = None
        self._pool.merges.leave(self)

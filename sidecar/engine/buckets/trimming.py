"""Removes data that is no longer needed: tombstones for segments that have left, then the front of the topics.

Segments that the watermark has passed get tombstones, and at last the manifest of their bucket does. The snapshots
topic and the delay topic are trimmed (``DeleteRecords``) only according to committed progress
(:mod:`index.buckets.retention`), so no crash can remove too much. Nothing waits for the broker: a later turn reads the
answer, and a failure is logged once, counted, and tried again. Brokers free disk by whole log segments, in a task that
runs every five minutes (notes on Kafka, 6.4).

A fenced owner must not remove anything either. The next owner may adopt a bucket that a job had staged, and then the
bucket is neither staged nor known to the old owner. So the owner has to commit a transaction after it has looked at the
staged buckets and before it removes anything; a fenced owner cannot commit::

    decide up to where ──► look at the needs of jobs ──► commit ──► remove, by the buckets of this moment, too


The copy of the key that signs occurrences (:mod:`snapshots.state.series_key`) lies in the part that is removed. The
same transaction writes the copy anew, and nothing is removed beyond the last copy that was committed.

The delay topic is trimmed only where the configuration says so: the records of producers are somebody's data, and
without them a damaged segment can no longer be restored.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any

import structlog

from index.buckets.bucket import Bucket
from index.buckets.retention import Kept, delay_topic_needed_from, snapshots_known_to, snapshots_needed_from
from index.errors import ClusterError, FormatError, NotYetError, forget_frames
from index.pending.progress import Progress
from sidecar.engine.buckets.merging import page_keys
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import Limits
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.release.transaction import Request
from sidecar.logs.events import Trouble
from snapshots.segments.manifest import manifest_key, segment_key
from snapshots.state.series_key import encode_copy

Remove = Callable[[str, int], "Future[None]"]


class Tombstones:
    """Decides which keys of one owned partition's buckets get tombstones; used by its worker only.

    ``orphaned`` holds keys of segments and pages that no manifest names any more.
    """

    def __init__(self, ledger: PartitionLedger, limits: Limits) -> None:
        self.orphaned: deque[bytes] = deque()
        self._ledger = ledger
        self._most = limits.tombstones
        self._reclaimed: dict[int, int] = {}

    def next(self, being_read: Collection[int], *, ids_are_read: bool) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Return keys of segments and pages, and keys of manifests, for the next transaction.

        Returns the same keys until the transaction is committed. The buckets in ``being_read`` stay readable until the
        read ends.
        """
        orphaned = 0 if ids_are_read else len(self.orphaned)
        watermark = self._ledger.committed.watermark
        reclaimed = [self.orphaned[place] for place in range(min(orphaned, self._most))]
        removed: list[bytes] = []
        for bucket_id, bucket in self._ledger.parts.buckets.items():
            if bucket_id in being_read or len(reclaimed) >= self._most:
                continue
            passed, reclaimed_to = bucket.passed(watermark), self._reclaimed.get(bucket_id, 0)
            upto = min(passed, reclaimed_to + self._most)
            if bucket.manifest.built_from is None:
                reclaimed += [segment_key(bucket_id, number) for number in range(reclaimed_to, upto)]
            self._reclaimed[bucket_id] = upto
            if upto == len(bucket.manifest.segments) or bucket.is_done(watermark):
                removed.append(manifest_key(bucket_id))
        return tuple(reclaimed), tuple(removed)

    def committed(self, request: Request) -> None:
        """Forget the keys whose tombstones were written, and queue the pages of ids of removed buckets."""
        for key in request.reclaimed:
            if self.orphaned and self.orphaned[0] == key:
                self.orphaned.popleft()
        if not request.removed:
            return
        watermark = self._ledger.committed.watermark
        for bucket_id, bucket in list(self._ledger.parts.buckets.items()):
            if manifest_key(bucket_id) in request.removed and bucket.is_done(watermark):
                del self._ledger.parts.buckets[bucket_id]
                self.orphaned += page_keys(bucket.manifest)
                self._reclaimed.pop(bucket_id, None)


class KeyCopy:
    """The copy of the key that signs occurrences, as its only writer knows it; there is none where nothing recurs.

    An owner writes a copy with its first transaction, since it does not know where the last copy lies.
    """

    def __init__(self, series_key: bytes, log: Any, again_s: float) -> None:
        self._series_key = series_key
        self._again_s = again_s
        self._at = 0
        self._is_wanted = bool(series_key)
        self._trouble = Trouble(log)

    def keep_behind(self, offset: int) -> None:
        """Request a new copy if the last one lies below ``offset``."""
        self._is_wanted = self._is_wanted or (bool(self._series_key) and self._at < offset)

    def limit(self, offset: int) -> int:
        """Return the offset up to which the topic may be trimmed: ``offset``, or the last copy where this is lower."""
        return min(offset, self._at) if self._series_key else offset

    def request(self) -> Request | None:
        """Return the request for the next transaction; None most of the time."""
        return Request(self, segments=(encode_copy(self._series_key),)) if self._is_wanted else None

    def committed(self, _request: Request, offsets: Sequence[int]) -> None:
        """Remember the offset of the copy that was written."""
        (self._at,), self._is_wanted = offsets, False
        self._trouble.is_over()

    def refused(self, _request: Request, why: str) -> None:
        """Continue without a new copy, and request one again with the next trim."""
        self._is_wanted = False
        self._trouble.tell("series_key_not_copied", why, again_in_s=self._again_s)

    def left_out(self, _request: Request) -> None:
        """Do nothing: the next call of ``request`` returns the same copy."""


class Trimming:
    """The trims of one owned partition; used by its worker only.

    ``remove`` removes all records of a topic below an offset. ``look`` reads the backfill topic to its end, once the
    offsets of a trim are decided, and returns the offsets that jobs need. ``series_key`` signs occurrences, and is
    empty where nothing recurs.
    """

    wants_commit = False
    """True while a trim waits for the next transaction, even for one with progress alone."""

    def __init__(
        self,
        context: PartitionContext,
        remove: Remove,
        look: Callable[[], Future[Kept]],
        series_key: bytes = b"",
    ) -> None:
        topic = context.topic
        self._every_s = context.limits.trim_every_s
        self._snapshots = _Trim(context, topic.snapshots, remove)
        self._delay = _Trim(context, topic.name, remove) if topic.trim else None
        self.key_copy = KeyCopy(series_key, self._snapshots.log, self._every_s)
        self._look = look
        self._next_s: float | None = None
        self._known_to = 0
        self._looking: Future[Kept] | None = None
        self._wanted = 0, 0
        self._looked_at = 0

    def turn(self, now_s: float, committed: Progress, buckets: list[Bucket], being_read: tuple[int, ...]) -> None:
        """Read the answers, and now and then request the next trim; ``now_s`` comes from any steady clock.

        ``buckets`` have committed manifests; ``being_read`` are the ids of buckets that are still being read. While one
        of these ids is missing in ``buckets``, because the bucket was merged meanwhile, nothing is removed: no manifest
        tells which of its records are needed.
        """
        self._snapshots.look()
        if self._delay is not None:
            self._delay.look()
        if self._next_s is None:
            self._next_s = now_s + self._every_s
        if not {*being_read} <= {bucket.manifest.bucket_id for bucket in buckets}:
            self._looking, self.wants_commit = None, False
            return
        if now_s >= self._next_s and self._looking is None:
            self._decide(now_s, committed, buckets, being_read)
        if self._looking is None or not self._looking.done():
            return
        if not self.wants_commit:
            self.wants_commit, self._looked_at = True, committed.number
        elif committed.number > self._looked_at:
            looked, self._looking, self.wants_commit = self._looking, None, False
            self._ask(looked, self._needed_from(committed, buckets, being_read))

    def _decide(self, now_s: float, committed: Progress, buckets: list[Bucket], being_read: tuple[int, ...]) -> None:
        self._next_s = now_s + self._every_s
        snapshots_to, delay_to = self._needed_from(committed, buckets, being_read)
        if self._snapshots.wants(snapshots_to) or (self._delay is not None and self._delay.wants(delay_to)):
            self._wanted = snapshots_to, delay_to
            self.key_copy.keep_behind(snapshots_to)
            self._looking = self._look()

    def _needed_from(self, committed: Progress, buckets: list[Bucket], being_read: tuple[int, ...]) -> tuple[int, int]:
        """Return the offsets below which the snapshots and the delay topic are no longer needed, apart from jobs."""
        self._known_to = max(self._known_to, snapshots_known_to(buckets))
        live_from = snapshots_needed_from(committed.watermark, buckets, being_read)
        # Without a live segment: the segments of a seal under way lie behind all that manifests ever named.
        snapshots_to = self._known_to if live_from is None else live_from
        return snapshots_to, 0 if self._delay is None else delay_topic_needed_from(committed, buckets)

    def _ask(self, looked: "Future[Kept]", needed_from: tuple[int, int]) -> None:
        try:
            kept = looked.result()
        except ClusterError as error:
            self._snapshots.failed(error)
            forget_frames(error)
            return
        except (FormatError, NotYetError) as error:
            # A job record that cannot be read may need any offset. The owner withdraws it, or the transaction that
            # hides it ends.
            forget_frames(error)
            return
        snapshots_to, delay_to = map(min, self._wanted, needed_from)
        snapshots_to = self.key_copy.limit(snapshots_to)
        self._snapshots.ask(snapshots_to if kept.snapshots_from is None else min(snapshots_to, kept.snapshots_from))
        if self._delay is not None:
            self._delay.ask(delay_to if kept.delay_topic_from is None else min(delay_to, kept.delay_topic_from))


class _Trim:
    """The trims of one partition of one topic."""

    def __init__(self, context: PartitionContext, name: str, remove: Remove) -> None:
        self._name = name
        self._remove = remove
        self._every_s = context.limits.trim_every_s
        self._failures = context.metrics.trim_failures.labels(context.name)
        self._trimmed_to = 0
        self._asked_to = 0
        self._future: Future[None] | None = None
        self.log = structlog.get_logger().bind(topic=name, partition=context.partition)
        self._trouble = Trouble(self.log)

    def wants(self, offset: int) -> bool:
        """Say whether records below ``offset`` remain to be removed and no request is under way."""
        return self._future is None and offset > self._trimmed_to

    def ask(self, offset: int) -> None:
        """Request the removal of all records below ``offset``, unless this is done or under way."""
        if not self.wants(offset):
            return
        self._asked_to = offset
        self._future = self._remove(self._name, offset)

    def look(self) -> None:
        """Read the answer if it has arrived."""
        if self._future is None or not self._future.done():
            return
        future, self._future = self._future, None
        try:
            future.result()
        except ClusterError as error:
            self.failed(error)
            forget_frames(error)
        else:
            self._trimmed_to = self._asked_to
            self._trouble.is_over()
            self.log.debug("trimmed", to_offset=self._trimmed_to)

    def failed(self, error: ClusterError) -> None:
        """Count and log a failure."""
        self._failures.inc()
        self._trouble.tell("trim_failed", str(error), remedy=error.remedy, again_in_s=self._every_s)

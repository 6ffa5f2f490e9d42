"""Removing what nobody needs any more: tombstones for what has left, and then the front of the topics.

Segments that the watermark has passed get tombstones, and at last the manifest of their bucket. The snapshots and the
delay topic are trimmed (``DeleteRecords``) only by what is committed (:mod:`index.retention`), so no crash can remove
too much. Nothing waits for the broker: an answer is looked at a turn later, and a failure is logged once, counted, and
tried again. Brokers free disk by whole log segments, in a task that runs every five minutes (notes on Kafka, 6.4).

A fenced owner may remove nothing either: what a job had staged may be adopted by the next one, and then it is neither
among what is staged nor among the buckets that the old one knows. So when it was looked what is staged, and before
anything is removed, a transaction must be committed, which nobody can who is fenced::

    decide up to where ──► look what jobs need ──► commit ──► remove, also by what the buckets are now

The copy of the key that signs occurrences (:mod:`snapshots.series_key`) lies in the part that is removed. The same
transaction writes the copy anew, and nothing is removed beyond the last copy that was committed.

The delay topic is trimmed only where the configuration says so: producers' records are somebody's data, and a segment
that is damaged can then no longer be made good from them.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any

import structlog

from index.bucket import Bucket
from index.errors import ClusterError, FormatError, NotYetError
from index.progress import Progress
from index.retention import Kept, delay_topic_needed_from, snapshots_known_to, snapshots_needed_from
from sidecar.buckets.merging import page_keys
from sidecar.context import PartitionContext
from sidecar.limits import Limits
from sidecar.logs.events import Trouble
from sidecar.payload.ledger import PartitionLedger
from sidecar.release.transaction import Request
from snapshots.manifest import manifest_key, segment_key
from snapshots.series_key import encode_copy

Remove = Callable[[str, int], "Future[None]"]


class Tombstones:
    """What of the buckets of one owned partition is to get tombstones; used by its worker only.

    ``orphaned`` are keys of segments and pages that no manifest names any more.
    """

    def __init__(self, ledger: PartitionLedger, limits: Limits) -> None:
        self.orphaned: deque[bytes] = deque()
        self._ledger = ledger
        self._most = limits.tombstones
        self._reclaimed: dict[int, int] = {}

    def next(self, being_read: Collection[int], *, ids_are_read: bool) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Keys of segments and pages, and of manifests, for the next transaction; the same until it is committed.

        ``being_read`` are buckets that stay readable until that ends.
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
        """Tombstones were written: forget what they are for, and look after the pages of ids of removed buckets."""
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

    An owner writes a copy with its first transaction, since it does not know where the last one lies.
    """

    def __init__(self, series_key: bytes, log: Any, again_s: float) -> None:
        self._series_key = series_key
        self._again_s = again_s
        self._at = 0
        self._is_wanted = bool(series_key)
        self._trouble = Trouble(log)

    def keep_behind(self, offset: int) -> None:
        """Have the copy written anew if it lies below ``offset``."""
        self._is_wanted = self._is_wanted or (bool(self._series_key) and self._at < offset)

    def limit(self, offset: int) -> int:
        """Return up to where the topic may be trimmed by that, where it could be trimmed up to ``offset``."""
        return min(offset, self._at) if self._series_key else offset

    def request(self) -> Request | None:
        """Return the request for the next transaction; None most of the time."""
        return Request(self, segments=(encode_copy(self._series_key),)) if self._is_wanted else None

    def committed(self, _request: Request, offsets: Sequence[int]) -> None:
        """The copy is written."""
        (self._at,), self._is_wanted = offsets, False
        self._trouble.is_over()

    def refused(self, _request: Request, why: str) -> None:
        """Go on without, and ask again with the next trim."""
        self._is_wanted = False
        self._trouble.tell("series_key_not_copied", why, again_in_s=self._again_s)

    def left_out(self, _request: Request) -> None:
        """The same is requested again."""


class Trimming:
    """The trims of one owned partition; used by its worker only.

    ``remove`` has all records of a topic below an offset removed. ``look`` reads the backfill topic to its end, for
    what jobs need, once it is decided up to where to trim. ``series_key`` signs occurrences, and is empty where nothing
    recurs.
    """

    wants_commit = False
    """Whether it waits for the next transaction, even one with progress alone."""

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
        """Look at the answers, and now and then ask for the next trim; ``now_s`` is of any steady clock.

        ``buckets`` are those whose manifests are committed, ``being_read`` the ids of those that somebody still reads.
        While one of these is no longer among them, since it was merged meanwhile, nothing is removed: no manifest
        tells what of it is needed.
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
        """Up to where the snapshots and the delay topic are needed no longer, jobs aside."""
        self._known_to = max(self._known_to, snapshots_known_to(buckets))
        live_from = snapshots_needed_from(committed.watermark, buckets, being_read)
        # Nothing is live: segments of a seal that is under way lie behind all that manifests ever named.
        snapshots_to = self._known_to if live_from is None else live_from
        return snapshots_to, 0 if self._delay is None else delay_topic_needed_from(committed, buckets)

    def _ask(self, looked: "Future[Kept]", needed_from: tuple[int, int]) -> None:
        try:
            kept = looked.result()
        except ClusterError as error:
            self._snapshots.failed(error)
            return
        except (FormatError, NotYetError):
            # What cannot be read may need anything; the owner withdraws it, or the transaction that hides it ends.
            return
        snapshots_to, delay_to = map(min, self._wanted, needed_from)
        snapshots_to = self.key_copy.limit(snapshots_to)
        self._snapshots.ask(snapshots_to if kept.snapshots_from is None else min(snapshots_to, kept.snapshots_from))
        if self._delay is not None:
            self._delay.ask(delay_to if kept.delay_topic_from is None else min(delay_to, kept.delay_topic_from))


class _Trim:
    """One partition of one topic."""

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
        """Whether something below ``offset`` is there to be removed, and not being asked for."""
        return self._future is None and offset > self._trimmed_to

    def ask(self, offset: int) -> None:
        """Have everything below ``offset`` removed, unless that is done or being asked for."""
        if not self.wants(offset):
            return
        self._asked_to = offset
        self._future = self._remove(self._name, offset)

    def look(self) -> None:
        """Take note of the answer if there is one."""
        if self._future is None or not self._future.done():
            return
        future, self._future = self._future, None
        try:
            future.result()
        except ClusterError as error:
            self.failed(error)
        else:
            self._trimmed_to = self._asked_to
            self._trouble.is_over()
            self.log.debug("trimmed", to_offset=self._trimmed_to)

    def failed(self, error: ClusterError) -> None:
        """Count a failure and have it in the log."""
        self._failures.inc()
        self._trouble.tell("trim_failed", str(error), remedy=error.remedy, again_in_s=self._every_s)

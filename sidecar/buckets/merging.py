"""Merging neighbouring buckets into one: merging and encoding go on in a thread of their own, reading in another.

The worker takes encoded segments from a short queue and commits them between releases, then installs the new manifest
in place of the old ones in one transaction. Anything may happen to the sources meanwhile: what was released since is at
or before the watermark, and dropped when it is loaded from the new bucket. A failed merge leaves the sources as they
are.
"""

import heapq
import queue
import threading
from collections.abc import Iterator, Sequence
from itertools import islice

from index.batch import Installation
from index.bucket import Bucket, Placement
from index.bucket_rules import SealRules, cut
from index.progress import Position
from index.target_counts import in_proportion
from sidecar.buckets.merge_reading import MergeReads, SourceAhead
from snapshots.segment import StoredEntry
from snapshots.writing import Encoded, SegmentWriter, record_size

QUEUED_SEGMENTS = 4
"""Made and not taken yet."""

BYTES_AT_ONCE = 512 * 1_024
"""Of segments in one transaction, but for the last of them: releasing waits for the brokers to take it, and nothing
waits for a merge."""

WAIT_S = 0.2
RUN_ENTRIES = 1_000


class Merging:
    """One merge; ``run`` belongs to a thread of the pool, the rest to the worker."""

    def __init__(self, sources: Sequence[Bucket], watermark: Position, bucket_id: int, rules: SealRules) -> None:
        manifests = [source.manifest for source in sources]
        self.sources = tuple(manifest.bucket_id for manifest in manifests)
        own = [each for each in manifests if each.built_from is None]
        self.source_segments = [(each.bucket_id, number) for each in own for number in range(len(each.segments))]
        self.bucket_id = bucket_id
        self._watermark = watermark
        self._manifests = manifests
        self._rules = rules
        self._writer = SegmentWriter(bucket_id, manifests[0].from_offset, manifests[-1].to_offset)
        self._ready: queue.Queue[Encoded | None] = queue.Queue(QUEUED_SEGMENTS)
        self._stopping = threading.Event()
        self._given: list[Encoded] = []
        self._ended = False

    def run(self, reads: MergeReads) -> None:
        """Read, merge and encode; ends early when stopped."""
        if self._stopping.is_set():
            return
        sources = [SourceAhead(reads, manifest, self._watermark) for manifest in self._manifests]
        try:
            self._merge(sources)
        finally:
            for source in sources:
                source.cancel()

    def _merge(self, sources: Sequence[SourceAhead]) -> None:
        merged = heapq.merge(*sources, key=lambda entry: entry[:2])
        for entries in cut(_runs(merged), self._rules, record_size):
            inline = any(record is not None for _, _, record in entries)
            for ref, value in self._writer.encode(Placement.INLINE if inline else Placement.POINTER, entries):
                targets = in_proportion(ref, self._manifests)
                if not self._put(Encoded(ref._replace(targets=targets), value)):
                    return
        self._put(None)

    def stop(self) -> None:
        """Let the thread end; what it has made is never referred to."""
        self._stopping.set()

    def next_segments(self) -> tuple[tuple[bytes, bytes], ...] | None:
        """The next ones as (key, value): empty when none is ready yet, None when all are written.

        The same again until they are ``written``: they may have had to make way for a record that was refused.
        """
        if self._given:
            return self._pairs()
        size_bytes = 0
        while not self._ended and size_bytes < BYTES_AT_ONCE:
            try:
                encoded = self._ready.get_nowait()
            except queue.Empty:
                break
            if encoded is None:
                self._ended = True
            else:
                self._given.append(encoded)
                size_bytes += len(encoded.value)
        if self._ended and not self._given:
            return None
        return self._pairs()

    def _pairs(self) -> tuple[tuple[bytes, bytes], ...]:
        first = self._writer.count
        return tuple((self._writer.key(number), value) for number, (_, value) in enumerate(self._given, first))

    def written(self, record_offsets: Sequence[int]) -> None:
        """The segments given last were committed."""
        self._writer.written([ref for ref, _ in self._given], record_offsets)
        self._given = []

    def installation(self) -> Installation | None:
        """The manifest to install; None when nothing is left of the sources."""
        return Installation(self._writer.manifest(), merged_from=self.sources) if self._writer.count else None

    def _put(self, encoded: Encoded | None) -> bool:
        while not self._stopping.is_set():
            try:
                self._ready.put(encoded, timeout=WAIT_S)
            except queue.Full:
                continue
            return True
        return False


def _runs(entries: Iterator[StoredEntry]) -> Iterator[list[StoredEntry]]:
    return iter(lambda: list(islice(entries, RUN_ENTRIES)), [])

"""Merges neighbouring buckets into one: one thread merges and encodes, another thread reads.

A merge keeps the entries of its sources as columns of rows and joins the rows into segments, as sealing does. No object
is made for each record, so most of the time the merge does not hold the lock of the interpreter. Records that cannot be
rows are merged as objects, together with their neighbours.

The worker takes encoded segments from a short queue and commits them between releases. Then it installs the new
manifest in place of the old ones, in one transaction. The sources may change meanwhile: a record that has been released
since is at or before the watermark, and loading drops it. A failed merge leaves the sources as they are. The pages of
ids are joined behind the segments. Where the ids of one source are not known, the merged bucket has no pages.

The merged bucket begins at the lowest offset of its entries, where its sources may begin far below. Under a steady load
buckets are merged again and again, and a query stays in force as long as a bucket begins in front of its control.

Under the placement ``inline`` a merge reads the records that its sources point to in the delay topic, and writes them
into the segments. A bucket that was sealed with pointers before retention was lowered is merged alone for this purpose.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from pyroaring import BitMap64

from index.buckets.bucket import Bucket, Manifest, Placement
from index.buckets.bucket_rules import SealRules, cut_runs
from index.buckets.target_counts import in_proportion
from index.errors import FormatError
from index.named.id_pages import ROW_BYTES, place_bytes, place_in
from index.named.places import HASH_BYTES
from index.partition.batch import Installation
from index.pending.progress import Position
from index.pending.run import merged
from sidecar.engine.buckets.id_pages import WrittenIds
from sidecar.engine.buckets.merge_reading import IdsAhead, MergedRun, MergeReads, PointedRecords, SourceAhead
from sidecar.engine.limits import Limits
from sidecar.engine.payload.packed_run import PackedRun
from sidecar.engine.payload.packing import unpacked
from sidecar.engine.payload.records import Packed
from sidecar.engine.ports import Handover
from snapshots.segments.codec import PYTHON_CODEC, SegmentCodec
from snapshots.segments.id_pages import EncodedPage, encode_pages, id_page_key
from snapshots.segments.manifest import segment_key
from snapshots.segments.rows import RowPacker
from snapshots.segments.segment import StoredEntry
from snapshots.segments.writing import COLUMN_BYTES, Encoded, SegmentWriter, record_size

M = TypeVar("M", Encoded, EncodedPage)


class Merging:
    """One merge; ``run`` belongs to a thread of the pool, all other methods to the worker."""

    def __init__(
        self,
        sources: Sequence[Bucket],
        watermark: Position,
        bucket_id: int,
        rules: SealRules,
        limits: Limits,
        handover: Handover[Encoded | EncodedPage | None],
        masked: BitMap64 | None = None,
        codec: SegmentCodec = PYTHON_CODEC,
    ) -> None:
        """Take the sources; ``masked`` holds offsets of records that are cancelled for good, and the pages leave out
        their ids.
        """
        manifests = [source.manifest for source in sources]
        self.sources = tuple(manifest.bucket_id for manifest in manifests)
        self.source_keys = [key for each in manifests for key in _keys(each)]
        self.bucket_id = bucket_id
        self._watermark = watermark
        self._manifests = manifests
        self._entries = sum(source.stored for source in sources)
        self._rules = rules
        self._masked = masked or BitMap64()
        self._codec = codec
        self._limits = limits
        self._packer = RowPacker()
        self._writer = SegmentWriter(bucket_id, manifests[0].from_offset, manifests[-1].to_offset)
        self._lowest = manifests[-1].to_offset
        self._handover = handover
        self._segments: _MergedParts[Encoded] = _MergedParts(handover, limits)
        self._given: Sequence[Encoded] = ()
        pages: _MergedParts[EncodedPage] = _MergedParts(handover, limits)
        self._ids = WrittenIds(bucket_id, pages.take, limits)
        self._ids_are_known = all(manifest.id_pages is not None for manifest in manifests)
        self._room = limits.merge_segments - sum(len(manifest.segments) for manifest in manifests)

    def run(self, reads: MergeReads) -> None:
        """Read, merge and encode the sources, then their pages of ids; end early when the merge is stopped."""
        if self._handover.is_closed:
            return
        most_bytes = self._limits.merge_read_bytes
        sources = [
            SourceAhead(reads, manifest, self._watermark, self._packer, most_bytes) for manifest in self._manifests
        ]
        try:
            self._merge(sources, PointedRecords(reads, self._rules.segment_bytes))
        finally:
            for source in sources:
                source.cancel()
        if self._ids_are_known and not self._handover.is_closed:
            self._merge_ids(reads)
        self._handover.put(None)

    def _merge(self, sources: Sequence[SourceAhead], pointed: PointedRecords) -> None:
        for run in cut_runs(merged(sources), self._rules, _sizes, self._entries):
            self._lowest = min(self._lowest, *run.offsets)
            for ref, value in self._encoded(run, pointed):
                targets = in_proportion(ref, self._manifests)
                if not self._handover.put(Encoded(ref._replace(targets=targets), value)):
                    return
        self._handover.put(None)

    def _encoded(self, run: MergedRun, pointed: PointedRecords) -> Iterator[Encoded]:
        whole = run.segment(self._codec) if isinstance(run, PackedRun) else None
        if whole is not None:
            yield whole
            return
        entries = _entries(run)
        inline = any(record is not None for _, _, record in entries)
        lacks = any(record is None for _, _, record in entries)
        # At worst each entry becomes a segment of its own, and a manifest has room for a limited number of segments.
        if lacks and self._rules.placement == "inline" and len(entries) <= self._room:
            self._room += 1
            for part in pointed.parts(entries):
                made = self._writer.encode(Placement.INLINE, part)
                self._room -= len(made)
                yield from made
            return
        yield from self._writer.encode(Placement.INLINE if inline else Placement.POINTER, entries)

    def _merge_ids(self, reads: MergeReads) -> None:
        sources = [IdsAhead(reads, manifest, self._limits.merge_read_bytes) for manifest in self._manifests]
        try:
            count = sum(page.rows for manifest in self._manifests for page in manifest.id_pages or ())
            rows = heapq.merge(*map(self._left, self._manifests, sources))
            for page in encode_pages(rows, count, self._limits.page_rows):
                if not self._handover.put(page):
                    return
        except FormatError:
            # Without pages a lookup reads the segments.
            self._ids_are_known = False
        finally:
            for source in sources:
                source.cancel()

    def _left(self, manifest: Manifest, rows: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the rows of a source that still apply in the merged bucket."""
        masked, passed, offsets = self._masked, place_bytes(self._watermark), manifest.offsets
        is_all_own = manifest.built_from is None and not masked
        for row in rows:
            if row[HASH_BYTES:ROW_BYTES] <= passed:
                continue
            if is_all_own or ((offset := place_in(row).offset) in offsets and offset not in masked):
                yield row

    def stop(self) -> None:
        """Let the thread end; nothing ever refers to the segments that it has made."""
        self._handover.close()

    def next_segments(self) -> tuple[tuple[bytes, bytes], ...] | None:
        """Return the next segments, then pages of ids, as (key, value); empty when none is ready, None at the end.

        Returns the same ones until they are ``written``, since they may have had to make way for a record that was
        refused.
        """
        if not self._given:
            taken = self._segments.take()
            if taken is None:
                return self._ids.next_pages() if self._writer.count else None
            self._given = taken
        first = self._writer.count
        return tuple((self._writer.key(number), value) for number, (_, value) in enumerate(self._given, first))

    def written(self, record_offsets: Sequence[int]) -> None:
        """Note that the segments or pages given last were committed."""
        if not self._given:
            self._ids.written(record_offsets)
            return
        self._writer.written([ref for ref, _ in self._given], record_offsets)
        self._given = ()

    def installation(self) -> Installation | None:
        """Return the manifest to install; None when nothing is left of the sources."""
        if not self._writer.count:
            return None
        id_pages = self._ids.refs() if self._ids_are_known else None
        manifest = replace(self._writer.manifest(), from_offset=self._lowest, id_pages=id_pages)
        return Installation(manifest, merged_from=self.sources)


class _MergedParts(Generic[M]):
    """Takes segments or pages from the handover, for the worker: some at a time, up to the None behind the last."""

    def __init__(self, handover: Handover[Any], limits: Limits) -> None:
        self._handover = handover
        self._most_bytes = limits.merge_bytes
        self._ended = False

    def take(self) -> Sequence[M] | None:
        """Return the ones that are ready, up to a limit of bytes: empty when none is ready, None behind the last."""
        taken: list[M] = []
        size_bytes = 0
        while not self._ended and size_bytes < self._most_bytes:
            ready = self._handover.take()
            if not ready:
                break
            (made,) = ready
            if made is None:
                self._ended = True
            else:
                taken.append(made)
                size_bytes += len(made.value)
        return None if self._ended and not taken else taken


def page_keys(manifest: Manifest) -> list[bytes]:
    """Return the keys of a bucket's pages of ids; none for an adopted bucket, whose pages belong to the job that wrote
    them.
    """
    pages = (manifest.id_pages or ()) if manifest.built_from is None else ()
    return [id_page_key(manifest.bucket_id, number) for number in range(len(pages))]


def _keys(manifest: Manifest) -> list[bytes]:
    segments = manifest.segments if manifest.built_from is None else ()
    return [segment_key(manifest.bucket_id, number) for number in range(len(segments))] + page_keys(manifest)


def _sizes(run: MergedRun) -> Sequence[int]:
    """Return about how many bytes each entry of a run takes in an inline segment."""
    if isinstance(run, PackedRun):
        return run.stored_sizes
    return [COLUMN_BYTES + len(each.row) if isinstance(each, Packed) else record_size(each) for _, _, each in run]


def _entries(run: MergedRun) -> list[StoredEntry]:
    """Return the entries of a run with every record unpacked."""
    entries = [*run]
    rows = iter(unpacked([each for _, _, each in entries if isinstance(each, Packed)]))
    return [(due_ms, offset, next(rows) if isinstance(each, Packed) else each) for due_ms, offset, each in entries]

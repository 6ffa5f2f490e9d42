"""Routers with one mistake each about pages of ids and their lookup; see :mod:`.wrong`."""

from collections.abc import Container, Iterable, Iterator
from functools import partial
from typing import ClassVar

from index.buckets.bucket import Bucket, Manifest
from index.named.id_lookup import IdLookup
from index.partition.batch import Installation
from index.pending.progress import Position
from sidecar.engine.buckets.ids import StoredIds, Tell
from sidecar.engine.buckets.lifecycle import Housekeeping
from sidecar.engine.buckets.merging import Merging, page_keys
from sidecar.engine.ports import Records
from tests.simulation.replacing import OWNED, Wrong


def _without_pages(watermark: Position, buckets: Iterable[Bucket], being_read: Container[int] = ()) -> int | None:
    offsets = [
        segment.record_offset
        for bucket in buckets
        for segment in bucket.manifest.segments[
            0 if bucket.manifest.bucket_id in being_read else bucket.passed(watermark) :
        ]
    ]
    return min(offsets, default=None)


class PagesTrimmed(Wrong):
    """Trims the snapshots topic up to the first live segment, and ignores the pages of ids in front of it."""

    replaces: ClassVar = {"sidecar.engine.buckets.trimming.snapshots_needed_from": _without_pages}


class _ReclaimsPages(Housekeeping):
    def _installed(self, installed: Installation) -> None:
        super()._installed(installed)
        if not installed.merged_from:
            self._tombstones.orphaned += page_keys(list(self._ledger.parts.buckets.values())[-1].manifest)


class PagesReclaimed(Wrong):
    """Removes the pages of a bucket once it is sealed, though controls still look up ids in them."""

    replaces: ClassVar = {OWNED + "Housekeeping": _ReclaimsPages}


class _DropsPages(Merging):
    def _left(self, manifest: Manifest, rows: Iterable[bytes]) -> Iterator[bytes]:
        return iter(()) if manifest is self._manifests[-1] else super()._left(manifest, rows)


class MergeDropsPages(Wrong):
    """Leaves the ids of one source out of a merged bucket."""

    replaces: ClassVar = {"sidecar.engine.buckets.lifecycle.Merging": _DropsPages}


class _TrustsDamaged(StoredIds):
    def _read_all(self, manifest: Manifest, first: int, reader: Records) -> Tell:
        if manifest.id_pages is None:
            return super()._read_all(manifest, first, reader)
        return partial(self._ledger.named.names.lookup.found, manifest.offsets, ())


class DamagedPageTrusted(Wrong):
    """Treats the ids of a damaged page as not pending."""

    replaces: ClassVar = {OWNED + "StoredIds": _TrustsDamaged}


class _CoversAll(IdLookup):
    def covers(self, offsets: range) -> bool:
        return bool(self._known)


class LookedUpOnce(Wrong):
    """Looks for an id in one bucket only."""

    replaces: ClassVar = {"index.named.names.IdLookup": _CoversAll}


ALL: tuple[type[Wrong], ...] = (PagesTrimmed, PagesReclaimed, MergeDropsPages, DamagedPageTrusted, LookedUpOnce)

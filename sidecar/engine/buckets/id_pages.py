"""Writes the pages of ids (:mod:`index.named.id_pages`) of one partition behind the segments of a bucket, and reads
them back.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Final, Protocol, TypeAlias, TypeVar

import structlog

from index.buckets.bucket import Manifest
from index.errors import FormatError
from index.named.id_pages import ROW_BYTES, IdPage, IdPageRef, IdRows, rows_in_order, rows_of_a_page
from index.named.places import Places, Shifts
from index.protocol.record import Record
from sidecar.engine.limits import Limits
from sidecar.engine.ports import Records
from snapshots.segments.id_pages import EncodedPage, IdPageWriter, decode_page, encode_pages

T = TypeVar("T")

READ_AT_ONCE: Final = 128
"""Pages that are read together, since each read waits for a round trip."""

CACHED_BYTES: Final = 416 * 1_048_576
"""Most bytes of the pages of one partition that are kept after reading: at 40 bytes a row, the pages of ten million
ids. Where a partition has more ids and controls come for any of them, each lot of controls reads the missing pages
again."""


class Encode(Protocol):
    """Encodes in another thread, one piece of work after the other."""

    def __call__(self, work: Callable[[], T], /) -> Future[T]:
        """Return a future, which gets the result of the work."""


Take: TypeAlias = Callable[[], Sequence[EncodedPage] | None]
"""Returns the next pages: empty when none is ready yet, None behind the last."""


class SealedIds:
    """The pages of a bucket that is being sealed, encoded in another thread; encoding begins with the first request."""

    def __init__(self, places: Places, shifts_ms: Shifts, encode: Encode, limits: Limits) -> None:
        """Take the places and their shifts, which must not change any more."""
        self._pages = encode_pages(rows_in_order(places, shifts_ms), len(places), limits.page_rows)
        self._has_any = bool(places)
        page_bytes = ROW_BYTES * rows_of_a_page(len(places), limits.page_rows)
        self._at_once = max(1, limits.page_write_bytes // page_bytes)
        self._encode = encode
        self._encoding: Future[list[EncodedPage]] | None = None

    def take(self) -> Sequence[EncodedPage] | None:
        """Return the next pages, as ``Take`` says."""
        if not self._has_any:
            return None
        if self._encoding is None:
            self._encoding = self._encode(lambda: list(islice(self._pages, self._at_once)))
        if not self._encoding.done():
            return ()
        encoded, self._encoding = self._encoding.result(), None
        return encoded or None


class WrittenIds:
    """Gives the pages of one bucket to its transactions."""

    def __init__(self, bucket_id: int, take: Take, limits: Limits) -> None:
        self._writer = IdPageWriter(bucket_id, limits.max_pages)
        self._take = take
        self._given: Sequence[EncodedPage] = ()

    def next_pages(self) -> tuple[tuple[bytes, bytes], ...] | None:
        """Return the next pages as (key, value): empty when none is ready yet, None when all are written.

        Returns the same pages until they are ``written``.
        """
        if not self._given:
            taken = None if self.refs() is None else self._take()
            if taken is None:
                return None
            self._given = taken
        return self._writer.keyed(self._given)

    def written(self, record_offsets: Sequence[int]) -> None:
        """Note that the pages given last were committed."""
        self._writer.written(self._given, record_offsets)
        self._given = ()

    def refs(self) -> tuple[IdPageRef, ...] | None:
        """Return the references to the pages, for the manifest; None where there are too many pages."""
        return self._writer.refs()


class IdPageSource:
    """Reads pages of one partition; used by several threads, each with its own reader.

    Pages that were read lately are kept for the one thread that looks for ids: only that thread calls ``pages``.
    """

    def __init__(
        self,
        topic: str,
        snapshots: str,
        partition: int,
        limits: Limits,
        most_bytes: int = CACHED_BYTES,
    ) -> None:
        self._place = snapshots, partition
        self._limits = limits
        self._most_bytes = most_bytes
        self._size_bytes = 0
        self._cached: OrderedDict[int, IdPage] = OrderedDict()
        self._log = structlog.get_logger().bind(topic=topic, partition=partition)

    def read(self, manifest: Manifest, numbers: Sequence[int], reader: Records) -> list[IdRows]:
        """Read some pages of a bucket, in ascending order.

        Raise ClusterError when the cluster does not answer. Raise FormatError, and log it, when a page is missing or
        damaged.
        """
        refs = [(manifest.id_pages or ())[number] for number in numbers]
        read = self._records(sorted(ref.record_offset for ref in refs), reader)
        pages: list[IdRows] = []
        for number, ref in zip(numbers, refs, strict=True):
            record = read[ref.record_offset]
            try:
                pages.append(decode_page(ref, None if record is None else record.value))
            except FormatError as error:
                self._log.error("id_page_damaged", page=number, bucket=manifest.bucket_id, why=str(error))
                raise
        return pages

    def pages(self, manifest: Manifest, numbers: Sequence[int], reader: Records) -> Iterator[tuple[int, IdPage]]:
        """Yield some pages of a bucket with their numbers, ascending; read only the pages that the cache lacks.

        Raises the errors of ``read``.
        """
        refs = manifest.id_pages or ()
        for at in range(0, len(numbers), READ_AT_ONCE):
            lot = numbers[at : at + READ_AT_ONCE]
            pages = {number: page for number in lot if (page := self._remembered(refs[number])) is not None}
            missing = [number for number in lot if number not in pages]
            if missing and sum(ref.size_bytes for ref in refs) <= self._limits.pages_whole_bytes:
                missing = [number for number in range(len(refs)) if number not in pages]
            read = self.read(manifest, missing, reader) if missing else []
            for number, page in zip(missing, map(IdPage, read), strict=True):
                pages[number] = page
                self._remember(refs[number], page)
            yield from ((number, pages[number]) for number in lot)

    def _records(self, offsets: Sequence[int], reader: Records) -> dict[int, Record | None]:
        lie_close = len(offsets) > 1 and offsets[-1] - offsets[0] < 2 * len(offsets)
        if len(offsets) > self._limits.pages_apart or lie_close:
            return reader.read_large(*self._place, offsets)
        found: dict[int, Record | None] = {}
        for offset in offsets:
            found |= reader.read_apart(*self._place, [offset])
        return found

    def _remembered(self, ref: IdPageRef) -> IdPage | None:
        page = self._cached.get(ref.record_offset)
        if page is not None:
            self._cached.move_to_end(ref.record_offset)
        return page

    def _remember(self, ref: IdPageRef, page: IdPage) -> None:
        self._forget(ref.record_offset)
        self._cached[ref.record_offset] = page
        self._size_bytes += page.size_bytes
        while self._size_bytes > self._most_bytes and len(self._cached) > 1:
            self._forget(next(iter(self._cached)))

    def _forget(self, record_offset: int) -> None:
        page = self._cached.pop(record_offset, None)
        self._size_bytes -= 0 if page is None else page.size_bytes

    def forget_others(self, record_offsets: set[int]) -> None:
        """Drop the cached pages that belong to no bucket any more."""
        for gone in self._cached.keys() - record_offsets:
            self._forget(gone)

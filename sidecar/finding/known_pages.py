"""Pages of ids that were read lately: each id that is looked for needs one of nearly every bucket."""

from collections.abc import Callable, Hashable
from typing import Final

from index.errors import FormatError
from index.id_pages import IdPage, IdPageRef
from sidecar.finding.remembered import Remembered
from snapshots.id_pages import decode_page

MOST_BYTES: Final = 64 * 1_048_576
"""Of all pages; what was not asked for longest is forgotten first."""


class KnownPages:
    """Of all partitions that were looked at; any thread may ask."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._known = Remembered[Hashable, IdPage](most_bytes)

    def page(self, place: Hashable, ref: IdPageRef, read: Callable[[], bytes | None]) -> IdPage | None:
        """A page of the partition at a place, read where it is not known; None when it is not the one that is meant."""
        # With all that the manifest says of it, so that it is no other should the topic have been created again.
        key = place, ref
        page = self._known.get(key)
        if page is None:
            try:
                page = IdPage(decode_page(ref, read()))
            except FormatError:
                # Whoever serves the partition tells of it.
                return None
            self._known.keep(key, page, page.size_bytes)
        return page

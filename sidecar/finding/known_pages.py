"""Pages of ids that were read lately: each id that is looked for needs one of nearly every bucket."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from index.errors import FormatError
from index.id_pages import IdPage, IdPageRef
from snapshots.id_pages import decode_page

MOST_BYTES: Final = 64 * 1_048_576
"""Of all pages; what was not asked for longest is forgotten first."""


class KnownPages:
    """Of all partitions that were looked at; any thread may ask."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._size_bytes = 0
        self._known: OrderedDict[object, IdPage] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, place: object, ref: IdPageRef, read: Callable[[], bytes | None]) -> IdPage | None:
        """A page of the partition at a place, read where it is not known; None when it is not the one that is meant."""
        # With all that the manifest says of it, so that it is no other should the topic have been created again.
        key = place, ref
        with self._lock:
            page = self._known.get(key)
            if page is not None:
                self._known.move_to_end(key)
                return page
        try:
            page = IdPage(decode_page(ref, read()))
        except FormatError:
            # Whoever serves the partition tells of it.
            return None
        with self._lock:
            if key not in self._known:
                self._known[key] = page
                self._size_bytes += page.size_bytes
            while self._size_bytes > self._most_bytes and len(self._known) > 1:
                self._size_bytes -= self._known.popitem(last=False)[1].size_bytes
        return page

"""Manifests that were decoded before: the state of a partition has the same ones again nearly each time it is read.

With ten million pending they take longer to decode than to find an id, and no other thread goes on meanwhile.
"""

from typing import Final

from index.bucket import Manifest
from sidecar.finding.remembered import Remembered
from snapshots.manifest import decode_manifest

MOST_BYTES: Final = 64 * 1_048_576
"""Of all manifests, encoded and decoded; what was not asked for longest is forgotten first."""

_SEGMENT_BYTES: Final = 600
_PAGE_BYTES: Final = 200


class KnownManifests:
    """Of all partitions that were looked at; any thread may ask."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._known = Remembered[tuple[bytes, bytes], Manifest](most_bytes)

    def manifest(self, key: bytes, value: bytes) -> Manifest:
        """As ``decode_manifest``."""
        manifest = self._known.get((key, value))
        if manifest is None:
            manifest = decode_manifest(key, value)
            pages = len(manifest.id_pages or ())
            size = len(value) + _SEGMENT_BYTES * len(manifest.segments) + _PAGE_BYTES * pages
            self._known.keep((key, value), manifest, size)
        return manifest

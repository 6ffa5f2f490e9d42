"""A record of a delay topic, as it was read."""

from typing import NamedTuple

from index.protocol.headers import Headers


class Record(NamedTuple):
    """A record as its producer wrote it: null differs from empty, and headers keep their order and their duplicates."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

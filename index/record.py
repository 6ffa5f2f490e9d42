"""A record of a delay topic, as it came."""

from typing import NamedTuple

from index.headers import Headers


class Record(NamedTuple):
    """What a producer wrote: null is not empty, and headers keep their order and their duplicates."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

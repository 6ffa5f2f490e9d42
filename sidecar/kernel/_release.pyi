# _release.pyx documents the class.
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer

REVISION: int

class Writer:
    def __init__(
        self,
        producer: Producer,
        handle_at: int,
        addresses: Mapping[str, int],
        stripped: Mapping[str, bool],
        keep_key: object,
        source: bytes,
    ) -> None: ...
    def release(self, entries: list[Any], start: int, most: int, modes: dict[str | None, int]) -> tuple[int, int]: ...

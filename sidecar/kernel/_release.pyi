# _release.pyx documents the class.
from collections.abc import Mapping
from typing import Any

from sidecar.kernel._fetching import Watch

REVISION: int

class Writer:
    def __init__(
        self,
        watch: Watch,
        addresses: Mapping[str, int],
        stripped: dict[str, bool],
        counted: dict[str, bool],
        keep_key: object,
        source: bytes,
    ) -> None: ...
    def release(self, entries: list[Any], start: int, most: int, modes: dict[str | None, int]) -> tuple[int, int]: ...

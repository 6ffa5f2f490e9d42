# _deciding.pyx documents the class.
from collections.abc import Callable, Sequence
from typing import Any

from sidecar.kernel._fetching import Messages
from sidecar.kernel.common_form import CommonForm

REVISION: int

class Decider:
    def __init__(
        self,
        form: CommonForm,
        packer: object,
        hash_of: Callable[[bytes], bytes],
        kinds: tuple[type, ...],
        keep_key: object,
    ) -> None: ...
    def decide(
        self,
        messages: Sequence[Any] | Messages,
        headers: Sequence[Any],
        start: int,
        below: int,
        far_ms: int,
        room_bytes: int,
        run: list[Any],
        names: dict[int, bytes],
    ) -> tuple[int, int, int]: ...

"""The thread of a worker: errors that come one behind the other do not end it."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import cast

from sidecar.engine.ownership.status import PartitionState
from sidecar.process.host.worker import Worker


class Scene:
    """A worker whose loop fails once, and then serves until it is stopped."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.status = SimpleNamespace(state=PartitionState.WAITING)
        self.begun = self.told = 0
        self.loop = self
        self._shared = SimpleNamespace(clock=SimpleNamespace(sleep=sleep))
        self._context = SimpleNamespace(limits=SimpleNamespace(first_pause_s=0.2))
        self._stopping = threading.Event()

    def steps(self) -> Iterator[float]:
        self.begun += 1
        if self.begun == 1:
            raise MemoryError
        self.status.state = PartitionState.STOPPED
        yield 0.0

    def _tell_failed(self) -> None:
        self.told += 1


def test_an_error_in_the_pause_behind_an_error_does_not_end_the_thread() -> None:
    slept_s: list[float] = []

    def sleep(seconds: float) -> None:
        slept_s.append(seconds)
        if len(slept_s) == 2:
            raise MemoryError

    scene = Scene(sleep)
    Worker.run(cast("Worker", scene))
    assert slept_s == [0.0, 0.2, 0.2]
    assert (scene.begun, scene.told) == (2, 2)

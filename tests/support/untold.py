"""An answer of an admin client that a process does not get to see."""

from concurrent.futures import Future
from typing import Any


class Untold(Future[Any]):
    """An answer that the client has not told when the wait for it ends, as in a process that has stood still."""

    def result(self, timeout: float | None = None) -> object:
        raise TimeoutError

    def exception(self, timeout: float | None = None) -> BaseException | None:
        raise TimeoutError

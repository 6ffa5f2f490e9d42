"""Runs calls that wait for Kafka off the event loop, in few threads, with a limited queue and a timeout."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final, TypeVar

from sidecar.http.problems import Refusal

T = TypeVar("T")

TIMEOUT_S: Final = 20.0
"""Time after which the caller gets 504; less than the time limit of a connection."""

MAX_UNDER_WAY: Final = 32
READING_THREADS: Final = 6
CHANGING_THREADS: Final = 2
PRODUCING_THREADS: Final = 4
CANCELLING_THREADS: Final = 4


class Calls:
    """A thread pool for one kind of call."""

    def __init__(self, name: str, threads: int, timeout_s: float) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._under_way = 0

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run the function in the pool and return its result; raise a Refusal when too many wait or time runs out."""
        with self._lock:
            if self._under_way >= MAX_UNDER_WAY:
                raise Refusal(
                    HTTPStatus.SERVICE_UNAVAILABLE, "too many requests wait for the cluster", {"retry-after": "1"}
                )
            self._under_way += 1
        future = self._pool.submit(function, *arguments)
        future.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if future.done() and not future.cancelled():
                # The function itself raised the TimeoutError.
                raise
            raise Refusal(
                HTTPStatus.GATEWAY_TIMEOUT,
                f"no answer from the cluster within {self._timeout_s:.0f} s; a change may still come about",
            ) from None

    def stop(self) -> None:
        """Begin no further call; one that is under way goes on."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ended(self, _: "Future[Any]") -> None:
        with self._lock:
            self._under_way -= 1

"""What was used lately is remembered, up to a size."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Values by key, until those that are newer take ``most`` together; any thread may ask.

    >>> remembered = Remembered[str, bytes](most=3)
    >>> remembered.keep("a", b"12", size=2), remembered.keep("b", b"34", size=2)
    (True, False)
    >>> remembered.get("a"), remembered.get("b")
    (None, b'34')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._known: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """The value, which from now on is the one that was used last; None where there is none."""
        with self._lock:
            found = self._known.get(key)
            if found is None:
                return None
            self._known.move_to_end(key)
            return found[0]

    def keep(self, key: K, value: V, size: int) -> bool:
        """Remember it, in place of what was used longest ago where there is no room for both; whether there was.

        One that is larger than all of it by itself is kept.
        """
        with self._lock:
            before = self._known.pop(key, None)
            self._size += size - (0 if before is None else before[1])
            self._known[key] = value, size
            has_room = self._size <= self._most
            while self._size > self._most and len(self._known) > 1:
                self._size -= self._known.popitem(last=False)[1][1]
            return has_room

    def forget(self, key: K) -> None:
        """Let go of a value, if it is there."""
        with self._lock:
            before = self._known.pop(key, None)
            self._size -= 0 if before is None else before[1]

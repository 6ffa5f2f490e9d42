"""Looks again, each second, at the places in doubt of an owned partition, until none is left."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final

from index.errors import ClusterError, forget_frames
from sidecar.engine.context import PartitionContext
from sidecar.engine.ports import Place
from sidecar.engine.release.aside import TOLD_AT_MOST, Doubts

LOOK_EVERY_S: Final = 1.0

LookAgain = Callable[[Doubts], "Future[Doubts]"]
"""Asks the cluster which of these places are still in doubt."""


class DoubtWatch:
    """The watch over the doubts of one owned partition; used by its worker only.

    ``use`` is called with the places in doubt whenever they change.
    """

    def __init__(self, context: PartitionContext, use: Callable[[Doubts], None], look_again: LookAgain) -> None:
        self._clock = context.clock
        self._log = context.log
        self._use = use
        self._look_again = look_again
        self._doubts: Doubts = {}
        self._asked: Future[Doubts] | None = None
        self._ask_next_s = 0.0

    def begin(self, doubts: Doubts) -> None:
        """Start with the places that the take-over has found."""
        self._take(doubts)

    def turn(self) -> None:
        """Take an answer that has come, or ask again when it is time."""
        if not self._doubts:
            return
        now_s = self._clock.running_s()
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            try:
                self._take(asked.result())
            except ClusterError as error:
                # Without an answer the doubts remain; the brokers are asked again in a second.
                forget_frames(error)
                return
        elif self._asked is None and now_s >= self._ask_next_s:
            self._ask_next_s = now_s + LOOK_EVERY_S
            self._asked = self._look_again(self._doubts)

    def _take(self, doubts: Doubts) -> None:
        gone, new = self._doubts.keys() - doubts.keys(), doubts.keys() - self._doubts.keys()
        self._doubts = doubts
        if new:
            self._log.warning("partitions_in_doubt", places=_names(doubts))
        if gone:
            self._log.info("partitions_no_longer_in_doubt", places=_names(gone), left=len(doubts))
        if new or gone:
            self._use(doubts)


def _names(places: Iterable[Place]) -> list[str]:
    return [f"{topic}/{partition}" for topic, partition in sorted(places)[:TOLD_AT_MOST]]

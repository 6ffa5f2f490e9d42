"""Finds out whether an open transaction of another client hides the end of a delay partition.

A consumer that reads committed records stops at the first record of the oldest open transaction, even if other
producers wrote the records behind it. A transaction that ends needs no report. A transaction whose client hangs, or
that the brokers have lost, holds up every delivery behind it, while every visible record is released and all looks
well.

No request is made while all is well: the tail knows its own position and the end of the log. When the tail stands still
in front of the end, a thread of the pool asks the cluster for the reason.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, NamedTuple

import structlog

from index.errors import ClusterError, forget_frames

AFTER_S: Final = 10.0
"""Time that the end must have been hidden before it is reported; transactions that end are shorter."""

ASK_EVERY_S: Final = 5.0


class Edges(NamedTuple):
    """The end of the readable part of a partition, and the end of its log."""

    settled: int
    end: int


class HiddenEnd:
    """The watch over one owned delay partition; used by its worker only.

    ``bootstrap`` names the brokers that a person would use.
    """

    def __init__(self, ask: Callable[[], Future[Edges]], bootstrap: str, place: tuple[str, int]) -> None:
        self._ask = ask
        self._bootstrap = bootstrap
        self._topic, self._partition = place
        self._stands_at = -1
        self._since_s = 0.0
        self._ask_next_s = 0.0
        self._asked: Future[Edges] | None = None
        self._edges: Edges | None = None
        self._log = structlog.get_logger().bind(topic=place[0], partition=place[1])

    def turn(self, now_s: float, indexed_to: int, lag: int) -> None:
        """Take one look; ``lag`` is the number of offsets from ``indexed_to`` to the end of the log, open transactions
        included.
        """
        if indexed_to != self._stands_at or lag <= 0:
            if self._edges is not None:
                self._log.info("delay_topic_no_longer_hidden", after_s=round(now_s - self._since_s))
            self._stands_at, self._since_s, self._edges, self._asked = indexed_to, now_s, None, None
            return
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            self._take_in(asked, now_s)
        if self._asked is None and now_s >= max(self._since_s + AFTER_S, self._ask_next_s):
            self._ask_next_s = now_s + ASK_EVERY_S
            self._asked = self._ask()

    def seconds(self, now_s: float) -> float:
        """Return for how long the end has been hidden; 0 when it is not."""
        return 0.0 if self._edges is None else now_s - self._since_s

    def why(self, now_s: float) -> str:
        """Name the transaction by its first offset, and say how to end it; return an empty text when there is none."""
        if self._edges is None:
            return ""
        settled, end = self._edges
        return (
            f"an open transaction on {self._topic}/{self._partition} hides offsets {settled} to {end - 1} for"
            f" {now_s - self._since_s:.0f} s. It ends with its producer, or that one's transaction.timeout.ms; where it"
            f" does not: kafka-transactions.sh --bootstrap-server {self._bootstrap} abort --topic {self._topic}"
            f" --partition {self._partition} --start-offset {settled}"
        )

    def _take_in(self, asked: "Future[Edges]", now_s: float) -> None:
        try:
            edges = asked.result()
        except ClusterError as error:
            # A later turn asks again, and another part reports brokers that are away.
            forget_frames(error)
            return
        # If the readable part grew meanwhile, its records have yet to be read, or intake stands still for its own
        # reasons.
        is_hidden = edges.settled <= self._stands_at and edges.settled < edges.end
        told, self._edges = self._edges, edges if is_hidden else None
        if is_hidden and told is None:
            self._log.error("delay_topic_hidden", why=self.why(now_s))

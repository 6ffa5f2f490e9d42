"""Finds partitions that the group assigns to no member, and has them assigned.

A static member that dies while it gives partitions up gets its other partitions back when it starts again, without a
rebalance. The partitions that it gave up then belong to no member, until the next rebalance::

    router 0, owner of 0 to 3     router 1 joins: the group asks router 0 to give 0 and 1 up
    router 0 stops 0 and 1        it would now join again, so that the group can assign 0 and 1 to router 1
    SIGKILL, and a new start      the group knows its name: it has 2 and 3, as before; 0 and 1 have no owner

Every router looks at the group. If partitions have had no owner for ``FOR_S``, the first member that subscribes to
their topic leaves the group and joins it anew, which makes the group assign all partitions. Partitions that are added
to a topic have no owner until the members look at the topic again, which is no trouble.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import structlog

from sidecar.clock import Clock
from sidecar.kafka.client.group_view import GroupView
from sidecar.kafka.client.membership import Partition

FOR_S: Final = 3.0
"""The time after which partitions without an owner are no part of a rebalance: a worker that serves ends sooner."""

APART_S: Final = 60.0
"""Least time between two members that join anew, and the time for which added partitions are new: the members look for
them every 30 s."""


class _PartitionCount(NamedTuple):
    """The number of partitions of a topic: without those that are new, and with them since a time."""

    settled: int
    all: int
    since_s: float


class Ownerless:
    """Looks at the group in one thread; ``doubted`` is set to be called again soon.

    ``partitions`` are the numbers of partitions of the served delay topics. ``join_anew`` is called with the id of the
    member that has to leave the group and join it again; every other member ignores it.
    """

    def __init__(
        self,
        view: Callable[[], GroupView | None],
        partitions: Mapping[str, int],
        join_anew: Callable[[str], None],
        doubted: threading.Event,
        clock: Clock,
    ) -> None:
        self._view = view
        self._partitions = partitions
        self._join_anew = join_anew
        self._doubted = doubted
        self._clock = clock
        self._counts: dict[str, _PartitionCount] = {}
        self._found: frozenset[Partition] = frozenset()
        self._since_s = 0.0
        self._not_before_s = 0.0
        self._log = structlog.get_logger()

    def look(self) -> None:
        """Look once; raise KafkaException if the cluster does not answer."""
        view, now_s = self._view(), self._clock.running_s()
        found = frozenset() if view is None else view.without_owner(frozenset(self._expected(now_s)))
        if found != self._found:
            self._found, self._since_s = found, now_s
        if view is None or not found or now_s < self._not_before_s:
            return
        if now_s - self._since_s < FOR_S:
            self._doubted.set()
            return
        self._not_before_s = now_s + APART_S
        first = view.first_of(found)
        named = [f"{topic}/{number}" for topic, number in sorted(found)]
        self._log.warning("partitions_without_owner", partitions=named, joins_anew=first)
        if first is not None:
            self._join_anew(first)

    def _expected(self, now_s: float) -> Iterator[Partition]:
        """Yield the partitions that are not new."""
        for topic, count in self._partitions.items():
            known = self._counts.get(topic, _PartitionCount(count, count, now_s))
            if count != known.all:
                known = _PartitionCount(min(known.settled, count), count, now_s)
            elif now_s - known.since_s >= APART_S:
                known = _PartitionCount(count, count, known.since_s)
            self._counts[topic] = known
            yield from ((topic, number) for number in range(known.settled))

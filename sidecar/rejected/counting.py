"""How much lies in a rejected topic, by code: the newest of it, so that it costs the same however much there is."""

import time
from dataclasses import dataclass
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient

from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.rejected.log import RejectedLog
from sidecar.rejected.records import Mark, RejectedRecord, read
from sidecar.rejected.selection import id_names

MOST_COUNTED: Final = 20_000
"""Offsets of the rejected topic that are read, of all partitions together."""

COUNT_FOR_S: Final = 8.0


@dataclass
class CodeCount:
    """Records that were rejected with one code."""

    records: int = 0
    redriven: int = 0
    """Those of them that were driven again."""
    last_ms: int = 0
    """When the newest was rejected."""


class Counted(NamedTuple):
    """Counts by code; not ``is_whole`` where older records were not looked at."""

    codes: dict[str, CodeCount]
    is_whole: bool


class Counts:
    """What was rejected of each delay topic; read again only once something was written or removed.

    Whoever watches asks every half minute, and most of the time nothing was rejected meanwhile.
    """

    def __init__(self, config: Config, admin: AdminClient) -> None:
        self._config = config
        self._admin = admin
        self._known: dict[str, tuple[dict[int, range], Counted]] = {}

    def of(self, topic: DelayTopicConfig) -> Counted:
        """KafkaException when the cluster does not answer, OutOfTimeError when it takes too long to."""
        with RejectedLog(self._config, self._admin, topic.rejected, time.monotonic() + COUNT_FOR_S) as log:
            there = log.committed()
            read_before, counted = self._known.get(topic.name, (None, None))
            if counted is None or read_before != there:
                counted = _counted(log, there, topic)
                self._known[topic.name] = there, counted
        return counted


def _counted(log: RejectedLog, there: dict[int, range], topic: DelayTopicConfig) -> Counted:
    newest = newest_of(there, MOST_COUNTED)
    names = id_names(topic)
    counting = Counting(topic.name)
    for message in log.scan(newest):
        counting.add(read(message, names))
    return Counted(counting.by_code(), newest == there)


def newest_of(offsets: dict[int, range], most: int) -> dict[int, range]:
    """The end of each partition, as much as its share of ``most``.

    A mark lies behind what it names, so those of all that is left are there.

    >>> newest_of({0: range(3, 10), 1: range(0, 2)}, 8)
    {0: range(6, 10), 1: range(0, 2)}
    """
    share = max(1, most // max(1, len(offsets)))
    return {number: range(max(each.start, each.stop - share), each.stop) for number, each in offsets.items()}


class Counting:
    """Counts what it is given of one delay topic, in any order."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._found: dict[tuple[int, int], RejectedRecord] = {}
        self._marked: set[tuple[int, int]] = set()

    def add(self, each: RejectedRecord | Mark | None) -> None:
        """Take in what a message of the rejected topic is."""
        if isinstance(each, Mark):
            self._marked.update((each.partition, offset) for offset in each.offsets)
        elif each is not None and each.source.topic == self._topic:
            # Without key, value and headers, which may be large.
            self._found[each.place] = each._replace(key=None, value=None, headers=[])

    def by_code(self) -> dict[str, CodeCount]:
        """The counts, in the order of the codes."""
        found: dict[str, CodeCount] = {}
        for place, record in self._found.items():
            count = found.setdefault(record.code, CodeCount())
            count.records += 1
            count.redriven += place in self._marked
            count.last_ms = max(count.last_ms, record.rejected_ms)
        return dict(sorted(found.items()))

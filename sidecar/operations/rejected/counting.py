"""Counts the newest records of a rejected topic by code; the limit keeps the cost independent of the topic's size."""

import time
from dataclasses import dataclass
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient

from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.operations.rejected.log import RejectedLog
from sidecar.operations.rejected.records import Mark, RejectedRecord, read
from sidecar.operations.rejected.selection import id_names

MOST_COUNTED: Final = 20_000
"""Offsets of the rejected topic that are read, in all partitions together."""

COUNT_FOR_S: Final = 8.0


@dataclass
class CodeCount:
    """Records that were rejected with one code."""

    records: int = 0
    redriven: int = 0
    """Number of these records that were driven again."""
    last_ms: int = 0
    """Time at which the newest one was rejected."""


class Counted(NamedTuple):
    """Counts by code; ``is_whole`` is false where older records were not read."""

    codes: dict[str, CodeCount]
    is_whole: bool


class Counts:
    """Counts the rejected records of each delay topic; reads them again only when the topic has changed.

    Monitoring asks every half minute, and most of the time no record was rejected meanwhile.
    """

    def __init__(self, config: Config, admin: AdminClient) -> None:
        self._config = config
        self._admin = admin
        self._known: dict[str, tuple[dict[int, range], Counted]] = {}

    def of(self, topic: DelayTopicConfig) -> Counted:
        """Return the counts of a delay topic.

        Raise KafkaException when the cluster does not answer, and OutOfTimeError when reading takes too long.
        """
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
    """Return the newest offsets of each partition, up to its share of ``most``.

    A mark lies behind the records that it names, so the marks of all these records are among them.

    >>> newest_of({0: range(3, 10), 1: range(0, 2)}, 8)
    {0: range(6, 10), 1: range(0, 2)}
    """
    share = max(1, most // max(1, len(offsets)))
    return {number: range(max(each.start, each.stop - share), each.stop) for number, each in offsets.items()}


class Counting:
    """Counts the records and marks of one delay topic, which it takes in any order."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._found: dict[tuple[int, int], RejectedRecord] = {}
        self._marked: set[tuple[int, int]] = set()

    def add(self, each: RejectedRecord | Mark | None) -> None:
        """Take in a record or a mark of the rejected topic; ignore None."""
        if isinstance(each, Mark):
            self._marked.update((each.partition, offset) for offset in each.offsets)
        elif each is not None and each.source.topic == self._topic:
            # Drop key, value and headers, which may be large.
            self._found[each.place] = each._replace(key=None, value=None, headers=[])

    def by_code(self) -> dict[str, CodeCount]:
        """Return the counts, in the order of the codes."""
        found: dict[str, CodeCount] = {}
        for place, record in self._found.items():
            count = found.setdefault(record.code, CodeCount())
            count.records += 1
            count.redriven += place in self._marked
            count.last_ms = max(count.last_ms, record.rejected_ms)
        return dict(sorted(found.items()))

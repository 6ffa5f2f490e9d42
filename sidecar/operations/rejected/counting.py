"""Counts the newest records of a rejected topic by code; the limit keeps the cost independent of the topic's size."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec

from index.errors import DelayRouterError
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.client.admin import LogOffset, TopicFacts, offsets, topic_facts
from sidecar.operations.rejected.log import OutOfTimeError, RejectedLog
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
    """Counts the rejected records of delay topics; reads them again only when their topic has changed.

    Monitoring and open pages ask every half minute, and most of the time no record was rejected meanwhile. The admin
    client tells that; a consumer for each topic would cost tens of milliseconds of CPU.
    """

    def __init__(self, config: Config, admin: AdminClient) -> None:
        self._config = config
        self._admin = admin
        self._known: dict[str, tuple[dict[int, range], Counted]] = {}

    def of(self, topic: DelayTopicConfig) -> Counted:
        """Return the counts of a delay topic.

        Raise KafkaException when the cluster does not answer, and OutOfTimeError when reading takes too long.
        """
        there = committed(self._admin, [topic.rejected]).get(topic.rejected)
        return self._counted(topic, there, time.monotonic() + COUNT_FOR_S)

    def of_each(self, topics: Sequence[DelayTopicConfig]) -> dict[str, Counted]:
        """Return the counts of delay topics, by name, without those that cannot be read, or not yet.

        A call reads for COUNT_FOR_S at most, and the next one goes on. Where a topic was counted before and there is no
        time to read it again, its counts are those of before. Raise KafkaException when the cluster does not answer.
        """
        until_s = time.monotonic() + COUNT_FOR_S
        there = committed(self._admin, {each.rejected for each in topics})
        for each in topics:
            try:
                self._counted(each, there.get(each.rejected), until_s)
            except OutOfTimeError:
                continue
            except (KafkaException, DelayRouterError):
                self._known.pop(each.name, None)
        return {each.name: self._known[each.name][1] for each in topics if each.name in self._known}

    def _counted(self, topic: DelayTopicConfig, there: dict[int, range] | None, until_s: float) -> Counted:
        read_before, counted = self._known.get(topic.name, (None, None))
        if counted is not None and read_before == there:
            return counted
        if time.monotonic() > until_s:
            raise OutOfTimeError(f"{topic.rejected}: there is no time left to read it")
        with RejectedLog(self._config, self._admin, topic.rejected, until_s) as log:
            if there is None:
                there = log.committed()
            counted = _counted(log, there, topic)
        self._known[topic.name] = there, counted
        return counted


def committed(admin: AdminClient, topics: Iterable[str]) -> dict[str, dict[int, range]]:
    """Return the committed offsets of each partition of each topic, in a few requests for all of them.

    Topics are left out that do not exist, or of which the brokers do not tell everything.
    """
    counts = {
        name: facts.partitions for name, facts in topic_facts(admin, topics).items() if isinstance(facts, TopicFacts)
    }
    places = [(name, number) for name, count in counts.items() for number in range(count)]
    told = [
        offsets(admin, dict.fromkeys(places, spec), IsolationLevel.READ_COMMITTED) if places else {}
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    ]
    found: dict[str, dict[int, range]] = {name: {} for name in counts}
    for name, number in places:
        start, stop = (each[name, number] for each in told)
        if isinstance(start, LogOffset) and isinstance(stop, LogOffset):
            found[name][number] = range(start.offset, stop.offset)
    return {name: ranges for name, ranges in found.items() if len(ranges) == counts[name]}


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

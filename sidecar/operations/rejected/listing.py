"""Lists the records of a rejected topic in pages, by partition and offset; a page is cheap enough to ask for often."""

import time
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import AdminClient

from index.protocol.record import Record
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.reading.handed_over import readable_headers
from sidecar.operations.rejected.log import RejectedLog
from sidecar.operations.rejected.records import Mark, RejectedRecord, read
from sidecar.operations.rejected.selection import RejectedSelection, id_names

MOST_READ: Final = 100_000
"""Records of the rejected topic that are read for one page."""

READ_FOR_S: Final = 8.0

Position = tuple[int, int]
"""Partition and offset in the rejected topic."""


class Listed(NamedTuple):
    """A rejected record; ``is_redriven`` is None where a mark may lie in an unread part of its partition."""

    record: RejectedRecord
    is_redriven: bool | None


def as_json(listed: Listed) -> dict[str, object]:
    """Return a record for scripts, without key, value and headers."""
    record, is_redriven = listed
    shown_id = None if record.deliver_id is None else record.deliver_id.decode("utf-8", "replace")
    return {
        "partition": record.partition,
        "offset": record.offset,
        "rejected_ms": record.rejected_ms,
        "source": str(record.source),
        "code": record.code,
        "message": record.message,
        "id": shown_id,
        "redriven_before": record.redriven,
        "is_redriven": is_redriven,
        "obstacle": record.obstacle,
    }


class RejectedPage(NamedTuple):
    """Records from one position on; ``next_from`` is the begin of the next page, None behind the last record."""

    records: list[Listed]
    next_from: Position | None

    def as_json(self) -> dict[str, Any]:
        """Return the page for scripts."""
        next_from = None if self.next_from is None else f"{self.next_from[0]}/{self.next_from[1]}"
        return {"records": [as_json(each) for each in self.records], "next_from": next_from}


def page(
    config: Config,
    admin: AdminClient,
    topic: DelayTopicConfig,
    selection: RejectedSelection,
    begin: Position,
    most: int,
) -> RejectedPage:
    """Return up to ``most`` selected records from ``begin`` on; raise KafkaException when no broker answers."""
    reading = _Reading(most, MOST_READ, time.monotonic() + READ_FOR_S)
    with RejectedLog(config, admin, topic.rejected) as log:
        for partition, offsets in sorted(log.committed().items()):
            if partition < begin[0]:
                continue
            start = max(offsets.start, begin[1] if partition == begin[0] else 0)
            next_offset = reading.partition(log, partition, range(start, offsets.stop), selection, id_names(topic))
            if next_offset is not None:
                return RejectedPage(reading.found, (partition, next_offset))
    return RejectedPage(reading.found, None)


def record_at(config: Config, admin: AdminClient, topic: DelayTopicConfig, place: Position) -> Record | None:
    """Return the rejected record of a delay topic with all its headers; None where there is none at that place."""
    partition, offset = place
    with RejectedLog(config, admin, topic.rejected, time.monotonic() + READ_FOR_S) as log:
        if offset not in log.committed().get(partition, ()):
            return None
        for message in log.scan({partition: range(offset, offset + 1)}):
            rejected = read(message, id_names(topic))
            # Delay topics may share a rejected topic.
            if isinstance(rejected, RejectedRecord) and rejected.source.topic == topic.name:
                return Record(rejected.key, rejected.value, readable_headers(message), rejected.rejected_ms)
    return None


class _Reading:
    """The records of one page so far, and the number of records and the time that remain for it."""

    def __init__(self, most: int, most_read: int, until_s: float) -> None:
        self.found: list[Listed] = []
        self._most = most
        self._left = most_read
        self._until_s = until_s

    def partition(
        self, log: RejectedLog, number: int, offsets: range, selection: RejectedSelection, names: frozenset[str]
    ) -> int | None:
        """Read one partition; return the offset where the next page begins, None when the partition has no more."""
        records: list[RejectedRecord] = []
        marked: set[int] = set()
        next_offset: int | None = None
        is_whole = True
        for message in log.scan({number: offsets}):
            offset = message.offset() or 0
            if not self._left or time.monotonic() > self._until_s:
                next_offset = offset if next_offset is None else next_offset
                is_whole = False
                break
            self._left -= 1
            each = read(message, names)
            if isinstance(each, Mark):
                marked |= each.offsets
            elif each is not None and next_offset is None and selection.takes(each):
                if len(self.found) + len(records) >= self._most:
                    # Read on: marks of the records found may still come.
                    next_offset = offset
                    continue
                records.append(each)
        self.found += [Listed(each, each.offset in marked or (False if is_whole else None)) for each in records]
        return next_offset

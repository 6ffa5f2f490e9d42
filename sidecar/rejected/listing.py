"""Pages of what lies in a rejected topic, by partition and offset; cheap enough for whoever asks often."""

import time
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import AdminClient

from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.rejected.log import RejectedLog
from sidecar.rejected.records import Mark, RejectedRecord, read
from sidecar.rejected.selection import Selection, id_names

MOST_READ: Final = 100_000
"""Records of the rejected topic that are read for one page."""

READ_FOR_S: Final = 8.0

Position = tuple[int, int]
"""Partition and offset in the rejected topic."""


class Listed(NamedTuple):
    """One rejected record, and whether it was driven again; None where not all of its partition was read."""

    record: RejectedRecord
    is_redriven: bool | None


def as_json(listed: Listed) -> dict[str, object]:
    """For scripts: neither key nor value nor headers."""
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


class Page(NamedTuple):
    """Records from one position on; ``next_from`` is where the next page begins, None behind the last record."""

    records: list[Listed]
    next_from: Position | None

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        next_from = None if self.next_from is None else f"{self.next_from[0]}/{self.next_from[1]}"
        return {"records": [as_json(each) for each in self.records], "next_from": next_from}


def page(
    config: Config, admin: AdminClient, topic: DelayTopicConfig, selection: Selection, begin: Position, most: int
) -> Page:
    """At most ``most`` selected records from ``begin`` on; KafkaException when the cluster does not answer."""
    reading = _Reading(most, MOST_READ, time.monotonic() + READ_FOR_S)
    with RejectedLog(config, admin, topic.rejected) as log:
        for partition, offsets in sorted(log.committed().items()):
            if partition < begin[0]:
                continue
            start = max(offsets.start, begin[1] if partition == begin[0] else 0)
            next_offset = reading.partition(log, partition, range(start, offsets.stop), selection, id_names(topic))
            if next_offset is not None:
                return Page(reading.found, (partition, next_offset))
    return Page(reading.found, None)


class _Reading:
    """What one page has found, and how much it may still read."""

    def __init__(self, most: int, most_read: int, until_s: float) -> None:
        self.found: list[Listed] = []
        self._most = most
        self._left = most_read
        self._until_s = until_s

    def partition(
        self, log: RejectedLog, number: int, offsets: range, selection: Selection, names: frozenset[str]
    ) -> int | None:
        """Read on in one partition; the offset where the next page begins, None when nothing is left here."""
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
                    # The marks of what was found may still come.
                    next_offset = offset
                    continue
                records.append(each)
        self.found += [Listed(each, each.offset in marked or (False if is_whole else None)) for each in records]
        return next_offset

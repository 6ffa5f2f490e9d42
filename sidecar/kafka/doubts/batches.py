"""Reads the output of ``kafka-dump-log.sh``, which tells the producer id of each batch of a partition.

A consumer does not see producer ids, and headers prove nothing: an application that forwards a released record in an
aborted transaction leaves a record with the same headers.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from index.errors import DelayRouterError

_BATCH: Final = re.compile(
    r"baseOffset: (?P<first>\d+) lastOffset: (?P<last>\d+) "
    r".*?producerId: (?P<producer>-?\d+) .*?isControl: (?P<control>\w+)"
)


class LoggedBatch(NamedTuple):
    """The offsets ``first`` to ``last`` of one batch, and its producer; markers are batches, too."""

    first: int
    last: int
    producer_id: int
    is_control: bool


class Batches:
    """The batches of one partition, by offset."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Read the lines of the tool; lines that describe no batch do not count."""
        found = filter(None, map(_BATCH.search, lines))
        self._batches = sorted(
            LoggedBatch(int(each["first"]), int(each["last"]), int(each["producer"]), each["control"] == "true")
            for each in found
        )

    def offsets_of(self, producer_id: int, within: range) -> frozenset[int]:
        """Return the offsets within a range that a producer has written.

        Raise DelayRouterError where the batches have a gap there, or another producer has written the first offset.
        """
        batches = [each for each in self._batches if each.last >= within.start and each.first < within.stop]
        next_offset = within.start
        for each in batches:
            if each.first > next_offset:
                break
            next_offset = max(next_offset, each.last + 1)
        if next_offset < within.stop:
            raise DelayRouterError(
                f"the output of kafka-dump-log.sh has no batch with offset {next_offset}; all offsets from"
                f" {within.start} to {within.stop - 1} are needed: give the tool each log segment that has some of them"
            )
        if batches[0].producer_id != producer_id:
            raise DelayRouterError(
                f"by the output of kafka-dump-log.sh offset {within.start} was written by producer id"
                f" {batches[0].producer_id}, not {producer_id}: is it the output for this partition?"
            )
        own = (each for each in batches if each.producer_id == producer_id and not each.is_control)
        return frozenset(offset for each in own for offset in range(each.first, each.last + 1))

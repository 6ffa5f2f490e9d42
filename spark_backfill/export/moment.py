"""A moment of a delay partition: its state and its log, such that both have the same transactions of the router.

A transaction of a router may change the state and append to the delay partition at once: a moved schedule is cancelled
in one place and written again in another. If only one of both were seen, the schedule would be missing, or be there
twice. So the driver asks for the ends of both, and for the end of the state before and after, until no transaction was
open or ended in between::

    end of the state ─► end of the delay partition ─► end of the state again: the same, and nothing open on either

Other producers may have transactions on the delay topic, too, and for long. The driver waits for them for a while, and
then leaves their records out, as a consumer would not see them either.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient

from spark_backfill import cluster
from spark_backfill.cluster import LogRange
from spark_backfill.errors import JobError
from spark_backfill.settings import DelayTopic

WAITED_S: Final = 60.0
"""Longest wait for a moment. A router that commits one transaction after the other leaves gaps of milliseconds, so each
try has the same chance."""

OPEN_S: Final = 5.0
"""Longest wait for open transactions on the log. The end of a router's transaction reaches all partitions in
milliseconds, so an older one belongs to another producer."""

AGAIN_S: Final = 0.02


class PartitionOffsets(NamedTuple):
    """The offsets of a partition as brokers report them, in this order: state, log, state again.

    ``..._appended`` include open transactions.
    """

    state: int
    state_appended: int
    log: LogRange
    log_appended: int
    state_after: int
    state_appended_after: int

    @property
    def is_still(self) -> bool:
        """True if no transaction was open on the state, or ended, meanwhile."""
        return self.state == self.state_appended == self.state_after == self.state_appended_after

    @property
    def has_open(self) -> bool:
        """True while a transaction is open on the delay partition."""
        return self.log.end < self.log_appended


class Moment(NamedTuple):
    """A moment of a partition: the state lies below ``state_end``, and the delay partition holds ``log``."""

    state_end: int
    log: LogRange


Look = Callable[[Iterable[int]], Mapping[int, PartitionOffsets]]


def moments(look: Look, partitions: Iterable[int], say: Callable[[str], None]) -> dict[int, Moment]:
    """Return a moment of each partition; raise JobError where none is found."""
    found: dict[int, Moment] = {}
    left, began_s = set(partitions), time.monotonic()
    while left:
        passed_s = time.monotonic() - began_s
        for partition, ends in look(sorted(left)).items():
            if not ends.is_still or (ends.has_open and passed_s < OPEN_S):
                continue
            if ends.has_open:
                say(f"partition {partition}: an open transaction hides the records from offset {ends.log.end} on")
            found[partition] = Moment(ends.state, ends.log)
            left.discard(partition)
        if left and passed_s > WAITED_S:
            raise JobError(
                f"partition {min(left)}: for {WAITED_S:.0f} s there was no moment at which no transaction was open on"
                " its state; is there one that does not end? Otherwise run the job again"
            )
        if left:
            time.sleep(AGAIN_S)
    return found


def asking(admin: AdminClient, topic: DelayTopic) -> Look:
    """Return a function that asks the brokers for the ends of partitions."""

    def look(partitions: Iterable[int]) -> dict[int, PartitionOffsets]:
        numbers = list(partitions)
        state = cluster.log_ranges(admin, topic.state, numbers)
        state_appended = cluster.appended_ends(admin, topic.state, numbers)
        log = cluster.log_ranges(admin, topic.name, numbers)
        log_appended = cluster.appended_ends(admin, topic.name, numbers)
        appended_after = cluster.appended_ends(admin, topic.state, numbers)
        after = cluster.log_ranges(admin, topic.state, numbers)
        return {
            number: PartitionOffsets(
                state[number].end,
                state_appended[number],
                log[number],
                log_appended[number],
                after[number].end,
                appended_after[number],
            )
            for number in numbers
        }

    return look

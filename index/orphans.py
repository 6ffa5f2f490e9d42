"""With which outcome a transaction is to be ended that the brokers have forgotten.

A broker that dies may lose the commit or abort markers of a transaction on some of its partitions, and its coordinator
takes it for complete all the same (KAFKA-20734). There it stays open: readers of committed records see nothing from its
first record on, and the next transaction of the same producer that touches the partition ends it with *its* outcome.
So such an *orphan* must be ended before anything else is written, and with the outcome it had:

====================================================  ===========  =================================================
where it is open                                      outcome      known from
====================================================  ===========  =================================================
target, rejected; a record beyond the state           aborted      what commits a record moves C and W past it, or
                                                                   removes what is held of it, in the same transaction
the same; all records done by the state               committed    the same; a record leaves in one transaction only
the same; records of both kinds                       undecided    no transaction of this router is like that
receipts; the delay partition itself                  the same     by the control that is answered, or by the record
                                                                   that an occurrence follows (``delay-source``)
the state itself                                      as the       the coordinator's own log, or what is visible
                                                      coordinator  elsewhere of it (``of_state``)
                                                      decided
snapshots                                             committed    either does: segments of an aborted transaction are
                                                                   named by no manifest
backfill                                              aborted      either does: what is staged and was adopted is
                                                                   withdrawn again
====================================================  ===========  =================================================

**What cannot be decided, and why.** An orphan of the state, where the coordinator's log may not be read or no longer
has it, and nothing it wrote is visible because somebody else's open transaction lies in front. A committed transaction
and an aborted one leave the same bytes: a reader is told of markers only by what it may see, and here it may see
nothing. Ending it either way would double or lose in one of the two cases, so it waits until the other is ended.
The same holds for a record that names no time and was rejected only on release, once the delay topic no longer has it.
Neither can an orphan be ended whose producer id is not ours any more (the id of a transaction expires after a week by
default): markers are written for one producer id, and nobody else's transaction ends it.

All orphans of a partition belong to one transaction, the last one before the take-over, since the router takes over
after every lost connection and begins no other before they are healed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from index.bucket import Manifest
from index.progress import Position, Progress


class Outcome(Enum):
    """How a transaction ended, as far as that is known."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNDECIDED = "undecided"


WHEN_INDEXED: Final = -2
"""Due time of what leaves as soon as C passes it, wherever W is."""


class Hidden(NamedTuple):
    """A record of ours in an open transaction: which record of the delay partition it was made of.

    ``due_ms`` is its schedule's, WHEN_INDEXED for one that was rejected as soon as it was indexed, None where that is
    not known.
    """

    source_offset: int
    due_ms: int | None


NOTHING_WRITTEN: Final = -1
"""Source offset of what was only written to end an orphan: it was made of no record, and says nothing."""


@dataclass(frozen=True, slots=True)
class Done:
    """What the committed state says has left; ``held`` are the offsets that wait below the watermark."""

    progress: Progress
    buckets: tuple[Manifest, ...] = ()
    held: frozenset[int] = frozenset()

    def has_left(self, due_ms: int, offset: int) -> bool:
        """Whether the record at ``offset`` was released or rejected by a transaction that was committed."""
        if offset in self.held or offset >= self.progress.cursor:
            return False
        return (due_ms, offset) <= self._watermark(offset)

    def _watermark(self, offset: int) -> Position:
        behind = dict(self.progress.catching_up)
        for manifest in self.buckets:
            if manifest.bucket_id in behind and manifest.from_offset <= offset < manifest.to_offset:
                return behind[manifest.bucket_id]
        return self.progress.watermark


def of_records(done: Done, records: Iterable[Hidden]) -> Outcome:
    """Outcome of the transaction that wrote these to a target or to the rejected topic, by the settled state."""
    found: set[Outcome] = set()
    for offset, due_ms in records:
        if offset == NOTHING_WRITTEN:
            continue
        # What is not in front of C, or is held, has not left whenever it was due.
        has_left = due_ms is not None and done.has_left(due_ms, offset)
        if due_ms is None and done.has_left(WHEN_INDEXED, offset):
            found.add(Outcome.UNDECIDED)
        else:
            found.add(Outcome.COMMITTED if has_left else Outcome.ABORTED)
    return found.pop() if len(found) == 1 else Outcome.UNDECIDED if found else Outcome.ABORTED


def of_state(done: Done, then: Done, visible: Iterable[Hidden], *, all_looked_at: bool) -> Outcome:
    """Outcome of the transaction that is open on the state, where the coordinator's log does not tell.

    ``then`` is what would have left with it, ``visible`` what readers of targets and of the rejected topic see of this
    partition since it began. ``all_looked_at`` is False where some of that is hidden by others, or out of reach. One
    that wrote nothing else may have been either; readers have seen nothing of it, so it is aborted.
    """
    for offset, due_ms in visible:
        if offset != NOTHING_WRITTEN and due_ms is None and then.has_left(WHEN_INDEXED, offset):
            all_looked_at = False
        elif due_ms is not None and then.has_left(due_ms, offset) and not done.has_left(due_ms, offset):
            return Outcome.COMMITTED
    return Outcome.ABORTED if all_looked_at else Outcome.UNDECIDED

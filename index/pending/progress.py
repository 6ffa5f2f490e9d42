"""The two numbers that make a release exactly-once, and the numbers that a partition begins with."""

from typing import NamedTuple


class Position(NamedTuple):
    """A place in release order: by due time, then by offset in the delay partition."""

    due_ms: int
    offset: int


BEFORE_ALL = Position(-1, -1)
"""The watermark of a partition that has released nothing yet; no due time is negative."""


class Behind(NamedTuple):
    """The watermark of an adopted bucket that is behind the partition's, see :mod:`index.partition.adopting`."""

    bucket_id: int
    watermark: Position


class Skipped(NamedTuple):
    """Offsets [from_offset, to_offset) that were rejected as one, even if they can be read another time."""

    from_offset: int
    to_offset: int


class Progress(NamedTuple):
    """The extent to which a delay partition is indexed and released; written in every transaction.

    * ``cursor`` (C): every record below this offset has been indexed.
    * ``watermark`` (W): every pending entry up to this position has been released.
    * ``sealed_to`` (S, at most C): no entry below this offset needs the delay topic read again.
    * ``next_bucket``: id of the next bucket; ids are never used twice, so no segment of one overwrites another's.
    * ``number``: counts the transactions of the partition, so that a reader sees a lost or repeated one.
    * ``catching_up``: adopted buckets that still owe entries up to W, by id; each has a watermark of its own, which
      replaces W for its entries.
    * ``skipped``: the ranges of [S, C) that were rejected unread, in offset order. Decisions replay; whether a client
      can read a batch does not.
    * ``series_key``: the key that signs the next occurrences of recurring schedules, see
      :mod:`index.protocol.occurrences`; empty where no schedule recurs.
    * ``cancelled``: how many records in buckets were cancelled and lie behind W, see :mod:`index.partition.counted`.
    * ``restored_to``: a job has made the index of the offsets below anew. W says nothing about the records there that
      no bucket holds: the job found that these had left or were cancelled.
    """

    cursor: int
    watermark: Position
    sealed_to: int
    number: int = 0
    next_bucket: int = 0
    catching_up: tuple[Behind, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    series_key: bytes = b""
    cancelled: int = 0
    restored_to: int = 0

    def is_done(self, due_ms: int, offset: int) -> bool:
        """Return whether the record at ``offset`` has left: indexed before C and at or before W.

        A late record was released by the transaction that moved C past it, so the same two comparisons hold for it.

        >>> progress = Progress(cursor=10, watermark=Position(due_ms=5_000, offset=3), sealed_to=0)
        >>> progress.is_done(5_000, 3), progress.is_done(5_000, 4), progress.is_done(1_000, 12)
        (True, False, False)
        """
        return offset < self.cursor and (due_ms, offset) <= self.watermark

    def watermark_of(self, bucket_id: int) -> Position:
        """Return the watermark of a bucket: its own while it is catching up, else W."""
        return dict(self.catching_up).get(bucket_id, self.watermark)


def start_of(log_start: int) -> Progress:
    """Return the progress of a partition that begins at ``log_start``, the first offset its delay topic still holds."""
    return Progress(cursor=log_start, watermark=BEFORE_ALL, sealed_to=log_start)

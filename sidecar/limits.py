"""How much an owned partition does at once, and how long it waits: one value for all of its parts.

``Limits()`` is what a router runs with. Tests and the simulation pass smaller numbers, so that short runs meet every
bound. What an operator may set stands in the configuration instead (:mod:`sidecar.config`).
"""

from dataclasses import dataclass
from typing import Final

from index.id_pages import LEAST_ROWS, MAX_PAGES


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one owned partition; a part that needs one is given the whole value."""

    load_lead_ms: int = 10_000
    """A segment is read so long before its first due time. A seal keeps entries in memory that are due within this."""

    load_again_s: float = 0.5
    """Pause after a failed read of a segment: release waits for it, so the pause is short."""

    drop_for_s: float = 0.002
    """Longest time that a round may let go of entries that a bucket holds. For columns that is enough for all of a
    bucket; memory of objects that have not been touched for long is freed slowly, 10,000 of them in 15 to 40 ms."""

    seal_cut_entries: int = 6_000
    """About so many entries are cut into segments in one round, which takes a few milliseconds."""

    seal_ahead_segments: int = 32
    """Segments that are cut and not committed yet: each is a copy of its records."""

    seal_worth_bytes: int = 256 << 10
    """With fewer bytes of segments no transaction begins while more is being encoded: a bucket that is thinly spread
    over days has many small segments, and each transaction takes some 15 ms."""

    seal_segments: int = 64
    """Most segments of a seal in one transaction: each is a record to produce."""

    bucket_again_s: float = 30.0
    """Pause after a failed seal or merge: the broker has refused what was written, and seldom takes it at once."""

    merge_bytes: int = 512 << 10
    """Bytes of segments of a merge in one transaction, but for the last segment. Releasing waits for the brokers to
    take them, and nothing waits for a merge."""

    merge_queue: int = 4
    """Segments, or pages, that a merge has made and the worker has not taken; 0: no bound."""

    merge_read_bytes: int = 1_500_000
    """Bytes of segments of one source that a merge reads together, which takes one seek; a larger segment comes alone.
    A merge of four holds twice as much of each source: the part that is being merged, and the next one."""

    tombstones: int = 200
    """Most tombstones for segments in one transaction: they delay what is due."""

    trim_every_s: float = 60.0
    """Time between two trims: brokers free disk by whole log segments, in a task that runs every five minutes."""

    count_every_s: float = 5.0
    """Time between two counts of what is pending: metrics are scraped no more often."""

    look_every_s: float = 60.0
    """Time between two looks whether the delay topic still has what is needed."""

    page_rows: int = LEAST_ROWS
    """Least rows of a page of ids, which is read for one id: 32 KiB."""

    page_write_bytes: int = 262_144
    """Bytes of pages in one transaction: they become one batch, and a reader of one page reads all of the batch."""

    pages_whole_bytes: int = 1_048_576
    """A bucket with fewer bytes of pages has them read together for any of them: that takes hardly longer."""

    pages_apart: int = 8
    """So many pages that lie apart are read one by one: else what lies between them is read, too."""

    max_pages: int = MAX_PAGES
    """Most pages of a bucket, since its manifest is one record. A bucket with more is sealed without pages."""

    adopt_within_s: float = 30.0
    """Longest pause of intake for an adoption: what is in memory must be sealed by then."""

    adopt_again_s: float = 30.0
    """Pause after an adoption that did not come about."""

    staged_within_s: float = 10.0
    """Longest wait at a take-over for what jobs have staged, before the delay topic is read beyond C."""

    progress_every_s: float = 5.0
    """How often C is committed when nothing is released; it only shortens the rules kept and what lag tools show."""

    progress_clearance_s: float = 0.1
    """No transaction with progress alone begins when a record is due sooner: the record would wait for it."""

    held_records: int = 50_000
    """Most records of a partition that are held: they are in memory, and a take-over reads them."""

    resume_every_s: float = 0.02
    """Shortest wait for tokens of a rate limit: else each token has a transaction of its own."""


LIMITS: Final = Limits()
"""The limits that a router runs with."""

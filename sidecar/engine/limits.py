"""Limits of an owned partition, for the amount of work at once and for waiting: one value for all of its parts.

A router runs with ``Limits()``. Tests and the simulation pass smaller numbers, so that short runs meet every bound. The
limits that an operator may set are in the configuration instead (:mod:`sidecar.config`).
"""

from dataclasses import dataclass
from typing import Final

from index.buckets.bucket_rules import MOST_SEGMENTS
from index.named.id_pages import LEAST_ROWS, MAX_PAGES


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one owned partition; a part that needs one is given the whole value."""

    load_lead_ms: int = 10_000
    """Time before its first due time at which a segment is read. A seal keeps entries due that soon in memory."""

    load_again_s: float = 0.5
    """Pause after a failed read of a segment: release waits for it, so the pause is short."""

    drop_for_s: float = 0.002
    """Longest time in which a round frees the entries that a bucket now holds. For columns that suffices for a whole
    bucket; objects that were not touched for long are freed slowly, 10,000 of them in 15 to 40 ms."""

    seal_cut_entries: int = 6_000
    """Approximate number of entries that one round cuts into segments, which takes a few milliseconds."""

    seal_ahead_segments: int = 32
    """Most segments that are cut but not committed yet: each is a copy of its records."""

    seal_worth_bytes: int = 256 << 10
    """Bytes of segments below which no transaction begins while further segments are being encoded: a bucket that is
    thinly spread over days has many small segments, and each transaction takes some 15 ms."""

    seal_segments: int = 64
    """Most segments of a seal in one transaction: each is a record to produce."""

    bucket_again_s: float = 30.0
    """Pause after a failed seal or merge: a broker that has refused the records seldom takes them at once."""

    merge_bytes: int = 512 << 10
    """Most bytes of segments of a merge in one transaction, without its last segment. Releases wait until the brokers
    have taken them, while no other work waits for a merge."""

    merge_segments: int = MOST_SEGMENTS
    """Most segments of a merged bucket, since its manifest is one record. Where there is no room for the segments of
    pointed records, their pointers stay."""

    merge_queue: int = 4
    """Most segments, or pages, that a merge has made and the worker has not taken; 0: no bound."""

    merge_read_bytes: int = 1_500_000
    """Bytes of segments of one source that a merge reads together, which takes one seek; a larger segment comes alone.
    A merge of four holds twice as much of each source: the part that is being merged, and the next one."""

    tombstones: int = 200
    """Most tombstones for segments in one transaction: they delay due records."""

    trim_every_s: float = 60.0
    """Time between two trims: brokers free disk by whole log segments, in a task that runs every five minutes."""

    count_every_s: float = 5.0
    """Time between two counts of the pending records: metrics are scraped no more often."""

    count_budget: int = 20_000
    """Most entries that are decided to count the schedules that a query cancels: tenths of a second of a thread, which
    all partitions share. Where there are more, the number is estimated from so many."""

    look_every_s: float = 60.0
    """Time between two checks that the delay topic still has the records that are needed."""

    page_rows: int = LEAST_ROWS
    """Least rows of a page of ids, which is read for one id: 32 KiB."""

    page_write_bytes: int = 262_144
    """Bytes of pages in one transaction: they become one batch, and a reader of one page reads all of the batch."""

    pages_whole_bytes: int = 1_048_576
    """Bytes of pages of a bucket below which a read of any page reads all of them: that takes hardly longer."""

    pages_apart: int = 8
    """Most pages that are read one by one; for more, one read takes them and the records between them."""

    max_pages: int = MAX_PAGES
    """Most pages of a bucket, since its manifest is one record. A bucket with more is sealed without pages."""

    made_page_ids: int = 250_000
    """Ids of a page that is made in memory: more are less to search for a control, and more to hold while it is
    made."""

    adopt_within_s: float = 30.0
    """Longest pause of intake for an adoption: the entries in memory must be sealed by then."""

    adopt_again_s: float = 30.0
    """Pause after a failed adoption."""

    staged_within_s: float = 10.0
    """Longest wait of a take-over for buckets that jobs have staged, before it reads the delay topic beyond C."""

    progress_every_s: float = 5.0
    """Interval of commits of C without releases, which only shorten the kept rules and the lag that tools show."""

    progress_clearance_s: float = 0.1
    """No transaction with progress alone begins when a record is due sooner: the record would wait for it."""

    held_records: int = 50_000
    """Most held records of a partition: they are in memory, and a take-over reads them."""

    held_bytes: int = 64 << 20
    """Bytes of held records of a partition at which no more are held."""

    first_pause_s: float = 0.2
    longest_pause_s: float = 10.0
    """The pauses before a take-over after an error: the first one, and the longest of the next ones, which double."""

    look_again_s: float = 15.0
    """The pause of a refused partition before its next take-over; a mended cause needs no restart."""

    drained_look_s: float = 0.5
    """The time between two looks of a drained partition at its policy; it is taken over again once it may be."""

    drain_within_s: float = 15.0
    """The longest time to drain a partition. The next owner indexes unsealed records again, such as records in segments
    that a broker refuses."""

    report_every_s: float = 0.25
    """The time between two reports of an active partition, and between two rounds of the work beside releases."""

    yield_s: float = 300.0
    """Time for which an owner leaves a partition to another router group that has taken it over. Long, since each group
    that takes it back interrupts the other; not for ever, since the other group may have been stopped."""

    resume_every_s: float = 0.02
    """Shortest wait for tokens of a rate limit: otherwise each token has a transaction of its own."""


LIMITS: Final = Limits()
"""The limits that a router runs with."""

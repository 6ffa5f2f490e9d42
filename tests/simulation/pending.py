"""Compares the pending entries of an owner with the records that producers have sent and that have not left yet."""

from collections import Counter
from collections.abc import Collection

from tests.simulation.checker import Violation
from tests.simulation.serving import SteppedWorker


def compare(serving: SteppedWorker, owed: set[int], told_lost: set[int], unwanted: Collection[int] = ()) -> None:
    """Raise Violation if a record that has left is pending, one is pending twice, or one that is owed is nowhere.

    ``owed`` are the offsets of all records below the next one to index that have not left. ``unwanted`` are the offsets
    of records that a query has cancelled: they stay in their places until W reaches them. The records in segments are
    known by the ranges of their buckets; the entries in memory are looked at one by one.
    """
    ledger = serving.owned.ledger
    in_memory = Counter(
        offset for index in ledger.parts.in_memory_indexes() for chunk in index.chunks() for _, offset, _ in chunk
    )
    in_memory.update(offset for run in ledger.parts.waiting_runs() for offset in run.offsets)
    in_memory.update(offset for _, offset, _ in ledger._late)
    in_memory.update(offset for offset, _ in ledger._rejected)
    # A replacement is pending itself.
    in_memory.update(
        each.offset for each in ledger.named._receipts if each.due_ms is None or each.control.due_ms is not None
    )
    in_memory.update(offset for lane in serving.owned.gate.waiting() for _, offset, _ in lane)
    for offset in [each for each in in_memory if each in ledger.named.mask or each in unwanted]:
        # An entry in a bucket stays until W reaches it.
        del in_memory[offset]
    if left := sorted(in_memory.keys() - owed):
        raise Violation(f"pending, and have left: {left}")
    if twice := sorted(offset for offset, count in in_memory.items() if count > 1):
        raise Violation(f"pending twice: {twice}")
    ranges = [
        (bucket.manifest.from_offset, bucket.manifest.to_offset)
        for bucket in ledger.parts.buckets.values()
        if bucket.stored
    ]
    receipts = ledger.named._receipts
    # These were in transit, and new rules reject them although the receipt will name them as cancelled.
    unread = {place.offset for each in receipts for place in each.cancelled if place.offset > each.offset}
    nowhere = [
        offset
        for offset in sorted(owed - in_memory.keys() - told_lost - unread)
        if not any(start <= offset < end for start, end in ranges)
    ]
    if nowhere:
        raise Violation(f"owed, and not pending: {nowhere}")

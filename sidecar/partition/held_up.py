"""What a paused partition takes in behind a record that came late.

Such a record may not leave, so C stands in front of it, and nothing behind it can be sealed: it stays in memory, and is
read again by whoever takes the partition over.
"""

from sidecar.intake.intake import PartitionLedger

HELD_UP_RECORDS = 10_000
HELD_UP_SHARE = 4
"""So many offsets at most, and this part of the memory for payload, so that other partitions keep the rest."""


def is_held_up(ledger: PartitionLedger, resident_bytes: int, payload_memory_bytes: int) -> bool:
    """Whether intake has to wait for the end of the pause."""
    if not ledger.owed:
        return False
    behind_cursor = ledger.indexed_to - ledger.committed.cursor
    return behind_cursor >= HELD_UP_RECORDS or resident_bytes >= payload_memory_bytes // HELD_UP_SHARE

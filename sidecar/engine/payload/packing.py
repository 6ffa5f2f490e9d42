"""Unpacks packed records, when they leave before they are sealed or cannot stay a row in their segment."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import cast

from index.pending.pending import Entry
from index.protocol.record import Record
from index.protocol.schedule import schedule_of
from sidecar.engine.payload.records import Decide, Packed, Payload, Scheduled, scheduled, size_of
from snapshots.segments.rows import RowPacker, unpack_rows

UNPACKED_AT_ONCE = 2_000


def records_of(payloads: Iterable[Payload]) -> list[Record | None]:
    """Return the record of each payload; None where it has to be read again."""
    given = list(payloads)
    waiting = [payload for payload in given if isinstance(payload, Packed)]
    whole = iter(unpacked(waiting))
    return [next(whole) if isinstance(payload, Packed) else payload.record for payload in given]


def whole(entries: list[Entry[Payload]], decide: Decide) -> list[Entry[Scheduled]]:
    """Return the entries with each packed record unpacked and decided again."""
    if Packed not in {type(payload) for _, _, payload in entries}:
        # This is nearly always so, and the check runs for every record that leaves.
        return cast("list[Entry[Scheduled]]", entries)
    records = records_of([payload for _, _, payload in entries])
    return [
        (due_ms, offset, _decided(offset, record, decide) if isinstance(payload, Packed) else payload)
        for (due_ms, offset, payload), record in zip(entries, records, strict=True)
    ]


def _decided(offset: int, record: Record | None, decide: Decide) -> Scheduled:
    assert record is not None
    decision = decide(offset, record)
    schedule = schedule_of(decision)
    assert schedule is not None, f"offset {offset} was accepted, and now: {decision}"
    return scheduled(schedule, size_of(record), record)


def unpacked(payloads: Sequence[Packed]) -> list[Record]:
    """Return the record of each packed payload."""
    records: list[Record] = []
    for packer, run in groupby(payloads, key=_packer_of):
        same = list(run)
        for start in range(0, len(same), UNPACKED_AT_ONCE):
            some = same[start : start + UNPACKED_AT_ONCE]
            records += unpack_rows([each.timestamp_ms for each in some], [each.row for each in some], packer.names)
    return records


def _packer_of(payload: Packed) -> RowPacker:
    return payload.packer

"""Packed records unpacked again, and their form in a segment: payload.packing, buckets.sealing."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from index.buckets.bucket_rules import SealRules
from index.pending.pending import Entry
from index.pending.unsealed import Unsealed
from sidecar.engine.buckets.sealing import Sealing
from sidecar.engine.limits import LIMITS
from sidecar.engine.payload.packed_run import packed_runs
from sidecar.engine.payload.packing import UNPACKED_AT_ONCE, records_of, whole
from sidecar.engine.payload.records import Payload, scheduled
from snapshots.segments.rows import RowPacker
from snapshots.segments.segment import StoredEntry, decode_segment
from tests.support.payloads import NOW_MS, decide, loose, record_at, tight

T = TypeVar("T")


def test_packed_records_leave_as_they_would_have_left_unpacked() -> None:
    one, other = RowPacker(), RowPacker()
    other.pack(None, b"", [("trace", b""), ("deliver-to", b"")])
    count = 2 * UNPACKED_AT_ONCE + 3
    records = [record_at(NOW_MS + number) for number in range(count)]
    loosely: list[Entry[Payload]] = [(NOW_MS + number, number, loose(record)) for number, record in enumerate(records)]
    mixed: list[Entry[Payload]] = [
        (NOW_MS + number, number, [loose(record), tight(record, one), tight(record, other)][number * 7 % 3])
        for number, record in enumerate(records)
    ]
    assert whole(mixed, decide) == loosely


def test_what_has_to_be_read_again_stays_so() -> None:
    packer = RowPacker()
    absent = scheduled(decide(0, record_at(1)), 10, None)
    assert records_of([absent, tight(record_at(2), packer), absent]) == [None, record_at(2), None]


def at_once(work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(work())
    return future


def stored(payloads: Sequence[Payload], rules: SealRules) -> list[list[StoredEntry]]:
    frozen: Unsealed[Payload] = Unsealed(0, packed_runs())
    frozen.add([(NOW_MS + number, number, payload) for number, payload in enumerate(payloads)])
    under_way = Sealing(frozen, len(payloads), 1, rules, LIMITS, at_once)
    segments: list[list[StoredEntry]] = []
    while (some := under_way.next_segments()) is not None:
        segments += [decode_segment(value) for _, value in some]
        under_way.written(range(len(some)))
    return segments


def test_segments_hold_the_same_however_their_records_were_kept() -> None:
    one, other = RowPacker(), RowPacker()
    records = [record_at(NOW_MS + number, bytes(300 if number == 35 else 5)) for number in range(60)]
    rules = SealRules(placement="inline", segment_entries=10, segment_bytes=250)
    expected = stored([loose(record) for record in records], rules)
    kept = [each for segment in expected for _, _, each in segment]
    assert kept == [record if number != 35 else None for number, record in enumerate(records)]
    for every in (1, 2):
        payloads = [
            loose(record) if number % every else tight(record, one if number < 30 else other)
            for number, record in enumerate(records)
        ]
        found = [entry for segment in stored(payloads, rules) for entry in segment]
        assert found == [entry for segment in expected for entry in segment]

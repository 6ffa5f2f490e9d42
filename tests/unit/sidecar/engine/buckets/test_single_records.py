"""The record of a single schedule in a bucket: in its segment, or in the delay topic where the segment has no room."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from index.buckets.bucket import Bucket
from index.pending.progress import BEFORE_ALL, Position
from index.protocol.record import Record
from sidecar.engine.buckets.single_records import SingleRecords
from tests.support.manifests import manifest

DUE_MS = 5_000
INLINE, LARGE, LATER = (Record(b"k", value, [], 0) for value in (b"inline", b"large", b"later"))


class Source:
    """A segment that holds one record itself, and only the place of another."""

    def read(self, _manifest: Any, numbers: Sequence[int], _reader: Any) -> list[Record | None]:
        return [None for _ in numbers]

    def stored(self, _manifest: Any, number: int, _record: Any, _reader: Any) -> list[Any]:
        assert number == 0
        return [(DUE_MS, 3, INLINE), (DUE_MS, 4, None)]


def test_only_what_is_asked_for_is_read_in_the_delay_topic() -> None:
    asked: list[Sequence[int]] = []

    def read(offsets: Sequence[int]) -> dict[int, Record | None]:
        asked.append(offsets)
        return {offset: {4: LARGE, 9: LATER}[offset] for offset in offsets}

    bucket = Bucket(manifest(1, [(DUE_MS, 3), (DUE_MS, 6)], offsets=(0, 8)), BEFORE_ALL)
    ledger = SimpleNamespace(parts=SimpleNamespace(buckets={1: bucket}))
    gate = SimpleNamespace(records_at=lambda _: {})
    records = SingleRecords(*cast("Any", (ledger, Source(), gate, read, None)))
    found = records.of([Position(DUE_MS, offset) for offset in (3, 4, 5, 9)])
    assert found == {3: INLINE, 4: LARGE, 5: None, 9: LATER}
    assert asked == [[4, 9]]

"""Segments and pages of ids are read once, and never taken for those of another topic."""

from typing import cast

from index.buckets.bucket import Placement, SegmentRef
from index.named.id_pages import rows_in_order
from index.named.names import hash_of
from index.pending.progress import Position
from index.protocol.record import Record
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.operations.finding.cache import Cache, FinderCaches, Incarnation
from sidecar.operations.finding.store import Readers, StoredPartition
from snapshots.segments.id_pages import EncodedPage, encode_pages
from snapshots.segments.segment import encode_segment

REF = SegmentRef(Position(5, 1), Position(5, 1), 1, 9, 3, Placement.POINTER)
VALUE = encode_segment(Placement.POINTER, [(5, 1, None)])
TOPIC = DelayTopicConfig(name="d", default_target="out")


class Log:
    """Readers of the snapshots topic, which note each offset that they are asked for."""

    def __init__(self, values: dict[int, bytes]) -> None:
        self.records = self
        self.asked: list[int] = []
        self.values = values

    def read_large(self, topic: str, partition: int, offsets: list[int]) -> dict[int, Record | None]:
        assert (topic, partition) == ("d.delay-snapshots", 0)
        self.asked += offsets
        return {
            offset: Record(None, self.values[offset], [], 0) if offset in self.values else None for offset in offsets
        }

    read_apart = read_large


def stored(log: Log, known: FinderCaches, topic_id: str = "id") -> StoredPartition:
    return StoredPartition(cast("Readers", log), TOPIC, Incarnation("d", topic_id, "that of its state"), 0, known)


def test_a_segment_is_read_once_for_each_topic_of_that_name() -> None:
    log, known = Log({3: VALUE}), FinderCaches()
    assert [stored(log, known).segment(REF) for _ in range(3)] == [[(5, 1, None)]] * 3
    assert log.asked == [3]
    stored(log, known, "id of another").segment(REF)
    assert log.asked == [3, 3]


def test_a_segment_that_is_gone_is_looked_for_again() -> None:
    log, known = Log({}), FinderCaches()
    assert [stored(log, known).segment(REF) for _ in range(2)] == [None, None]
    assert log.asked == [3, 3]


def encoded(name: bytes, offset: int) -> EncodedPage:
    (page,) = encode_pages(rows_in_order({hash_of(name): Position(1, 1)}), 1)
    return page._replace(ref=page.ref._replace(record_offset=offset))


def test_a_page_is_read_once_and_the_one_that_was_not_asked_for_longest_goes_first() -> None:
    pages = [encoded(b"%d" % number, number) for number in range(3)]
    log = Log({page.ref.record_offset: page.value for page in pages})
    known = FinderCaches(pages=Cache(2 * 40))
    for number in (0, 1, 0, 2, 0, 1):
        assert stored(log, known).id_page(pages[number].ref)
    assert log.asked == [0, 1, 2, 1]


def test_another_page_or_none_is_not_taken_for_it() -> None:
    page, log, known = encoded(b"a", 0), Log({}), FinderCaches()
    assert stored(log, known).id_page(page.ref) is None
    log.values[0] = encoded(b"b", 0).value
    assert stored(log, known).id_page(page.ref) is None
    log.values[0] = page.value
    assert stored(log, known).id_page(page.ref)
    log.values.clear()
    assert stored(log, known, "id of another").id_page(page.ref) is None
    assert stored(log, known).id_page(page.ref), "it is known now"

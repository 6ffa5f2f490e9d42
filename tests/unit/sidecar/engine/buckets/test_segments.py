"""Segments read back: as they were stored, by pointers, and restored from the delay topic when they are lost."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from index.buckets.bucket import Manifest, Placement
from index.errors import ClusterError, ClusterTrouble, RefusedError
from index.pending.pending import Entry
from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE
from index.rules.rule_history import RuleEpoch, RuleHistory
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.buckets.segments import SegmentSource, keep_nothing
from sidecar.engine.payload.records import Scheduled, size_of
from sidecar.engine.ports import ReadEach
from sidecar.kafka.reading.offset_reader import OffsetReader
from snapshots.segments.segment import StoredEntry, encode_segment
from snapshots.segments.writing import SegmentWriter
from tests.support.stored import flipped

TOPIC = DelayTopicConfig(name="d", default_target="out")
RULES = Rules("d", default_target="out", max_delay_ms=1_000)
OTHER_RULES = Rules("d", default_target="elsewhere", max_delay_ms=1_000)
SNAPSHOT_OFFSET = 70
FROM, TO = 100, 120


def record(due_ms: int) -> Record:
    return Record(None, b"payload", [("deliver-at", b"%d" % due_ms)], due_ms - 10)


DUE = {103: 5_020, 107: 5_010, 111: 5_010, 115: 5_030}
ENTRIES: list[StoredEntry] = [
    (due_ms, offset, record(due_ms)) for due_ms, offset in sorted((d, o) for o, d in DUE.items())
]


def keep_all(_due_ms: int, _size_bytes: int) -> bool:
    return True


class Reader(OffsetReader):
    """A delay topic and one segment; ``fails`` when the cluster does not answer."""

    def __init__(self, segment: bytes | None, log: dict[int, Record], log_start: int = 0) -> None:
        self._segment = segment
        self._log = log
        self._log_start = log_start
        self.fails = False
        self.asked: list[tuple[str, Sequence[int]]] = []

    def read(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        self._answer()
        assert partition == 3
        self.asked.append((topic, offsets))
        if topic == "d.delay-snapshots":
            assert list(offsets) == [SNAPSHOT_OFFSET]
            return {SNAPSHOT_OFFSET: None if self._segment is None else Record(b"key", self._segment or None, [], 0)}
        assert topic == "d"
        return {offset: self._log.get(offset) if offset >= self._log_start else None for offset in offsets}

    def read_each(self, topic: str, partition: int, offsets: Sequence[int]) -> ReadEach:
        yield from self.read(topic, partition, offsets).items()

    def read_large(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        assert topic == "d.delay-snapshots"
        return self.read(topic, partition, offsets)

    def scan(self, topic: str, partition: int, from_offset: int, to_offset: int) -> Iterator[tuple[int, Record]]:
        assert (topic, partition) == ("d", 3)
        self._answer()
        self.asked.append(("scan", (from_offset, to_offset)))
        if from_offset >= self._log_start:
            yield from ((offset, kept) for offset, kept in self._log.items() if from_offset <= offset < to_offset)

    def _answer(self) -> None:
        if self.fails:
            raise ClusterError(ClusterTrouble.UNANSWERED, "no answer")


def log(**changed: Record) -> dict[int, Record]:
    """Return the delay topic: the records of the segment, and others around them."""
    others = {99: record(5_015), 104: record(5_031), 108: record(5_009), 120: record(5_015)}
    others[105] = Record(None, b"broken", [("deliver-at", b"soon")], 5_000)
    others[106] = Record(None, b"too long", [("deliver-at", b"5015")], 1)
    held = others | {offset: record(due_ms) for offset, due_ms in DUE.items()}
    return dict(sorted((held | {int(offset[1:]): each for offset, each in changed.items()}).items()))


def stored(placement: Placement = Placement.INLINE, entries: Sequence[StoredEntry] = ENTRIES) -> tuple[Manifest, bytes]:
    """Return a bucket of one segment, and the value of that segment."""
    writer = SegmentWriter(7, FROM, TO)
    ((ref, value),) = writer.encode(placement, entries)
    writer.written([ref], [SNAPSHOT_OFFSET])
    return writer.manifest(), value


def source(*epochs: RuleEpoch, restored_to: int = 0) -> SegmentSource:
    return SegmentSource(TOPIC, 3, RuleHistory(epochs or (RuleEpoch(0, RULES),)), restored_to=restored_to)


def shown(loaded: Sequence[Entry[Scheduled]]) -> list[StoredEntry]:
    """Return the loaded entries as they were stored, after a check that schedules and sizes are right."""
    for due_ms, _, payload in loaded:
        assert payload.schedule.due_ms == due_ms
        assert payload.schedule.targets == ("out",)
        assert payload.record is not None
        # The size is the mean over the segment.
        assert abs(payload.size_bytes - size_of(payload.record)) < 64
    return [(due_ms, offset, payload.record) for due_ms, offset, payload in loaded]


def test_an_inline_segment_is_loaded_without_the_delay_topic() -> None:
    manifest, value = stored()
    reader = Reader(value, {})
    assert shown(source().load(manifest, 0, reader, keep_all)) == ENTRIES
    assert reader.asked == [("d.delay-snapshots", [SNAPSHOT_OFFSET])]


def test_a_pointer_segment_is_loaded_with_the_records_it_points_to_read_in_offset_order() -> None:
    manifest, value = stored(Placement.POINTER)
    reader = Reader(value, log())
    assert manifest.needs_from == 103
    assert shown(source().load(manifest, 0, reader, keep_all)) == ENTRIES
    assert reader.asked[1:] == [("d", [103, 107, 111, 115])]


def test_of_an_inline_segment_only_absent_records_are_read() -> None:
    absent = [(due_ms, offset, None if offset == 111 else kept) for due_ms, offset, kept in ENTRIES]
    manifest, value = stored(entries=absent)
    reader = Reader(value, log())
    assert manifest.needs_from == 111
    assert shown(source().load(manifest, 0, reader, keep_all)) == ENTRIES
    assert reader.asked[1:] == [("d", [111])]


def test_of_what_is_read_again_only_so_much_is_kept_as_there_is_memory_for() -> None:
    manifest, value = stored(Placement.POINTER)
    asked: list[tuple[int, int]] = []

    def keep_one(due_ms: int, size_bytes: int) -> bool:
        asked.append((due_ms, size_bytes))
        return len(asked) == 1

    loaded = source().load(manifest, 0, Reader(value, log()), keep_one)
    size_bytes = size_of(record(5_020))
    assert asked == [(DUE[offset], size_bytes) for offset in sorted(DUE)]
    assert {offset: payload.record for _, offset, payload in loaded} == {
        offset: record(DUE[103]) if offset == 103 else None for offset in DUE
    }
    assert [(payload.schedule.targets, payload.size_bytes) for _, _, payload in loaded] == [(("out",), size_bytes)] * 4


def test_what_is_to_be_rejected_is_kept_whatever_memory_there_is() -> None:
    manifest, value = stored(Placement.POINTER, [(AT_ONCE, 105, None)])
    [(_, _, payload)] = source().load(manifest, 0, Reader(value, log()), keep_nothing)
    assert payload.record == log()[105]


def test_a_record_that_retention_removed_is_lost_when_it_is_due_and_not_before() -> None:
    manifest, value = stored(Placement.POINTER)
    loaded = source().load(manifest, 0, Reader(value, log(), log_start=106), keep_all)
    assert [entry[:2] for entry in loaded] == [entry[:2] for entry in ENTRIES]
    assert [offset for _, offset, payload in loaded if payload.record is None] == [103]


@pytest.mark.parametrize("placement", list(Placement))
@pytest.mark.parametrize("changed", [record(5_021), Record(None, b"now broken", [("deliver-at", b"x")], 5)])
def test_a_record_that_is_not_the_one_that_was_indexed_stops_the_partition(
    placement: Placement, changed: Record
) -> None:
    entries = [(due_ms, offset, changed if offset == 103 else kept) for due_ms, offset, kept in ENTRIES]
    manifest, value = stored(placement, entries)
    with pytest.raises(RefusedError, match=r"record at offset 103 is not the one .* due at 5020.*start-over d/3"):
        source().load(manifest, 0, Reader(value, log(_103=changed)), keep_all)


def test_what_is_loaded_is_decided_by_the_rules_that_decided_it_when_it_was_indexed() -> None:
    manifest, value = stored()
    epochs = RuleEpoch(100, RULES), RuleEpoch(107, OTHER_RULES), RuleEpoch(112, RULES)
    loaded = source(*epochs).load(manifest, 0, Reader(value, {}), keep_all)
    assert {offset: payload.schedule.targets for _, offset, payload in loaded} == {
        103: ("out",),
        107: ("elsewhere",),
        111: ("elsewhere",),
        115: ("out",),
    }


VALUE = stored()[1]
LOST = [
    pytest.param(None, id="nothing at its offset"),
    pytest.param(b"", id="a tombstone at its offset"),
    pytest.param(flipped(VALUE, 8 * len(VALUE) // 2), id="damaged"),
    pytest.param(VALUE[:-1], id="cut short"),
    pytest.param(encode_segment(Placement.INLINE, ENTRIES[1:]), id="another segment, with another first entry"),
    pytest.param(encode_segment(Placement.INLINE, ENTRIES[:-1]), id="another segment, with another last entry"),
    pytest.param(
        encode_segment(Placement.INLINE, [*ENTRIES[:1], ENTRIES[-1]]), id="another segment, with fewer entries"
    ),
]


@pytest.mark.parametrize("segment", LOST)
@pytest.mark.parametrize("placement", list(Placement))
def test_a_lost_segment_is_made_good_from_the_delay_topic(segment: bytes | None, placement: Placement) -> None:
    manifest, _ = stored(placement)
    reader = Reader(segment, log())
    with capture_logs() as logged:
        assert shown(source().load(manifest, 0, reader, keep_all)) == ENTRIES
    assert ("scan", (FROM, TO)) in reader.asked
    assert [entry["event"] for entry in logged] == ["segment_damaged", "segment_made_good"]
    assert logged[0]["bucket"] == 7


def test_what_was_released_before_the_segment_was_written_comes_with_it() -> None:
    manifest, _ = stored()
    loaded = source().load(manifest, 0, Reader(None, log(_113=record(5_015))), keep_all)
    assert [entry[1] for entry in loaded] == [107, 111, 113, 103, 115]


def test_no_record_that_a_job_left_out_of_a_restored_bucket_comes_back_with_its_segment() -> None:
    manifest, _ = stored()
    reader = Reader(None, {offset: record(due_ms) for offset, due_ms in DUE.items()})
    assert shown(source(restored_to=TO).load(manifest, 0, reader, keep_all)) == ENTRIES
    reader = Reader(None, log(_113=record(5_015)))
    refused = r"it held 4 of 5 records in the delay topic, .*Restore d\.delay-snapshots.*start-over d/3"
    with pytest.raises(RefusedError, match=refused):
        source(restored_to=FROM + 1).load(manifest, 0, reader, keep_all)
    assert len(source(restored_to=FROM).load(manifest, 0, reader, keep_all)) == 5


def test_a_rejected_record_does_not_stand_for_one_that_a_job_left_out() -> None:
    """A released record and one to be rejected are due in the range of a segment that held the latter alone."""
    now = Record(None, b"now", [], 5_000)
    manifest, _ = stored(entries=[(AT_ONCE, 105, None), (AT_ONCE, 110, now)])
    reader = Reader(None, log(_109=now, _110=now))
    with pytest.raises(RefusedError, match="it held 2 of "):
        source(restored_to=TO).load(manifest, 0, reader, keep_all)


def test_what_cancels_others_was_never_in_the_segment_nor_makes_up_for_what_was() -> None:
    at_once = {offset: Record(None, b"now", [], 5_000) for offset in (109, 113)}
    cancels = Record(None, None, [("deliver-cancel", b"order-7")], 5_000)
    manifest, _ = stored(entries=[(0, offset, each) for offset, each in at_once.items()])
    loaded = source().load(manifest, 0, Reader(None, {**at_once, 110: cancels}), keep_all)
    assert [entry[1] for entry in loaded] == [109, 113]
    with pytest.raises(RefusedError, match="holds 1 of its 2 records"):
        source().load(manifest, 0, Reader(None, {109: at_once[109], 110: cancels}), keep_all)


@pytest.mark.parametrize("segment", LOST)
def test_a_lost_segment_stops_the_partition_when_the_delay_topic_is_gone_too(segment: bytes | None) -> None:
    manifest, _ = stored()
    named = r"segment 0 of bucket 7 of d/3 is lost .*holds 0 of its 4 records.*Restore d\.delay-snapshots.*start-over"
    with pytest.raises(RefusedError, match=named):
        source().load(manifest, 0, Reader(segment, log(), log_start=FROM + 1), keep_all)


def test_a_lost_segment_is_not_made_good_in_part() -> None:
    manifest, _ = stored()
    held = log()
    del held[111]
    with pytest.raises(RefusedError, match="holds 3 of its 4 records"):
        source().load(manifest, 0, Reader(None, held), keep_all)


def test_the_segment_that_is_lost_is_the_only_one_that_is_made_good() -> None:
    writer = SegmentWriter(7, FROM, TO)
    for entries in (ENTRIES[:2], ENTRIES[2:]):
        ((ref, _),) = writer.encode(Placement.INLINE, entries)
        writer.written([ref], [SNAPSHOT_OFFSET])
    manifest = writer.manifest()
    reader = Reader(None, log())
    assert shown(source().load(manifest, 0, reader, keep_all)) == ENTRIES[:2]
    assert shown(source().load(manifest, 1, reader, keep_all)) == ENTRIES[2:]


def test_when_the_cluster_does_not_answer_nothing_is_concluded() -> None:
    manifest, value = stored()
    reader = Reader(value, log())
    reader.fails = True
    with pytest.raises(ClusterError):
        source().load(manifest, 0, reader, keep_all)


def as_stored(manifest: Manifest, reader: Reader, number: int = 0) -> list[StoredEntry]:
    """Return the entries that a merge takes out of a segment."""
    (record,) = source().read(manifest, range(number, number + 1), reader)
    return source().stored(manifest, number, record, reader)


def test_a_merge_reads_segments_as_they_are_stored() -> None:
    manifest, value = stored(Placement.POINTER)
    pointers = [(due_ms, offset, None) for due_ms, offset, _ in ENTRIES]
    assert as_stored(manifest, Reader(value, {})) == pointers
    assert as_stored(manifest, Reader(None, log())) == pointers
    inline, _ = stored()
    assert as_stored(inline, Reader(None, log())) == ENTRIES


def test_what_a_manifest_says_of_written_segments() -> None:
    manifest, value = stored()
    (ref,) = manifest.segments
    assert (manifest.from_offset, manifest.to_offset, manifest.needs_from) == (FROM, TO, None)
    assert (ref.first, ref.last) == (Position(5_010, 107), Position(5_030, 115))
    assert (ref.entries, ref.size_bytes, ref.record_offset) == (4, len(value), SNAPSHOT_OFFSET)


REJECTED: list[StoredEntry] = [(AT_ONCE, 105, None), (AT_ONCE, 106, None)]


def adopted(from_offset: int = FROM) -> tuple[Manifest, bytes]:
    """Return a bucket that a backfill built of all records from FROM on, adopted at ``from_offset``."""
    manifest, value = stored(entries=[*REJECTED, *ENTRIES])
    return replace(manifest, from_offset=from_offset, built_from=FROM), value


def adopted_log() -> dict[int, Record]:
    """Return the delay topic without a record that the bucket would hold, too."""
    return {offset: record for offset, record in log().items() if offset != 108}


@pytest.mark.parametrize("damaged", [False, True])
def test_what_a_backfill_leaves_to_be_rejected_comes_with_its_record_and_no_target(damaged: bool) -> None:
    manifest, value = adopted()
    loaded = source().load(manifest, 0, Reader(None if damaged else value, adopted_log()), keep_all)
    assert [entry[:2] for entry in loaded] == [entry[:2] for entry in REJECTED + ENTRIES]
    for _, offset, payload in loaded[:2]:
        assert payload.schedule.targets == ()
        assert payload.record == adopted_log()[offset]
    shown(loaded[2:])


def test_one_of_those_that_is_gone_is_lost() -> None:
    manifest, value = adopted()
    held = adopted_log()
    del held[105]
    payload = source().load(manifest, 0, Reader(value, held), keep_all)[0][2]
    assert (payload.schedule.targets, payload.record) == ((), None)


@pytest.mark.parametrize("damaged", [False, True])
def test_what_lies_below_an_adopted_bucket_is_not_loaded(damaged: bool) -> None:
    manifest, value = adopted(from_offset=107)
    reader = Reader(None if damaged else value, adopted_log())
    assert shown(source().load(manifest, 0, reader, keep_all)) == [entry for entry in ENTRIES if entry[1] >= 107]
    assert as_stored(manifest, reader) == [entry for entry in ENTRIES if entry[1] >= 107]


def test_an_adopted_bucket_is_made_good_by_the_rules_in_force_where_it_was_adopted() -> None:
    manifest, _ = adopted(from_offset=111)
    others = Rules("d", default_target="elsewhere", max_delay_ms=1)
    loaded = source(RuleEpoch(0, others), RuleEpoch(110, RULES)).load(
        manifest, 0, Reader(None, adopted_log()), keep_all
    )
    assert [entry[1] for entry in loaded] == [entry[1] for entry in ENTRIES if entry[1] >= 111]

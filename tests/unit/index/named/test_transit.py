"""Notes in transit, against a plain list; and which index they belong to."""

import random

import pytest

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.named import transit as shipped
from index.named.names import hash_of
from index.named.receipts import ControlOutcome
from index.named.transit import InTransit, Lot, Transit, lots_of, relocated
from index.partition.adopting import Adoption
from index.partition.partition import PartitionIndex
from index.pending.progress import Position, Progress
from index.protocol.record import Record
from index.protocol.schedule import Action, Control

ID = hash_of(b"a")
CANCEL = Control(Action.CANCEL, b"a")
NOTHING = Record(None, None, (), 0)


@pytest.mark.parametrize("seed", range(30))
def test_random_transactions_against_a_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "MOST_IN_LOT", 3)
    rng = random.Random(seed)
    transit, plain, stored = Transit(), list[InTransit](), dict[Lot, tuple[InTransit, ...]]()
    cursor = end = 0
    for number in range(60):
        cursor = rng.randint(cursor, end)
        transit.leave(cursor)
        for lot in transit.leaving:
            del stored[lot]
        # Each lot stays whole until C is behind its last note.
        lots = [each for each in stored.values() if each[-1].place.offset < cursor]
        assert not lots
        offsets = sorted(rng.sample(range(end, end + 20), rng.randint(0, 7)))
        notes = [InTransit(Position(rng.randint(0, 99), at), rng.choice([b"a", b"b"])) for at in offsets]
        end += 20
        transit.check()
        transit.confirm()
        transit.add(number, notes)
        stored |= lots_of(number, notes)
        plain = [each for each in plain if each.place.offset >= cursor] + notes
        if rng.random() < 0.3:
            transit = Transit(stored)
        transit.check()
        assert transit.reaches >= max((each.place.offset + 1 for each in plain), default=0)
        for id_hash in (b"a", b"b", b"c"):
            at = rng.randint(cursor, end)
            wanted = [each.place for each in plain if each.id_hash == id_hash and each.place.offset > at]
            assert sorted(transit.find(id_hash, at)) == sorted(wanted)


def index_at(cursor: int, *notes: InTransit) -> PartitionIndex[str, str]:
    progress = Progress(cursor, Position(1_000, 0), cursor)
    return PartitionIndex(progress, len, transit=Transit(lots_of(7, notes)))


def test_a_control_cancels_what_is_written_behind_it_and_was_not_read() -> None:
    index = index_at(10, InTransit(Position(5_000, 12), ID), InTransit(Position(6_000, 13), hash_of(b"other")))
    receipt, _ = index.control(10, CANCEL, NOTHING)
    assert receipt is not None
    assert (receipt.outcome, receipt.cancelled) == (ControlOutcome.CANCELLED, (Position(5_000, 12),))
    batch = index.plan(0, 10, 1_000)
    assert batch.progress.cursor == 11
    index.confirm()
    index.check()
    assert list(index.add([(5_000, 12, "cancelled"), (6_000, 13, "other")])) == [(6_000, 13, "other")]
    assert index.plan(9_000, 10, 1_000).due == [(6_000, 13, "other")]
    assert index.named.transit.leaving == ((7, 0),)
    index.confirm()
    index.check()
    assert not index.named.mask
    assert not len(index.named.transit)


def test_it_is_read_before_the_receipt_has_left() -> None:
    index = index_at(10, InTransit(Position(5_000, 11), ID))
    index.control(10, CANCEL, NOTHING)
    index.add([(5_000, 11, "cancelled")])
    second, _ = index.control(12, CANCEL, NOTHING)
    assert second is not None
    assert second.outcome is ControlOutcome.NOT_PENDING
    batch = index.plan(9_000, 10, 1_000)
    assert (batch.due, [each.outcome.value for each in batch.receipts]) == ([], ["cancelled", "not-pending"])
    index.confirm()
    index.check()
    assert index.plan(9_000, 10, 1_000).due == []


def test_what_was_cancelled_in_transit_is_not_rejected_by_new_rules_either() -> None:
    index = index_at(10, InTransit(Position(5_000, 11), ID), InTransit(Position(5_000, 12), hash_of(b"other")))
    index.control(10, CANCEL, NOTHING)
    assert not index.reject(11, "not allowed any more")
    assert index.reject(12, "not allowed any more")
    index.plan(9_000, 10, 1_000)
    index.confirm()
    index.check()


def test_one_that_was_read_is_not_named_twice() -> None:
    index = index_at(10, InTransit(Position(5_000, 11), ID))
    index.advance(11)
    index.named.names.add(ID, Position(5_000, 11))
    index.add([(5_000, 11, "read")])
    receipt, _ = index.control(12, CANCEL, NOTHING)
    assert receipt is not None
    assert receipt.cancelled == (Position(5_000, 11),)


def test_what_is_in_a_bucket_that_is_adopted_stays_cancelled() -> None:
    index = index_at(10, InTransit(Position(5_000, 12), ID))
    index.control(10, CANCEL, NOTHING)
    index.plan(0, 10, 1_000)
    index.confirm()
    segment = SegmentRef(Position(5_000, 12), Position(6_000, 13), 2, 10, 0, Placement.INLINE)
    index.plan(0, 10, 1_000, Adoption(Manifest(0, 11, 20, None, (segment,), built_from=11)))
    index.confirm()
    index.check()
    assert index.committed.sealed_to == 20
    assert 12 in index.named.mask


def test_notes_of_a_lot_stay_in_order_if_only_some_of_its_records_have_moved() -> None:
    notes = [InTransit(Position(5_000, offset), b"id") for offset in (40, 41, 42)]
    (moved,) = relocated({(7, 0): notes}, {40: 90, 42: 91}).values()
    assert [note.place.offset for note in moved] == [41, 90, 91]

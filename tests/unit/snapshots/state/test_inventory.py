"""The inventory of a state: kept up to date by written records, stored with progress, and compared with found keys."""

import random

import pytest

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.errors import FormatError, StateLostError
from index.pending.progress import BEFORE_ALL, Behind, Position, Progress
from index.protocol.record import Record
from index.protocol.schedule import KEEP_KEY, Schedule
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from snapshots.envelope import Kind, wrap
from snapshots.proto import state_pb2
from snapshots.segments.manifest import encode_manifest, manifest_key
from snapshots.state.held import MAX_PART_BYTES, HeldEntry, encode_held, held_key
from snapshots.state.inventory import NOTHING_STORED, Inventory, InventoryKeeper, inventory_message, inventory_of
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress, fold_state
from tests.support.stored import MANIFEST, forged, golden

Stored = list[tuple[bytes | None, bytes | None]]

BUCKETS = 12
PROGRESS = Progress(100, Position(7, 3), 100, 2, BUCKETS)
RULES: Stored = [(RULES_KEY, encode_history(RuleHistory.beginning(0, Rules("d"))))]
SCHEDULE = Schedule(5, ("t",), -1, KEEP_KEY, None, both_times=False)
LARGE = b"x" * (2 * MAX_PART_BYTES)
SAID_TWICE = state_pb2.Inventory(bucket_id_deltas=[42, 0])


def said(inventory: Inventory | None) -> Stored:
    return [(PROGRESS_KEY, encode_progress(PROGRESS, "id", inventory))]


def manifest(bucket_id: int) -> Manifest:
    at = Position(50, bucket_id)
    return Manifest(bucket_id, bucket_id, bucket_id + 1, None, (SegmentRef(at, at, 1, 9, 0, Placement.INLINE),))


def bucket(bucket_id: int) -> tuple[bytes, bytes]:
    return manifest_key(bucket_id), encode_manifest(manifest(bucket_id))


def held(offset: int, value: bytes = b"v") -> list[tuple[bytes, bytes]]:
    return encode_held(HeldEntry(offset, SCHEDULE, Record(None, value, (), 3)))


@pytest.mark.parametrize("ids", [(), (0,), (7,), (0, 1, 2), (3, 5, 64, 2**62), tuple(range(3_000, 3_064))])
def test_what_was_said_comes_back(ids: tuple[int, ...]) -> None:
    assert inventory_of(inventory_message(Inventory(ids, 5))) == Inventory(ids, 5)


def test_64_buckets_cost_less_than_100_bytes() -> None:
    inventory = Inventory(tuple(range(900, 964)))
    assert len(encode_progress(PROGRESS, "id", inventory)) < len(encode_progress(PROGRESS, "id")) + 100


def test_an_id_that_is_named_twice_is_refused() -> None:
    with pytest.raises(FormatError, match="there are buckets 42, 42, one of them twice"):
        inventory_of(SAID_TWICE)
    message = state_pb2.Progress(cursor=9, sealed_to=9, inventory=SAID_TWICE)
    assert golden("progress-v1-id-twice.bin") == wrap(Kind.PROGRESS, message.SerializeToString())
    with pytest.raises(FormatError, match="one of them twice"):
        fold_state([(PROGRESS_KEY, golden("progress-v1-id-twice.bin")), *RULES])


def test_what_version_1_says_since_it_says_so_is_read() -> None:
    progress = Progress(12_000, Position(1_800_000_000_123, 4242), 10_000, 99, 43)
    stored = golden("progress-inventory-v1.bin")
    assert stored == encode_progress(progress, "kq3pQmZTRxu6dGVVTm5eJw", Inventory((42,), 1))
    rest: Stored = [
        (RULES_KEY, golden("rules-v1.bin")),
        (manifest_key(42), golden("manifest-v1.bin")),
        (held_key(4711, 0), golden("held-v1.bin")),
    ]
    state = fold_state([*rest, (PROGRESS_KEY, stored)])
    assert state is not None
    assert (state.progress, state.inventory) == (progress, Inventory((42,), 1))
    assert state.buckets == (MANIFEST,)
    for missing in range(len(rest)):
        with pytest.raises(StateLostError, match="part of the state was lost"):
            fold_state([*rest[:missing], *rest[missing + 1 :], (PROGRESS_KEY, stored)])


def test_a_forged_one_is_refused_or_says_what_is_there(rng: random.Random) -> None:
    rest: Stored = [(RULES_KEY, golden("rules-v1.bin")), (manifest_key(42), golden("manifest-v1.bin"))]
    rest.append((held_key(4711, 0), golden("held-v1.bin")))
    for _ in range(2_000):
        try:
            state = fold_state([*rest, (PROGRESS_KEY, forged(Kind.PROGRESS, golden("progress-inventory-v1.bin"), rng))])
        except FormatError:
            continue
        assert state is not None
        assert state.inventory in (None, Inventory((42,), 1))


@pytest.mark.parametrize(
    ("inventory", "there", "message"),
    [
        (Inventory((2, 4)), [bucket(4)], "the state topic lacks buckets 2: part of the state was lost"),
        (Inventory(tuple(range(8))), [bucket(7)], "lacks buckets 0, 1, 2, 3, 4 and 2 more"),
        (Inventory((), 3), held(7), "the state topic lacks 2 of 3 records that were held for their targets"),
        (Inventory((), 3), held(7, LARGE)[1:], "1 of 3 records that were held"),
        (Inventory((1,), 1), [], "lacks buckets 1 and 1 of 1 records that were held"),
    ],
)
def test_what_is_missing_is_named(inventory: Inventory, there: Stored, message: str) -> None:
    with pytest.raises(StateLostError, match=message):
        fold_state([*RULES, *there, *said(inventory)])


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ([bucket(3)], "there are buckets 3, of which the progress does not know"),
        (held(7), "there are 1 records that were held for their targets, and by the progress 0"),
    ],
)
def test_what_is_there_without_being_said_is_refused_and_not_as_a_loss(there: Stored, message: str) -> None:
    """Its progress is missing behind it. A lost beginning never has this effect."""
    with pytest.raises(FormatError, match=message) as refused:
        fold_state([*RULES, *there, *said(NOTHING_STORED)])
    assert not isinstance(refused.value, StateLostError)


def test_an_adopted_bucket_that_is_gone_is_a_loss_too() -> None:
    behind = PROGRESS._replace(catching_up=(Behind(1, BEFORE_ALL),))
    with pytest.raises(StateLostError, match="lacks buckets 1"):
        fold_state([*RULES, (PROGRESS_KEY, encode_progress(behind, "id", Inventory((1,))))])


def test_where_nothing_was_said_nothing_is_missed() -> None:
    """Earlier routers wrote progress without an inventory, and may write the next progress during a rolling update."""
    state = fold_state([*RULES, bucket(4), *said(Inventory((2, 4))), *said(None)])
    assert state is not None
    assert state.inventory is None
    assert [each.bucket_id for each in state.buckets] == [4]


def test_the_keeper_begins_with_what_the_state_holds() -> None:
    entry = HeldEntry(7, SCHEDULE, Record(None, LARGE, (), 3), parts=3)
    keeper = InventoryKeeper([manifest(4), manifest(2)], [entry])
    assert keeper.current == Inventory((2, 4), 3)
    keeper.begin()
    for part in range(3):
        keeper.note(held_key(7, part), None)
    assert keeper.current == Inventory((2, 4), 0)


def test_a_transaction_that_is_not_committed_changes_nothing() -> None:
    keeper = InventoryKeeper([manifest(4)])
    for _ in range(2):
        keeper.begin()
        keeper.note(manifest_key(5), b"")
        keeper.note(manifest_key(4), None)
        assert keeper.current == Inventory((5,))
    keeper.begin()
    assert keeper.current == Inventory((4,))
    keeper.committed()
    assert keeper.current == Inventory((4,))


def test_the_last_record_of_a_key_counts_and_those_of_other_keys_do_not() -> None:
    keeper = InventoryKeeper()
    keeper.begin()
    keeper.note(held_key(7, 0), b"")
    keeper.note(held_key(7, 0), None)
    keeper.note(held_key(8, 0), None)
    keeper.note(held_key(8, 0), b"")
    keeper.note(manifest_key(1), None)
    keeper.note(b"ending", b"")
    keeper.note(PROGRESS_KEY, b"")
    keeper.note(RULES_KEY, b"")
    keeper.committed()
    assert keeper.current == Inventory((), 1)


def test_every_loss_of_a_beginning_is_found(rng: random.Random) -> None:
    """An owner writes, aborts and compacts at random: the remainder is the whole state, or is refused."""
    for _ in range(60):
        log = _history(rng)
        whole = fold_state(log)
        for cut in range(1, len(log)):
            left = log[cut:]
            try:
                found = fold_state(left)
            except StateLostError:
                assert _last_values(left) != _last_values(log), "refused, and nothing is lost"
            else:
                assert found == whole, f"{cut} of {len(log)} records were removed, and nobody noticed"


def _history(rng: random.Random) -> Stored:
    keeper = InventoryKeeper()
    keeper.begin()
    log: Stored = [*RULES, *said(keeper.current)]
    there: set[bytes] = set()
    for _ in range(rng.randrange(1, 20)):
        keeper.begin()
        transaction: Stored = list(RULES) if rng.random() < 0.2 else []
        for key, value in [bucket(rng.randrange(BUCKETS)), *held(rng.randrange(5))]:
            if key in there or rng.random() < 0.5:
                written = None if key in there and rng.random() < 0.7 else value
                keeper.note(key, written)
                transaction.append((key, written))
        transaction += said(keeper.current)
        if rng.random() < 0.2:
            continue  # aborted
        keeper.committed()
        log += transaction
        if rng.random() < 0.2:
            log = list(_last_values(log).items())
        there = {key for key in _last_values(log) if key}
    return log


def _last_values(log: Stored) -> dict[bytes | None, bytes]:
    latest: dict[bytes | None, bytes] = {}
    for key, value in log:
        latest.pop(key, None)
        if value is not None:
            latest[key] = value
    return latest

"""The mask in the state topic: written whole by container, read back, and anything else refused."""

import random

import pytest

from index.errors import FormatError, StateLostError
from index.named.mask import CONTAINER_BITS, Mask
from index.pending.progress import Position, Progress
from snapshots.envelope import Kind
from snapshots.show import show
from snapshots.state.inventory import Inventory, InventoryKeeper
from snapshots.state.mask import decode_mask, mask_key, mask_records
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_progress, fold_state
from tests.support.stored import forged, golden

GOLDEN = [4711, 4712, 4720, *range(5_000, 5_100), 65_535]


def test_golden_file() -> None:
    mask = Mask()
    mask.add(GOLDEN)
    assert list(mask_records(mask)) == [(mask_key(0), golden("mask-v1.bin"))]
    assert list(decode_mask([(mask_key(0), golden("mask-v1.bin"))])) == GOLDEN


def test_inspect_tells_what_was_cancelled() -> None:
    assert list(show(golden("mask-v1.bin")))[1:] == ["  cancelled    104 records from offset 4711 to 65535"]


@pytest.mark.parametrize("seed", range(30))
def test_random_changes_against_a_set_and_what_is_stored(seed: int) -> None:
    rng = random.Random(seed)
    mask, plain = Mask(), set[int]()
    stored: dict[bytes, bytes] = {}
    for _ in range(40):
        cancelled = [rng.randrange(4 << CONTAINER_BITS) for _ in range(rng.randint(0, 5))]
        mask.add(cancelled)
        plain.update(cancelled)
        if rng.random() < 0.5:
            start, needed_from = rng.randrange(3 << CONTAINER_BITS), rng.randrange(5 << CONTAINER_BITS)
            kept = range(start, start + rng.randrange(2 << CONTAINER_BITS))
            mask.forget([kept], needed_from)
            plain = {offset for offset in plain if offset >= min(needed_from, kept.start)}
        for key, value in mask_records(mask):
            stored.pop(key, None)
            if value is not None:
                stored[key] = value
        mask.committed()
        mask.check()
        assert len(mask) == len(plain)
        assert mask.containers == len(stored)
        assert list(decode_mask(stored.items())) == sorted(plain)


def test_a_transaction_writes_what_it_changes_alone() -> None:
    mask = Mask(range(0, 1 << 20, 1_000))
    mask.add([5, 70_000, 70_001])
    assert [key for key, _ in mask_records(mask)] == [mask_key(0), mask_key(1)]


def test_half_a_million_fit_a_handful_of_records() -> None:
    mask = Mask()
    mask.add(range(1_000_000, 11_000_000, 20))
    values = [value for _, value in mask_records(mask) if value is not None]
    assert len(values) == 153
    assert sum(map(len, values)) < 1_300_000


def test_another_container_and_an_empty_one_are_refused() -> None:
    with pytest.raises(FormatError, match="holds container 0"):
        decode_mask([(mask_key(1), golden("mask-v1.bin"))])
    rng = random.Random(7)
    for _ in range(300):
        value = forged(Kind.MASK, golden("mask-v1.bin"), rng)
        try:
            found = decode_mask([(mask_key(0), value)])
        except FormatError:
            continue
        assert found
        assert all(offset >> CONTAINER_BITS == 0 for offset in found)


def test_a_state_without_the_mask_it_tells_of_is_refused() -> None:
    mask = Mask()
    mask.add(GOLDEN)
    keeper = InventoryKeeper()
    inventory = keeper.after(mask_records(mask))
    assert inventory == Inventory((), 0, 1)
    keeper.committed()
    assert InventoryKeeper(mask=GOLDEN).current == keeper.current
    state = fold_state([*_told(inventory), *mask_records(mask)])
    assert state is not None
    assert list(state.mask) == GOLDEN
    with pytest.raises(StateLostError, match="1 of 1 parts of what was cancelled"):
        fold_state(_told(inventory))
    with pytest.raises(FormatError, match="there are 1 parts"):
        fold_state([*_told(Inventory()), *mask_records(mask)])


def _told(inventory: Inventory) -> list[tuple[bytes, bytes | None]]:
    progress = Progress(5_000, Position(-1, -1), 4_000)
    return [(RULES_KEY, golden("rules-v1.bin")), (PROGRESS_KEY, encode_progress(progress, "id", inventory))]

"""Notes in transit in the state topic: read back as written, and anything else refused."""

import pytest

from index.errors import FormatError, StateLostError
from index.named.transit import InTransit
from index.pending.progress import Position, Progress
from snapshots.envelope import Kind, wrap
from snapshots.proto import state_pb2
from snapshots.show import show
from snapshots.state.inventory import Inventory, InventoryKeeper
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_progress, fold_state
from snapshots.state.transit import decode_transit, encode_transit, transit_key, transit_keys
from tests.support.stored import golden

LOT = (907, 0)
NOTES = (InTransit(Position(1_767_225_600_000, 4_711), b"a" * 16), InTransit(Position(0, 4_713), bytes(range(16))))


def test_golden_file() -> None:
    assert encode_transit(LOT, NOTES) == (transit_key(LOT), golden("transit-v1.bin"))
    assert decode_transit([(transit_key(LOT), golden("transit-v1.bin"))]) == {LOT: NOTES}
    assert transit_keys(907, 2) == [b"transit/00000000000000000907/0"]


def test_inspect_tells_where_it_lies() -> None:
    assert list(show(golden("transit-v1.bin")))[1:] == [
        "  appended by  transaction 907 of the partition",
        "  at 4711      due 2026-01-01T00:00:00.000Z, id hash 61616161616161616161616161616161",
        "  at 4713      due 1970-01-01T00:00:00.000Z, id hash 000102030405060708090a0b0c0d0e0f",
    ]


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ([], "nothing, or not in the order of the log"),
        ([(4, 5, b"a" * 16), (4, 5, b"a" * 16)], "not in the order of the log"),
        ([(-1, 5, b"a" * 16)], "not in the order of the log"),
        ([(4, -5, b"a" * 16)], "at offset 4 nothing can be in transit"),
        ([(4, 5, b"short")], "at offset 4 nothing can be in transit"),
    ],
)
def test_what_nobody_writes_is_refused(notes: list[tuple[int, int, bytes]], message: str) -> None:
    made = [state_pb2.InTransit(offset=offset, due_ms=due_ms, id_hash=raw) for offset, due_ms, raw in notes]
    stored = wrap(Kind.TRANSIT, state_pb2.Transit(number=907, notes=made).SerializeToString())
    with pytest.raises(FormatError, match=message):
        decode_transit([(transit_key(LOT), stored)])


def test_a_lot_under_the_key_of_another_is_refused() -> None:
    with pytest.raises(FormatError, match="holds lot 0 of transaction 907"):
        decode_transit([(transit_key((908, 0)), golden("transit-v1.bin"))])


def test_one_that_is_missing_is_a_loss() -> None:
    said = InventoryKeeper(transit=[LOT]).current
    assert said == Inventory(transit_keys=1)
    progress = encode_progress(Progress(4_000, Position(1, 1), 4_000), "id", said)
    records = [(PROGRESS_KEY, progress), (RULES_KEY, golden("rules-v1.bin"))]
    state = fold_state([*records, (transit_key(LOT), golden("transit-v1.bin"))])
    assert state is not None
    assert state.transit == {LOT: NOTES}
    with pytest.raises(StateLostError, match="1 of 1 lots of what is in transit"):
        fold_state(records)

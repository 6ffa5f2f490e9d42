"""Queries in the state topic: written as they change, read back, and anything else refused."""

import json
import random

import pytest

from index.errors import FormatError, StateLostError
from index.named.queries import MOST_QUERIES, Queries, Query
from index.pending.progress import Position, Progress
from index.protocol.where import CancelWhere, WantedHeader
from snapshots.envelope import Kind, wrap
from snapshots.proto import state_pb2
from snapshots.show import show
from snapshots.state.inventory import Inventory, InventoryKeeper
from snapshots.state.queries import decode_queries, encode_query, query_key, query_records
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_progress, fold_state
from tests.support.stored import forged, golden

WHERE = CancelWhere("orders", 1_767_225_600_000, None, b"order-", WantedHeader("customer", "é".encode()))
QUERY = Query(4_711, WHERE, 1_000_000)
KEY = query_key(4_711)


def test_golden_file() -> None:
    assert encode_query(QUERY) == golden("query-v1.bin")
    assert decode_queries([(KEY, golden("query-v1.bin"))]) == (QUERY,)


def test_a_million_cancelled_schedules_take_a_fraction_of_a_kilobyte() -> None:
    assert len(encode_query(QUERY)) < 300


def test_inspect_tells_what_was_cancelled() -> None:
    _, where, cancelled = show(golden("query-v1.bin"))
    assert where.startswith(
        '  where        {"due_from":1767225600000,"header":{"name":"customer","value":"\\xe9"},"id_p'
    )
    assert cancelled == "  cancelled    schedules in front of offset 4711, about 1,000,000 still in their places"


def test_a_predicate_of_a_newer_router_is_refused_and_says_so() -> None:
    newer = json.dumps({"target": "orders", "key": "7"}).encode()
    stored = wrap(Kind.QUERY, state_pb2.Query(offset=4_711, where=newer).SerializeToString())
    with pytest.raises(FormatError, match=r"its predicate is not known here: key: there is no such field.*upgrade"):
        decode_queries([(KEY, stored)])


@pytest.mark.parametrize("where", [b"", b"{}", b"[]", b'{"target": "orders"}', b'{"target":"orders","target":"b"}'])
def test_a_damaged_predicate_is_refused(where: bytes) -> None:
    stored = wrap(Kind.QUERY, state_pb2.Query(offset=4_711, where=where).SerializeToString())
    with pytest.raises(FormatError, match="its predicate is not"):
        decode_queries([(KEY, stored)])


def test_forged_values_and_another_key_are_refused() -> None:
    with pytest.raises(FormatError, match="is about the control at 4711"):
        decode_queries([(query_key(4_712), golden("query-v1.bin"))])
    rng = random.Random(7)
    for _ in range(300):
        try:
            found = decode_queries([(KEY, forged(Kind.QUERY, golden("query-v1.bin"), rng))])
        except FormatError:
            continue
        assert found[0].offset == 4_711
        assert found[0].left >= 0


def test_more_queries_than_there_may_be_are_refused() -> None:
    stored = [(query_key(offset), encode_query(QUERY._replace(offset=offset))) for offset in range(MOST_QUERIES + 1)]
    assert len(decode_queries(stored[1:])) == MOST_QUERIES
    with pytest.raises(FormatError, match="101 queries are in force"):
        decode_queries(stored)


@pytest.mark.parametrize("seed", range(30))
def test_random_changes_against_what_is_stored(seed: int) -> None:
    rng = random.Random(seed)
    queries, stored = Queries(), dict[bytes, bytes]()
    keeper, cursor, sealed_to = InventoryKeeper(), 0, 0
    left: dict[int, int] = {}
    for _ in range(60):
        cursor += rng.randint(1, 9)
        if rng.random() < 0.4:
            left[cursor] = rng.randint(0, 5)
            queries.owe(Query(cursor, WHERE._replace(target=f"t{cursor}"), left[cursor]))
        ranges = [range(rng.randint(0, cursor), cursor)] if rng.random() < 0.5 else []
        sealed_to = rng.randint(sealed_to, cursor)
        queries.begin(ranges, sealed_to)
        needed_from = queries._needed_from
        for offset in rng.choices([*left], k=rng.randint(0, 3)) if left else []:
            queries.drop(offset)
            left[offset] = max(0, left[offset] - 1)
        left = {offset: count for offset, count in left.items() if offset > needed_from}
        written = list(query_records(queries))
        if rng.random() < 0.3:
            written = list(query_records(queries))
        inventory = keeper.after(written)
        for key, value in written:
            stored.pop(key, None)
            if value is not None:
                stored[key] = value
        queries.confirm()
        keeper.committed()
        queries.check()
        found = decode_queries(stored.items())
        assert list(found) == queries.in_force
        assert {query.offset: query.left for query in found} == left
        assert queries.left == sum(left.values())
        assert inventory.query_keys == len(stored) == len(queries)
        assert InventoryKeeper(queries=found).current == keeper.current


def test_a_state_without_a_query_it_tells_of_is_refused() -> None:
    state = fold_state([*_told(Inventory(query_keys=1)), (KEY, golden("query-v1.bin"))])
    assert state is not None
    assert state.queries == (QUERY,)
    with pytest.raises(StateLostError, match="lacks 1 of 1 queries in force"):
        fold_state(_told(Inventory(query_keys=1)))
    with pytest.raises(FormatError, match="there are 1 queries in force, and by the progress 0"):
        fold_state([*_told(Inventory()), (KEY, golden("query-v1.bin"))])


def _told(inventory: Inventory) -> list[tuple[bytes, bytes | None]]:
    progress = Progress(5_000, Position(-1, -1), 4_000)
    return [(RULES_KEY, golden("rules-v1.bin")), (PROGRESS_KEY, encode_progress(progress, "id", inventory))]

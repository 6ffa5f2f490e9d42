"""The schedules that queries have cancelled, found in batches of the log: spark_backfill.build.queried."""

import pyarrow as pa

from index.named.queries import Query
from index.protocol.headers import Headers
from index.protocol.where import CancelWhere, WantedHeader
from index.rules.rules import Rules, TargetRule
from spark_backfill.build.queried import _Asking, _Matching

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RULES = Rules("d", "out", ("x",), max_delay_ms=5_000, target_rules=(TargetRule("out", spread_ms=1_000),))
SENT_MS = 1_800_000_000_000
SOON: Headers = [("deliver-after", b"2000")]
TO_X: Headers = [*SOON, ("deliver-to", b"x")]


def batch(*records: tuple[int, Headers], partition: int = 3) -> pa.RecordBatch:
    """Return records by offset as the connector hands them over."""
    rows = [[{"key": name, "value": raw} for name, raw in headers] for _, headers in records]
    columns = [
        pa.array([partition] * len(records), pa.int32()),
        pa.array([offset for offset, _ in records], pa.int64()),
        pa.array([SENT_MS * 1_000] * len(records), pa.timestamp("us")),
        pa.array(rows, HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["partition", "offset", "timestamp", "headers"])


def test_queries_are_found_and_rejected_ones_and_other_controls_are_not() -> None:
    asked = b'{"target": "x"}'
    records = batch(
        (5, SOON),
        (6, [("Deliver-Cancel-Where", asked), ("trace", b"1")]),
        (7, [("deliver-cancel", b"a")]),
        (8, [("deliver-cancel-where", b"{}")]),
        (9, [("deliver-cancel-where", asked), ("deliver-at", b"1")]),
    )
    (found,) = _Asking(RULES.to_json())([records])
    assert found.to_pylist() == [{"partition": 3, "offset": 6, "where": b'{"target":"x"}'}]


def test_what_a_query_has_cancelled_is_found_by_the_rules() -> None:
    queries = {
        3: [
            Query(10, CancelWhere("x"), 0),
            Query(20, CancelWhere(due_to_ms=SENT_MS + 2_001, header=WantedHeader("customer", b"7")), 0),
        ]
    }
    records = batch(
        (5, SOON),
        (6, TO_X),
        (7, [("deliver-after", b"6000"), ("deliver-to", b"x")]),
        (8, [("deliver-cancel", b"a"), ("customer", b"7")]),
        # It is spread, and judged by the time that it names.
        (9, [*SOON, ("customer", b"7")]),
        (11, TO_X),
        (12, [*TO_X, ("customer", b"7")]),
        (13, [("deliver-after", b"2001"), ("customer", b"7")]),
        (21, [*SOON, ("customer", b"7")]),
    )
    (found,) = _Matching(RULES.to_json(), queries)([records])
    assert [(row["partition"], row["offset"]) for row in found.to_pylist()] == [(3, 6), (3, 9), (3, 12)]
    (none,) = _Matching(RULES.to_json(), queries)([batch((6, TO_X), partition=4)])
    assert none.num_rows == 0

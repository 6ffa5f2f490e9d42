"""A job decides as the router does, also with header names that Java and Python change:
spark_backfill.buckets.decisions.
"""

from typing import Any

import pyarrow as pa
import pytest

from index.protocol.headers import Headers
from index.protocol.schedule import AT_ONCE
from index.rules.rules import RULES_VERSION, Rules
from index.rules.rules_stored import RULES_OF_0_1_0
from index.rules.unreadable import MAX_HEADERS
from snapshots.segments.rows import RowPacker
from spark_backfill.buckets.decisions import ByKernel, ByPython, ControlFoundError, decide, decisions, milliseconds
from spark_backfill.kernel import chosen

NOW_MS = 1_800_000_000_000
DUE = ("deliver-at", b"%d" % (NOW_MS + 60_000))

RECORDS: list[Headers] = [
    [DUE, ("trace\0id", b"1")],
    # Java replaces the bytes of a name that is no UTF-8.
    [DUE, ("trace\N{REPLACEMENT CHARACTER}", None)],
    [DUE, ("größe", b"1"), ("", None)],
    [DUE, *[("n", None)] * MAX_HEADERS],
    [DUE, *[("n", None)] * (MAX_HEADERS - 1)],
    [("deliver-at", b"soon")],
]


def batch_of(records: list[Headers]) -> pa.RecordBatch:
    """Return records as the connector hands them to Python."""
    count = len(records)
    headers = [[{"key": name, "value": raw} for name, raw in each] for each in records]
    return pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([NOW_MS * 1_000] * count, pa.timestamp("us", "UTC")),
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array([b"v"] * count, pa.binary()),
            "headers": pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )


@pytest.fixture(params=["", "off"], ids=["native where it is there", "python"])
def kernel(request: pytest.FixtureRequest) -> str:
    chosen_by: str = request.param
    return chosen_by


@pytest.mark.parametrize(
    ("version", "rejected"), [(RULES_VERSION, [0, 1, 3, 5]), (RULES_OF_0_1_0, [5])], ids=["now", "0.1.0"]
)
def test_what_is_not_read_as_it_came_is_left_to_the_router(version: int, rejected: list[int]) -> None:
    rules = Rules(topic="d", default_target="t", version=version)
    dues_ms, found, _, _ = decide(RECORDS, [NOW_MS] * len(RECORDS), range(len(RECORDS)), rules)
    assert found == rejected
    assert dues_ms == [AT_ONCE if number in rejected else NOW_MS + 60_000 for number in range(len(RECORDS))]


def test_what_cancels_or_replaces_is_found_and_not_indexed() -> None:
    schedule = [("deliver-id", b"a"), ("deliver-at", b"1800000000000")]
    for control in ([("deliver-cancel", b"a")], [*schedule, ("Deliver-Replace", b"true")]):
        with pytest.raises(ControlFoundError) as found:
            decide(
                [schedule, [("deliver-cancel", None)], control],
                [NOW_MS] * 3,
                range(3),
                Rules("d", default_target="out"),
            )
        assert found.value.number == 2


def test_who_has_an_id_is_told_of_what_is_accepted() -> None:
    refused: Headers = [("deliver-id", b"a"), ("deliver-at", b"soon")]
    records: list[Headers] = [[DUE], [DUE, ("deliver-id", b"a")], refused, [DUE, ("Deliver-Id", b"b")]]
    dues_ms, rejected, named, _ = decide(records, [NOW_MS] * 4, range(4), Rules("d", default_target="out"))
    assert (len(dues_ms), rejected, named) == (4, [2], [(1, b"a"), (3, b"b")])


def test_the_kernel_stops_at_a_control_and_python_says_which(kernel: str) -> None:
    schedule: Headers = [("deliver-id", b"a"), ("deliver-at", b"1800000000000")]
    batch = batch_of([schedule, [("deliver-cancel", None)], [("deliver-cancel", b"a")]])
    decides = decisions(chosen(kernel), Rules("d", default_target="out"), packs=True, answered=False)
    with pytest.raises(ControlFoundError) as found:
        decides.of(batch, milliseconds(batch.column("timestamp")))
    assert found.value.number == 2


def test_controls_that_are_answered_are_decided_as_anything_else(kernel: str) -> None:
    schedule: Headers = [("deliver-id", b"a"), ("deliver-at", b"1800000000000")]
    batch = batch_of([schedule, [("deliver-cancel", b"a")], [*schedule, ("deliver-replace", b"true")]])
    decides = decisions(chosen(kernel), Rules("d", default_target="out"), packs=True, answered=True)
    decided = decides.of(batch, milliseconds(batch.column("timestamp")))
    assert [number for number, _ in decided.named] == [0, 1, 2]


def test_the_kernel_is_asked_more_rarely_where_it_knows_nothing() -> None:
    rules = Rules("d", default_target="t")
    python = ByPython(rules, RowPacker(), packs=True, answered=False)
    asked: list[int] = []

    class KnowsNothing:
        def decide(self, batch: Any, start: int, dues_ms: Any, rows: Any, ids: Any) -> int:
            asked.append(start)
            return start

    class Offers:
        def batch(self, *columns: Any) -> Any:
            return columns

    offers: Any = Offers()
    batch = batch_of([[DUE]] * 5_000)
    timestamps_ms = milliseconds(batch.column("timestamp"))
    found = ByKernel(python, offers, KnowsNothing()).of(batch, timestamps_ms)
    expected = ByPython(rules, RowPacker(), packs=True, answered=False).of(batch, timestamps_ms)
    assert [list(column) for column in found] == [list(column) for column in expected]
    assert len(asked) < 15

"""Runs between the two tasks of a job, against sorting the same rows: buckets.runs."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_backfill.buckets import runs
from spark_backfill.buckets.runs import InRuns, as_runs, in_order

SCHEMA = pa.schema(
    [
        ("slot_key", pa.int32()),
        ("bucket", pa.int32()),
        ("due_ms", pa.int64()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("size_bytes", pa.int32()),
        ("names", pa.string()),
        ("record", pa.binary()),
    ]
)

Rows = list[dict[str, Any]]


def decided(rng: random.Random, count: int) -> Rows:
    offsets = iter(rng.sample(range(100_000), count))
    found = []
    for offset in offsets:
        record = rng.choice([None, b"", rng.randbytes(rng.randrange(300))])
        slot = rng.randrange(5)
        found.append(
            {
                "slot_key": 70 + slot,
                "bucket": slot // 2,
                "due_ms": rng.randrange(1_000),
                "offset": offset,
                "timestamp_ms": rng.randrange(1_000),
                "size_bytes": len(record or b"") + 24,
                "names": None if record is None else rng.choice(['["a"]', '["a", "b"]']),
                "record": record,
            }
        )
    return found


def place_of(row: dict[str, Any]) -> tuple[int, int]:
    return row["due_ms"], row["offset"]


def batch(rows: Rows) -> pa.RecordBatch:
    # A batch may be a slice of a larger one.
    return pa.RecordBatch.from_pylist([*rows[:1], *rows], SCHEMA).slice(1)


@pytest.mark.parametrize("most_bytes", [runs.MOST_BYTES, 5_000, 0], ids=["in memory", "partly", "in a file"])
def test_rows_of_a_task_come_out_in_order(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most_bytes: int
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/none")
    monkeypatch.setattr(runs, "BATCH_RECORDS", rng.choice([1, 7, 10_000]))
    monkeypatch.setattr(runs, "BATCH_BYTES", rng.choice([1, 2_000, 1 << 24]))
    rows = decided(rng, 700)
    written = [as_runs(batch(rows[at : at + 90])) for at in range(0, 700, 90)]
    assert all(len(set(zip(*each.to_pydict().values(), strict=True))) == each.num_rows <= 5 for each in written)
    for key in range(70, 75):
        # Spark gives all rows of a key to one task.
        task = [each.filter(pa.array([found == key for found in each["slot_key"].to_pylist()])) for each in written]
        found: Rows = [row for each in in_order(task, most_bytes) for row in each.to_pylist()]
        expected = sorted(
            (row for row in rows if row["slot_key"] == key), key=lambda row: (row["due_ms"], row["offset"])
        )
        assert found == [{name: row[name] for name in found[0]} for row in expected]
    assert list(tmp_path.iterdir()) == [], "no file is left"


def test_buckets_that_share_a_task_come_one_after_the_other(rng: random.Random) -> None:
    rows = decided(rng, 300)
    (*found,) = in_order([as_runs(batch(rows))])
    places = [(row["bucket"], row["due_ms"], row["offset"]) for each in found for row in each.to_pylist()]
    assert places == sorted((row["bucket"], row["due_ms"], row["offset"]) for row in rows)


def test_what_is_known_to_have_left_is_in_no_run(rng: random.Random) -> None:
    rows = decided(rng, 300)
    deciding: Any = lambda batches: batches  # noqa: E731 -- another test covers decisions
    for gone_before_ms in (-1, 700, 2_000):
        written = InRuns(deciding, gone_before_ms)([batch(rows)])
        found = {row["offset"] for each in in_order(list(written)) for row in each.to_pylist()}
        assert found == {row["offset"] for row in rows if max(row["due_ms"], row["timestamp_ms"]) > gone_before_ms}

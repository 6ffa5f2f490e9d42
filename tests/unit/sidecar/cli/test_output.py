"""The output of commands: the chart of the router's gauge, and tables and entries that fit the terminal."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from rich.cells import cell_len

from index.partition.survey import BOUNDS_MS
from sidecar.cli import output
from sidecar.cli.output import (
    LABELS,
    bar,
    format_bytes,
    pending_chart,
    print_entries,
    print_table,
)
from sidecar.engine.ownership.status import BOUND_NAMES, PartitionState, PartitionStatus
from sidecar.metrics import Metrics
from sidecar.operations.asking.router_answers import build_of, retention_warnings, topics_of
from sidecar.process.partition_collector import PartitionCollector

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the terminal 80 columns wide."""
    monkeypatch.setattr(output, "width", lambda: 80)


def page(*statuses: PartitionStatus) -> str:
    registry = CollectorRegistry()
    registry.register(PartitionCollector(lambda: list(statuses), lambda: 0))
    return generate_latest(registry).decode()


def status(partition: int, *by_due: int) -> PartitionStatus:
    return PartitionStatus(
        "a", partition, PartitionState.ACTIVE, by_due=by_due, buckets=2, snapshot_bytes=1_500 + partition
    )


def test_what_a_worker_counts_is_what_status_shows() -> None:
    one, two = (3, 0, 1, 0, 0, 0, 0, 0, 0, 9), (1, 2, 0, 0, 0, 0, 0, 5, 0, 0)
    (topic,) = topics_of(page(status(0, *one), status(1, *two), PartitionStatus("a", 2, PartitionState.WAITING)))
    assert topic.by_due == tuple(zip(BOUND_NAMES, map(sum, zip(one, two, strict=True)), strict=True))
    assert (topic.buckets, topic.snapshot_bytes) == (4, 3_001)
    assert topic.as_json()["pending_by_due"] == dict(topic.by_due)


def test_before_anything_was_counted_there_is_no_chart() -> None:
    (topic,) = topics_of(page(PartitionStatus("a", 0, PartitionState.ACTIVE)))
    assert topic.by_due == ()
    assert pending_chart(topic.by_due) == []


def test_status_tells_which_kernel_a_router_runs() -> None:
    assert build_of(generate_latest(Metrics("native").registry).decode())["kernel"] == "native"
    assert build_of(page()) == {}


def test_every_range_has_a_name() -> None:
    assert set(LABELS) == set(BOUND_NAMES)
    assert len(BOUND_NAMES) == len(BOUNDS_MS) + 1


def test_the_chart() -> None:
    counts = [0, 1, 0, 500, 1_000, 0, 0, 0, 0, 250]
    assert pending_chart(list(zip(BOUND_NAMES, counts, strict=True)), width=8) == [
        "overdue      0",
        "    1 s      1  ▏",
        "   10 s      0",
        "  1 min    500  ████",
        " 10 min  1,000  ████████",
        "    1 h      0",
        "    6 h      0",
        "    1 d      0",
        "    7 d      0",
        "  later    250  ██",
    ]


@pytest.mark.parametrize(
    ("count", "expected"), [(0, ""), (1, "▏"), (64, "████████"), (63, "███████▉"), (33, "████▏"), (8, "█")]
)
def test_bars_in_eighths(count: int, expected: str) -> None:
    assert bar(count, 64, 8) == expected


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_023, "0.999 KiB"),
        (1_536, "1.5 KiB"),
        (5 << 30, "5 GiB"),
        (3 << 50, "3 PiB"),
    ],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("age_ms", "retention_ms", "expected"),
    [
        (HOUR_MS, 7 * 24 * HOUR_MS, ""),
        (6 * 24 * HOUR_MS + 1, 7 * 24 * HOUR_MS, "a/0 still needs offset 7; retention (7 d) removes it in 23 h"),
        (7 * 24 * HOUR_MS, 7 * 24 * HOUR_MS, "a/0 still needs offset 7; retention (7 d) may have removed it"),
        (10 * 60_000, HOUR_MS, ""),
        (31 * 60_000, HOUR_MS, "a/0 still needs offset 7; retention (60 min) removes it in 29 min"),
        (HOUR_MS, -1, ""),
        (HOUR_MS, None, ""),
        (None, HOUR_MS, ""),
    ],
)
def test_warning_before_retention_removes_what_is_needed(
    age_ms: int | None, retention_ms: int | None, expected: str
) -> None:
    since_ms = None if age_ms is None else NOW_MS - age_ms
    each = {"needed_from": 7, "needed_since_ms": since_ms, "retention_ms": retention_ms}
    told = retention_warnings({"partitions": {"a/0": each}}, NOW_MS)
    assert [line.partition(":")[0] for line in told] == ([expected] if expected else [])


def test_a_router_that_says_less_is_understood_too() -> None:
    assert retention_warnings({"partitions": {"a/0": {"state": "active"}}}, NOW_MS) == []
    assert retention_warnings({}, NOW_MS) == []


LONG = "billing.europe.reminders.second.notice.delay.delay-snapshots"


@pytest.mark.usefixtures("narrow")
def test_a_table_folds_what_may_be_folded_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(LONG, "snapshots topic", "created", "12", "3"), ("orders", "target topic", "exists", "12", "3")]
    print_table(("topic", "role", "action", "partitions", "replicas"), rows, folding=("topic",))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert any(line.split()[1:] == ["snapshots", "topic", "created", "12", "3"] for line in lines)
    assert "".join(line.split()[0] for line in lines if not line.startswith(("topic", "orders"))) == LONG


@pytest.mark.usefixtures("narrow")
def test_a_table_with_nothing_to_fold_is_as_wide_as_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a", "b"), [(LONG, LONG)], folding=())
    assert capsys.readouterr().out.splitlines()[1].split() == [LONG, LONG]


def test_a_column_that_says_nothing_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("at", "id", "to"), [("0/1", "", "x"), ("0/2", "", "")], folding=("to",))
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["at", "to"], ["0/1", "x"], ["0/2"]]


@pytest.mark.usefixtures("narrow")
def test_an_entry_has_a_line_and_what_there_is_to_say_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_entries([("0/7  EXPIRED", f"from {LONG}/0/7; released later than it said; driven again"), ("0/8", "")])
    first, *said, last = capsys.readouterr().out.splitlines()
    assert (first, last) == ("0/7  EXPIRED", "0/8")
    assert max(map(len, said)) <= 80
    assert all(line.startswith(" " * 6) for line in said)
    assert " ".join(line.strip() for line in said).endswith("/0/7; released later than it said; driven again")


def test_nobody_commands_a_terminal_by_what_is_in_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("id",), [("\x1b[2Jgone",)], folding=("id",))
    print_entries([("\x1b]0;mine\x07", "\x9b2J")])
    assert not {"\x1b", "\x07", "\x9b"} & set(capsys.readouterr().out)

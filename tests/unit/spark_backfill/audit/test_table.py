"""The table of an audit, and its independence of the code that it judges."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from index.errors import ConfigError
from spark_backfill.audit.command import edge
from spark_backfill.audit.scope import Edge, targets_of
from spark_backfill.audit.table import COUNTS, LATENESS, NOTES, VIOLATIONS, Tally, notes, table, tally, verdict
from spark_backfill.settings import load
from tests.support.imports import imports_of, modules_in
from tests.support.paths import ROOT

# Names of headers and units of aliases are constants; errors decide nothing.
HEADER_NAMES = {"DELAY_OCCURRENCE", "DELAY_SERIES", "DELAY_SPREAD", "SERIES"}
ALLOWED_NAMES = HEADER_NAMES | {"NATIVE", "PROVENANCE", "Alias", "HeaderRole", "Unit"}
PLUMBING = {"cluster", "cli_common", "errors", "session", "settings", "source", "stages"}


def test_the_audit_shares_no_code_with_the_router_but_constants() -> None:
    modules = list(modules_in(ROOT, "spark_backfill/audit"))
    assert len(modules) > 5
    for path, package in modules:
        for found in imports_of(path.read_text(encoding="utf-8"), package):
            room, _, rest = found.module.partition(".")
            if room == "index":
                assert (
                    found.module.startswith("index.errors") or rest.removeprefix("protocol.headers.") in ALLOWED_NAMES
                ), found
            elif room == "spark_backfill":
                name = rest.partition(".")[0]
                assert name == "audit" or name in PLUMBING, found
            else:
                assert room not in {"snapshots", "sidecar"}, found


def a_tally(keys: tuple[tuple[str, str | int | None], ...] = (), **counts: int) -> Tally:
    return Tally(keys, dict.fromkeys(COUNTS, 0) | counts, dict.fromkeys(LATENESS, 7))


def shown(*tallies: Tally, total: Tally) -> str:
    console = Console(width=200, record=True, file=StringIO())
    console.print(table(tallies, total))
    return console.export_text()


@pytest.mark.parametrize("name", VIOLATIONS)
def test_one_violation_of_any_kind_fails(name: str) -> None:
    found = a_tally((), **{"sent": 3, name: 1})
    assert found.violations == 1
    assert verdict(found) == f"VIOLATIONS: {name} 1"
    assert notes(found) == [f"{name} 1: {NOTES[name]}"]


def test_what_is_no_violation() -> None:
    assert verdict(a_tally(sent=3, released=3)) == "no violation: 3 records sent, each accounted for once"
    assert "no verdict on 2 of 3" in verdict(a_tally(sent=3, unread=1, unprovable=1))
    assert a_tally(pending=1, untimed=1, illegible=1, unread=1, unprovable=1).violations == 0


def test_the_table_has_a_line_for_each_group_and_only_columns_that_say_something() -> None:
    hours = a_tally((("topic", "d"), ("partition", 0), ("hour_ms", 3_600_000)), sent=1234)
    nowhere = a_tally((("topic", None), ("partition", None), ("hour_ms", None)), foreign=1)
    text = shown(hours, nowhere, total=a_tally(sent=1234, foreign=1))
    assert "1970-01-01 01h" in text
    assert "1,234" in text
    assert "foreign" in text
    assert "illegible" not in text
    assert "7 ms" in shown(total=a_tally(sent=1))


def test_a_row_of_spark_becomes_a_tally() -> None:
    row = dict.fromkeys(COUNTS, 2) | dict.fromkeys(LATENESS) | {"topic": "d"}
    found = tally(row, ["topic"])
    assert found.as_json() == {"topic": "d", **dict.fromkeys(COUNTS, 2), **dict.fromkeys(LATENESS)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("17", Edge(offset=17)),
        ("1970-01-01T00:00:01Z", Edge(time_ms=1_000)),
        ("1970-01-01T02:00:01.5+02:00", Edge(time_ms=1_500)),
        ("1960-01-01T00:00:01Z", Edge(time_ms=0)),
    ],
)
def test_the_edges_of_a_range(text: str | None, expected: Edge | None) -> None:
    assert edge(text, "--from") == expected


@pytest.mark.parametrize("text", ["-1", "1.5", "", "yesterday", "2030-01-31T08:00:00", "2030-01-31"])
def test_an_edge_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--to"):
        edge(text, "--to")


def test_targets_by_default_target_and_allow_list(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    file.write_text(
        '[kafka]\n"bootstrap.servers" = "b:1"\n[[delay_topics]]\nname = "bill.delay"\ndefault_target = "orders"\n'
        'allowed_targets = ["bill*"]\n'
    )
    existing = ["orders", "bill", "bill.delay", "bill.delay.rejected", "billing.a", "xbill", "__bill", "orders2"]
    assert targets_of(load(file, {}).delay_topics[0], existing) == ["orders", "bill", "billing.a"]

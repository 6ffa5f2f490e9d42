"""Tests the table of values: each value of the file, with its comment and with the default that Helm reads."""

from typing import Any

import yaml

from tests.helm import values_table
from tests.helm.values_table import Row, rows


def test_the_readme_has_every_value() -> None:
    readme = values_table.README.read_text()
    assert readme == values_table.updated(readme), "run: python -m tests.helm.values_table"
    assert "| `networkPolicy.brokerPorts` | `[9092, 9093]` | Every port that brokers advertise. |\n" in readme


def test_the_table_reads_the_file_as_helm_does() -> None:
    values = yaml.safe_load(values_table.VALUES.read_text())
    found = [*rows(values_table.VALUES.read_text())]
    seen: dict[str, Any] = {}
    for row in found:
        inner = seen
        for key in row.path[:-1]:
            inner = inner[key]
        inner[row.path[-1]] = {} if row.default is None else yaml.safe_load(row.default)
    assert seen == values


def test_comments_go_to_the_value_they_stand_at() -> None:
    text = "# Of the file.\n\n# About a,\n# in two lines.\na:\n"
    text += "  b: 1   # behind\n  # above\n  c: {d: 1}\ne: []  # - {f: 1}; no g\n"
    assert [*rows(text)] == [
        Row(("a",), None, "About a, in two lines."),
        Row(("a", "b"), "1", "behind"),
        Row(("a", "c"), "{d: 1}", "above"),
        Row(("e",), "[]", "As `- {f: 1}`; no g"),
    ]

"""Writes the tables of REFERENCE.md that follow from the code: commands, metrics, log events, limits, Kafka versions.

``python -m tests.docs.reference`` writes them anew, and a test fails if one is old. Meanings of log events are written
by hand in the table, and stay.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import click

from index.named.receipts import ControlOutcome
from index.protocol.schedule import ATTEMPT_LABELS, Reason
from sidecar.cli.options import DONE, FAILED, WRONG_USAGE
from sidecar.cli.program import PROGRAM, cli
from sidecar.dev.local_kafka import kafka_version
from sidecar.engine.ownership.status import BOUND_NAMES, PartitionState
from spark_backfill.cli import cli as jobs
from tests.docs.documents import table_of, with_table
from tests.docs.limits import LIMITS
from tests.docs.log_events import LEVELS, events
from tests.helm.exported import OUTCOMES, registry
from tests.support import kafka_versions as kafka_versions_listed
from tests.support.paths import ROOT

FILE: Final = ROOT / "REFERENCE.md"

_BY_LIBRARY: Final = "of the library"
"""Level of an event that repeats a line of a library."""

_NAMES: Final[Mapping[str, str]] = {"counter": "_total", "info": "_info"}
"""Ending of the name under which Prometheus knows a metric, by its type."""


def commands() -> str:
    """Return the table of the commands of the router and of the jobs."""
    rows = [*_commands(PROGRAM, cli), *_commands("python -m spark_backfill", jobs)]
    return table_of(("command", "what it does"), rows)


def _commands(program: str, group: click.Group) -> Iterator[tuple[str, str]]:
    context = click.Context(group)
    for name in sorted(group.list_commands(context)):
        found = group.get_command(context, name)
        # A command in the list of commands is loaded when it is called.
        command = getattr(found, "load", lambda found=found: found)()
        if isinstance(command, click.Group):
            yield from _commands(f"{program} {name}", command)
        else:
            yield f"`{program} {name}`", " ".join(command.help.split("\n\n")[0].split())


def exit_codes() -> str:
    """Return the table of exit codes."""
    failed = (
        "failed: the cluster does not answer or refuses, or the state does not allow it; `check` has found an error; a"
        " partition of `status` is served by no router"
    )
    wrong = "wrong usage or configuration, or a name that does not exist; trying again does not help"
    rows = [(str(DONE), "done"), (str(FAILED), failed), (str(WRONG_USAGE), wrong)]
    return table_of(("exit code", "meaning"), rows)


def metrics() -> str:
    """Return the table of every metric of a router."""
    rows = []
    for family in registry().collect():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        name = family.name + _NAMES.get(family.type, "")
        kind = "gauge, always 1" if family.type == "info" else family.type
        rows.append((f"`{name}`", kind, ", ".join(f"`{label}`" for label in sorted(labels)), family.documentation))
    return table_of(("metric", "type", "labels", "meaning"), sorted(rows))


def label_values() -> str:
    """Return the table of labels that have few values."""
    rows: list[tuple[str, str, Iterable[str]]] = [
        ("delay_router_partition_state", "state", [*PartitionState]),
        ("delay_router_transactions_total", "outcome", sorted(OUTCOMES)),
        ("delay_router_receipts_total", "outcome", [*ControlOutcome]),
        ("delay_router_records_rejected_total", "reason", [*Reason]),
        ("delay_router_pending_by_due", "within", BOUND_NAMES),
        ("delay_router_attempts_total", "attempt", ATTEMPT_LABELS),
    ]
    return table_of(
        ("metric", "label", "values"),
        [(f"`{metric}`", f"`{label}`", ", ".join(f"`{value}`" for value in values)) for metric, label, values in rows],
    )


def log_events(written: Mapping[str, tuple[str, str]]) -> str:
    """Return the table of log events; `written` has meaning and remedy of each event."""
    rows = []
    for event, levels in events().items():
        meaning, remedy = written.get(event, ("", ""))
        rows.append((f"`{event}`", " or ".join(levels) or _BY_LIBRARY, meaning, remedy))
    return table_of(("event", "level", "meaning", "see"), rows)


def written_events(text: str) -> dict[str, tuple[str, str]]:
    """Return meaning and remedy of each event in the document."""
    levels = "|".join((*LEVELS, _BY_LIBRARY))
    rows = re.findall(rf"^\| `(\w+)` \| [^|]*\b(?:{levels}) \| (.*?) \| (.*?) ?\|$", text, re.MULTILINE)
    return {event: (meaning.strip(), remedy.strip()) for event, meaning, remedy in rows}


def limits() -> str:
    """Return the table of fixed limits."""
    return table_of(("limit", "value", "beyond it"), LIMITS)


def kafka_versions() -> str:
    """Return the table of the versions of Kafka that tests run on."""
    promises = ", ".join(f"`{name}`" for name in kafka_versions_listed.promises())
    of_an_older = f"the demo with its kill -9 and audit (`make test-broker`); {promises} (`make test-versions`)"
    rows = [(version, of_an_older) for version in kafka_versions_listed.older()]
    return table_of(("Kafka", "tests that run on it"), [*rows, (kafka_version(), "all")])


def updated(text: str) -> str:
    """Return the document with these tables in place of its own."""
    tables: Iterable[tuple[str, Callable[[], str]]] = (
        ("commands", commands),
        ("exit codes", exit_codes),
        ("metrics", metrics),
        ("label values", label_values),
        ("log events", lambda: log_events(written_events(text))),
        ("limits", limits),
        ("versions of Kafka", kafka_versions),
    )
    for name, table in tables:
        text = with_table(text, name, table())
    return text


if __name__ == "__main__":
    FILE.write_text(updated(FILE.read_text(encoding="utf-8")), encoding="utf-8")

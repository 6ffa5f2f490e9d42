"""What commands print: JSON for scripts; tables, findings, times and a small bar chart for people.

What draws tables is loaded when there is one to draw: it takes longer than many a command.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import click

from sidecar.topics.findings import Finding, Level

LABELS = {
    "0": "overdue",
    "1": "1 s",
    "10": "10 s",
    "60": "1 min",
    "600": "10 min",
    "3600": "1 h",
    "21600": "6 h",
    "86400": "1 d",
    "604800": "7 d",
    "+Inf": "later",
}
"""Names of the ranges of ``delay_router_pending_by_due`` by their upper bound in seconds."""

BAR_WIDTH = 40
KIB = 1_024
_FOUR_DIGITS = 999.5
_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"


PIPE_WIDTH: Final = 1_000

_STYLES: Final = {Level.OK: "green", Level.WARN: "yellow", Level.ERROR: "bold red"}


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout; cells are shown as they are, never read as markup."""
    from rich.console import Console  # noqa: PLC0415 - see above
    from rich.table import Table  # noqa: PLC0415 - see above
    from rich.text import Text  # noqa: PLC0415 - see above

    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    # Into a pipe or file a table is as wide as it needs; rich would fold it at 80.
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def print_plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout without lines between, the first column as wide as it needs; the others keep theirs."""
    from rich.console import Console  # noqa: PLC0415 - see above
    from rich.table import Table  # noqa: PLC0415 - see above
    from rich.text import Text  # noqa: PLC0415 - see above

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number > 0)
    for row in rows:
        table.add_row(*map(Text, row))
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def print_findings(findings: Sequence[Finding]) -> None:
    """A line a finding; the remedy below it, unbroken so that it can be copied."""
    from rich.console import Console  # noqa: PLC0415 - see above
    from rich.text import Text  # noqa: PLC0415 - see above

    console = Console(soft_wrap=True)
    for finding in findings:
        line = Text(f"{finding.level.value:5} ", style=_STYLES[finding.level])
        line.append(f"{finding.thing}: {finding.message}", style="default")
        console.print(line)
        if finding.remedy:
            console.print(Text(f"      mend: {finding.remedy}"))


def shown_time(time_ms: int | None) -> str:
    """Epoch milliseconds as UTC, to the millisecond; a dash for none."""
    if time_ms is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def pending_chart(by_due: Sequence[tuple[str, int]], width: int = BAR_WIDTH) -> list[str]:
    """One line for each range of due time, from (upper bound, records); the longest bar is ``width`` wide."""
    most = max((count for _, count in by_due), default=0)
    names = [LABELS.get(bound, f"{bound} s") for bound, _ in by_due]
    name_width = max((len(name) for name in names), default=0)
    count_width = len(f"{most:,}")
    return [
        f"{name:>{name_width}}  {count:>{count_width},}  {bar(count, most, width)}".rstrip()
        for name, (_, count) in zip(names, by_due, strict=True)
    ]


def estimate_notes(estimated: int) -> list[str]:
    """What to say below a chart of so many records that may belong to another range."""
    if not estimated:
        return []
    why = "their buckets were written by an older router, which did not tell when what is in them is due"
    return [f"{estimated:,} of these may be due in another range: {why}"]


def bar(count: int, most: int, width: int) -> str:
    """A bar in proportion to ``most``, in eighths of a character; anything above zero can be seen."""
    if not count:
        return ""
    eighths = max(1, count * width * 8 // most)
    full, rest = divmod(eighths, 8)
    return _FULL * full + (_EIGHTHS[rest] if rest else "")


def format_bytes(size_bytes: int) -> str:
    """A size for people, to three digits: ``512 B``, ``1.46 MiB``."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < _FOUR_DIGITS:
            break
        size, unit = size / KIB, larger
    return f"{size:.3g} {unit}"

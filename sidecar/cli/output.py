"""Prints the output of commands: JSON for scripts; tables, findings, times and a small bar chart for people.

The library that draws tables is loaded only for a table: it takes longer to load than many a command takes.
"""

import json
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from sidecar.cluster.topics.findings import Finding, Level

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


UNLIMITED: Final = 1_000
_NARROWEST: Final = 20
_INDENT: Final = " " * 6

_STYLES: Final[Mapping[Level, Mapping[str, Any]]] = {
    Level.OK: {"fg": "green"},
    Level.WARN: {"fg": "yellow"},
    Level.ERROR: {"fg": "red", "bold": True},
}


def print_json(value: object) -> None:
    """Print one JSON document on stdout."""
    click.echo(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, folding: Collection[str]) -> None:
    """Print a table without rules on stdout; where the terminal is too narrow, fold the cells of columns ``folding``.

    Without such columns the table may be wider than the terminal. A column that is empty in every row is left out.
    """
    from rich.console import Console  # noqa: PLC0415 - see above
    from rich.table import Table  # noqa: PLC0415 - see above
    from rich.text import Text  # noqa: PLC0415 - see above

    cells = [[printable(cell) for cell in row] for row in rows]
    kept = [place for place in range(len(columns)) if not cells or any(row[place] for row in cells)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place in kept:
        table.add_column(columns[place], overflow="fold", no_wrap=columns[place] not in folding)
    for row in cells:
        table.add_row(*(Text(row[place]) for place in kept))
    Console(width=width() if folding else UNLIMITED).print(table)


def print_entries(entries: Iterable[tuple[str, str]]) -> None:
    """Print entries that do not fit a table: a line on stdout and, below it and indented, its text."""
    for line, said in entries:
        click.echo(printable(line))
        if said:
            print_sentence(_INDENT + said)


def width() -> int:
    """Return the columns of the terminal; ``UNLIMITED`` for a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED


def printable(text: str) -> str:
    """Replace characters that are not printable: the id of a record may hold commands to the terminal."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def print_findings(findings: Sequence[Finding]) -> None:
    """Print a paragraph for each finding, and its remedy below it on one line, so that it can be copied."""
    for finding in findings:
        level = finding.level.value
        first, *others = _folded(f"{level:5} {finding.thing}: {finding.message}")
        click.echo(click.style(level, **_STYLES[finding.level]) + first[len(level) :])
        for line in others:
            click.echo(line)
        if finding.remedy:
            click.echo(f"{_INDENT}mend: {finding.remedy}")


def print_sentence(text: str) -> None:
    """Print a line on stdout, folded at the width of the terminal, with indented continuations."""
    for line in _folded(text):
        click.echo(line)


def _folded(text: str) -> list[str]:
    columns = max(width(), _NARROWEST)
    return textwrap.wrap(printable(text), columns, subsequent_indent=_INDENT, break_on_hyphens=False) or [""]


def shown_time(time_ms: int | None) -> str:
    """Return epoch milliseconds as UTC, to the millisecond; a dash for None."""
    if time_ms is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def pending_chart(by_due: Sequence[tuple[str, int]], width: int = BAR_WIDTH) -> list[str]:
    """Return a line for each range of due time, from (upper bound, records); the longest bar is ``width`` wide."""
    most = max((count for _, count in by_due), default=0)
    names = [LABELS.get(bound, f"{bound} s") for bound, _ in by_due]
    name_width = max((len(name) for name in names), default=0)
    count_width = len(f"{most:,}")
    return [
        f"{name:>{name_width}}  {count:>{count_width},}  {bar(count, most, width)}".rstrip()
        for name, (_, count) in zip(names, by_due, strict=True)
    ]


def bar(count: int, most: int, width: int) -> str:
    """Return a bar in proportion to ``most``, in eighths of a character; any count above zero is visible."""
    if not count:
        return ""
    eighths = max(1, count * width * 8 // most)
    full, rest = divmod(eighths, 8)
    return _FULL * full + (_EIGHTHS[rest] if rest else "")


def format_bytes(size_bytes: int) -> str:
    """Return a size for people, to three digits: ``512 B``, ``1.46 MiB``."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB"):
        if size < _FOUR_DIGITS:
            break
        size, unit = size / KIB, larger
    return f"{size:.3g} {unit}"

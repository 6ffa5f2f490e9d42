"""Shows the demo: as a live table in a terminal, otherwise as a line for each event."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sidecar.dev.demo.board import Board, BoardRow

_REFRESHES_PER_S: Final = 10
_FRAME_LINES: Final = 6
"""Lines of the screen without rows: title, head, borders, cursor."""

_OTHER_COLUMNS: Final = 60
"""Width of all columns except the headers, whose column shrinks on a narrow screen."""

_LEAST_HEADERS: Final = 12


class Show(Protocol):
    """Output of the demo while it runs."""

    def finished(self, row: BoardRow) -> None:
        """Show that an order has finished."""

    def say(self, line: str) -> None:
        """Show a line about any other event."""


@contextmanager
def show(board: Board, console: Console) -> Iterator[Show]:
    """Show the board for the length of the ``with`` block; in a terminal the whole table stays after the block."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    table = _LiveTable(board, console)
    with Live(get_renderable=table.frame, console=console, refresh_per_second=_REFRESHES_PER_S, transient=True):
        yield table
    console.print(_table(list(board.rows), console.width))
    console.print(*table.notes, sep="\n")


class _Lines:
    """Prints a plain line for each event."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def finished(self, row: BoardRow) -> None:
        if row.reason:
            fate = f"{row.reason}: {row.reason_text}"
        elif row.taken_back:
            fate = f"receipt: {row.receipt}"
        else:
            fate = f"due {_clock(row.due_ms)}  arrived {_clock(row.arrived_ms)}  {row.late_ms} ms late{_attempts(row)}"
        self.say(f"{row.order.name:>9}  {row.order.ways:<66}  {_where(row):<16}  {fate}")

    def say(self, line: str) -> None:
        # A file or a pipe has no width, so lines are not wrapped; each is flushed at once.
        self._console.print(escape(line), soft_wrap=True, highlight=False)
        self._console.file.flush()


class _LiveTable:
    """Draws the table again and again; a table longer than the screen scrolls with the due times."""

    def __init__(self, board: Board, console: Console) -> None:
        self._board = board
        self._console = console
        self.notes: list[Text] = []

    def finished(self, row: BoardRow) -> None:
        if row.reason:
            self.notes.append(Text(f"{row.order.name} {row.reason}: {row.reason_text}", style="red"))
        elif row.receipt and row.order.targets:
            became = row.taken_back or "moved"
            self.notes.append(Text(f"{row.order.name} {became}: {row.receipt}", style="cyan"))
        elif row.attempt:
            self.notes.append(Text(f"{row.order.name}{_attempts(row)}", style="red" if row.exhausted else "cyan"))

    def say(self, line: str) -> None:
        self.notes.append(Text(f"{_clock(int(time.time() * 1000))}  {line}", style="bold yellow"))

    def frame(self) -> Group:
        rows = list(self._board.rows)
        room = max(self._console.height - _FRAME_LINES - len(self.notes), 3)
        next_due = next((place for place, row in enumerate(rows) if not row.finished), len(rows))
        first = max(0, min(next_due - room * 2 // 3, len(rows) - room))
        # A wrapped note would push rows off the screen; the end of the demo shows the whole note.
        notes = (Text(note.plain, note.style, no_wrap=True, overflow="ellipsis") for note in self.notes)
        return Group(_table(rows[first : first + room], self._console.width), *notes)


def _table(rows: list[BoardRow], width: int) -> Table:
    headers_width = max(width - _OTHER_COLUMNS, _LEAST_HEADERS)
    table = Table(title="Orders in the delay topic, by due time", title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("order", justify="right", width=5)
    table.add_column("sent with", no_wrap=True, overflow="ellipsis", max_width=headers_width)
    table.add_column("due", width=12)
    table.add_column("arrived in", width=16, no_wrap=True, overflow="ellipsis")
    table.add_column("at, ms late", width=21, no_wrap=True, overflow="ellipsis")
    for row in rows:
        number = row.order.name.removeprefix("order ")
        style = "red" if row.reason else "green" if row.finished else "dim"
        table.add_row(number, row.order.ways, _clock(row.due_ms), _where(row), _fate(row), style=style)
    return table


def _where(row: BoardRow) -> str:
    if row.reason or row.taken_back:
        return row.taken_back or "rejected"
    topics = " + ".join(row.order.targets if row.finished else row.arrivals)
    return f"{topics}, {len(row.occurrences)} times" if row.occurrences else topics


def _fate(row: BoardRow) -> str:
    """Return the arrival of an order, the reason why it does not arrive, or the remaining time."""
    if row.reason:
        return row.reason
    if row.taken_back:
        return "by its receipt" if row.order.targets else "with a receipt"
    if row.late_ms is not None:
        return f"{_clock(row.arrived_ms)} {row.late_ms:8}"
    wait_s = 0 if row.due_ms is None else row.due_ms / 1000 - time.time()
    return f"in {wait_s:.1f} s" if wait_s > 0 else "any moment"


def _attempts(row: BoardRow) -> str:
    """Return the attempt in which an order was handled, if it was retried, or the end of its attempts."""
    if not row.attempt:
        return ""
    return f", exhausted after {row.attempt} attempts" if row.exhausted else f", handled in attempt {row.attempt}"


def _clock(at_ms: int | None) -> str:
    """Return the local time of day, to the millisecond."""
    if at_ms is None:
        return ""
    instant = datetime.fromtimestamp(at_ms // 1000, UTC).astimezone()
    return f"{instant:%H:%M:%S}.{at_ms % 1000:03d}"

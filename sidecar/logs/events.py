"""Writes events of this program and its libraries to stderr, as JSON objects, or as readable lines at a terminal.

Events have names in snake_case and carry key-values. Text from outside (topic names, headers, messages of brokers) is
escaped by JSON and cut to a length, so a record can neither forge a line nor fill the disk.
"""

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, TextIO, cast

import structlog

from sidecar.logs.lines import LineWriter
from sidecar.logs.readable import readable
from sidecar.logs.repeats import EVERY_S, Repeats

MAX_TEXT_CHARACTERS: Final = 1_000
"""Longest text in a log line; broker messages and topic names are far shorter."""

MAX_TRACEBACK_CHARACTERS: Final = 8_000
MAX_TROUBLES: Final = 50

DRAIN_S: Final = 2.0
"""Time that the process waits at its end for the reader of its log."""
MAX_ITEMS: Final = 50

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


AS_JSON: Final = structlog.processors.JSONRenderer(default=repr)


class Trouble:
    """Warns of a trouble once, then once a minute with the number of repetitions, until it is over.

    One thread uses it.
    """

    def __init__(self, log: Any, now_s: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._now_s = now_s
        # The time of the last line of each trouble, and the number of repetitions since.
        self._logged: dict[str, tuple[float, int]] = {}

    def tell(self, event: str, why: str = "", *, level: str = "warning", exc_info: bool = False, **facts: Any) -> None:
        """Write the line, unless the same was written within the last minute."""
        facts = {"why": why, **facts} if why else facts
        key = f"{event} {facts}"
        now_s = self._now_s()
        logged_s, again = self._logged.get(key, (-EVERY_S, 0))
        if now_s - logged_s < EVERY_S:
            self._logged[key] = (logged_s, again + 1)
            return
        if len(self._logged) >= MAX_TROUBLES:
            self._logged.clear()
        self._logged[key] = (now_s, 0)
        repeated = {"times_since_last_told": again + 1} if again else {}
        getattr(self._log, level)(event, **facts, **repeated, **({"exc_info": True} if exc_info else {}))

    def is_over(self) -> None:
        """Note that all troubles have ended, so that the next one is logged at once."""
        self._logged.clear()


def configure(
    level: str = "info",
    stream: TextIO | None = None,
    repeats: Repeats | None = None,
    render: structlog.typing.Processor = AS_JSON,
) -> None:
    """Send every log line of the process to `stream` (stderr); `level` as in ``router.log_level``.

    With `repeats`, a repeated line of a library comes out once and is then counted. ``render`` makes the line.
    """
    number = _LEVELS[level]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _cap,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=stream or sys.stderr),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    librdkafka_logger().setLevel(logging.NOTSET)
    root.handlers[:] = [_Forward(repeats)]
    # Libraries are verbose below warning, so their lines of lower levels show only at level debug.
    root.setLevel(number if number == logging.DEBUG else max(number, logging.WARNING))


@contextmanager
def in_background(level: str) -> Iterator[LineWriter]:
    """Write lines from a thread of their own during the ``with`` block, and log uncaught errors too.

    The end of the block waits for the remaining lines, for ``DRAIN_S`` at most. If they were not read by then, later
    lines go to the queue as before, because a direct write would block.
    """
    repeats = Repeats(lambda at, event, **facts: structlog.get_logger().log(_LEVELS[at], event, **facts))
    lines = LineWriter(sys.stderr.fileno(), repeats.tick).start()
    render = readable if sys.stderr.isatty() else AS_JSON
    configure(level, cast("TextIO", lines), repeats, render)
    before = sys.excepthook, threading.excepthook, sys.unraisablehook
    sys.excepthook = _uncaught
    threading.excepthook = lambda raised: _uncaught(raised.exc_type, raised.exc_value, raised.exc_traceback)
    sys.unraisablehook = lambda raised: _uncaught(raised.exc_type, raised.exc_value, raised.exc_traceback)
    try:
        yield lines
    finally:
        if lines.drain(DRAIN_S):
            sys.excepthook, threading.excepthook, sys.unraisablehook = before
            configure(level, render=render)


def _uncaught(kind: type[BaseException], error: object, trace: TracebackType | None) -> None:
    log = structlog.get_logger()
    if isinstance(error, BaseException):
        log.critical("uncaught_error", exc_info=(kind, error, trace))
    else:
        # A library in C may raise an object that is no exception, which structlog cannot format.
        log.critical("uncaught_error", exception="".join((*traceback.format_tb(trace), repr(error))))


def librdkafka_logger() -> logging.Logger:
    """Return the logger for the ``logger`` argument of Kafka clients, so that their lines become events.

    The client delivers its lines while it is polled.
    """
    return logging.getLogger("librdkafka")


class _Forward(logging.Handler):
    """Turns lines of standard logging (uvicorn, librdkafka, warnings) into events of the same form."""

    def __init__(self, repeats: Repeats | None) -> None:
        super().__init__()
        self._repeats = repeats

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on; a message that cannot be formatted goes out unformatted."""
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            text = str(record.msg)
        if self._repeats and record.levelno >= logging.WARNING and not self._repeats.is_news(record.name, text):
            return
        log = structlog.get_logger()
        log.log(record.levelno, "library_log", library=record.name, message=text, exc_info=record.exc_info)


def _cap(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    traceback = event.pop("exception", None)
    capped = {key: _capped(value) for key, value in event.items()}
    if traceback is not None:
        # The end of a traceback names the error, the beginning only the callers.
        capped["exception"] = str(traceback)[-MAX_TRACEBACK_CHARACTERS:]
    return capped


def _capped(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        value = repr(bytes(value[:MAX_TEXT_CHARACTERS]))
    if isinstance(value, str):
        return (
            value if len(value) <= MAX_TEXT_CHARACTERS else f"{value[:MAX_TEXT_CHARACTERS]}… ({len(value)} characters)"
        )
    if isinstance(value, dict):
        return {str(_capped(key)): _capped(item) for key, item in list(value.items())[:MAX_ITEMS]}
    if isinstance(value, list | tuple | set | frozenset):
        return [_capped(item) for item in list(value)[:MAX_ITEMS]]
    if value is None or isinstance(value, bool | int | float):
        return value
    return _capped(repr(value))

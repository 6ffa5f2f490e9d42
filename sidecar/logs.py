"""One JSON object a line on stderr, from this program and from the libraries below it.

Events are named in snake_case and carry key-values; whatever came from outside (topic names, headers, messages of
brokers) is escaped by JSON and cut to a length, so a record can neither forge a line nor fill the disk.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final, TextIO

import structlog

MAX_TEXT_CHARACTERS: Final = 1_000
"""Longest text in a log line; broker messages and topic names are far below it."""

MAX_TRACEBACK_CHARACTERS: Final = 8_000
MAX_ITEMS: Final = 50

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class Trouble:
    """A trouble that is warned of once, and again only after it was over; for one thread."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._told = ""

    def tell(self, event: str, why: str) -> None:
        """Warn, unless this was the last that was told."""
        if self._told != event:
            self._told = event
            self._log.warning(event, why=why)

    def is_over(self) -> None:
        """Whatever comes next is news."""
        self._told = ""


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Send every log line of the process to `stream` (stderr); `level` as in ``router.log_level``."""
    number = _LEVELS[level]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _cap,
            structlog.processors.JSONRenderer(default=repr),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=stream or sys.stderr),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Forward()]
    # Libraries are verbose below warning; their chatter is wanted only when everything is.
    root.setLevel(number if number == logging.DEBUG else max(number, logging.WARNING))


def librdkafka_logger() -> logging.Logger:
    """For the ``logger`` argument of Kafka clients; their lines come out here instead of raw on stderr.

    They are handed over while the client is polled.
    """
    return logging.getLogger("librdkafka")


class _Forward(logging.Handler):
    """Standard logging (uvicorn, librdkafka, warnings) as events of the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on; a message that cannot be formatted is passed unformatted."""
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            text = str(record.msg)
        log = structlog.get_logger()
        log.log(record.levelno, "library_log", library=record.name, message=text, exc_info=record.exc_info)


def _cap(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    traceback = event.pop("exception", None)
    capped = {key: _capped(value) for key, value in event.items()}
    if traceback is not None:
        # The end of a traceback says what happened, the beginning only who called.
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

"""The findings of ``check``, ``init`` and the start of ``run``: one line for each, with the command that mends it."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding: the router must not work with an ``error``, and may with a ``warn``."""

    OK = "ok"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about the configuration or the cluster.

    ``remedy`` is a command or an instruction, empty when all is well; ``topic`` is the delay topic that the fact
    concerns, empty for all delay topics.
    """

    level: Level
    thing: str
    message: str
    remedy: str = ""
    topic: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the finding as a JSON object, for scripts."""
        return {
            "level": self.level.value,
            "thing": self.thing,
            "message": self.message,
            "remedy": self.remedy,
            "topic": self.topic,
        }

    @property
    def is_error(self) -> bool:
        """Says that the fact must be mended before the router works."""
        return self.level is Level.ERROR


def ok(thing: str, message: str) -> Finding:
    """Return a finding about a fact that is as it should be."""
    return Finding(Level.OK, thing, message)


def warn(thing: str, message: str, remedy: str) -> Finding:
    """Return a finding about a fact that will cause harm some day."""
    return Finding(Level.WARN, thing, message, remedy)


def error(thing: str, message: str, remedy: str) -> Finding:
    """Return a finding about a fact with which the router cannot work."""
    return Finding(Level.ERROR, thing, message, remedy)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 partition``, ``3 partitions``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

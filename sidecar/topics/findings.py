"""What ``check``, ``init`` and the start of ``run`` have to say: one line a thing, with the command that mends it."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is: the router must not work with an ``error``, and may with a ``warn``."""

    OK = "ok"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about the configuration or the cluster.

    ``remedy`` is a command or an instruction, empty when all is well; ``topic`` is the delay topic it is about, empty
    for all of them.
    """

    level: Level
    thing: str
    message: str
    remedy: str = ""
    topic: str = ""

    def as_json(self) -> dict[str, str]:
        """For scripts."""
        return {
            "level": self.level.value,
            "thing": self.thing,
            "message": self.message,
            "remedy": self.remedy,
            "topic": self.topic,
        }

    @property
    def is_error(self) -> bool:
        """Whether it must be mended before the router works."""
        return self.level is Level.ERROR


def ok(thing: str, message: str) -> Finding:
    """A fact that is as it should be."""
    return Finding(Level.OK, thing, message)


def warn(thing: str, message: str, remedy: str) -> Finding:
    """A fact that will hurt some day."""
    return Finding(Level.WARN, thing, message, remedy)


def error(thing: str, message: str, remedy: str) -> Finding:
    """A fact that the router cannot work with."""
    return Finding(Level.ERROR, thing, message, remedy)


def counted(count: int, noun: str) -> str:
    """So many of them: ``1 partition``, ``3 partitions``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

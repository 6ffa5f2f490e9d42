"""Native code for the work of a task on every record, where the Python of an executor has it.

It is the router's kernel. A wheel that was built with it has an *entry point*, and a task looks for that: code on
executors imports nothing of the router. Without one, as with the packages of ``make spark-zip`` alone, a task does the
same in Python. Both give the same bytes, and a job reports at its end which of them ran.

Decisions, and rejected alternatives
------------------------------------
* *An entry point.* Rejected: importing ``sidecar.kernel`` where it can be found, because a job would depend on the
  router in every way but by name; compiled modules of a package of their own, because half of their work is the
  router's; sending the kernel from the driver, which sends a name, and the executor still has to find the code.
* *From the same place* as the code of the job. A zip in front of an installed wheel has modules of its own, one day of
  another version, and the kernel of the wheel would be mixed with them. Rejected: comparing versions, which a zip does
  not have, and which stay alike during development.
* *The driver's choice travels.* DELAY_ROUTER_KERNEL=off there holds for all tasks, and in the environment of an
  executor for that one. Rejected: the executor's choice alone, which is set in another way on each kind of cluster.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final, Protocol

from index.errors import ConfigError
from index.rules.rules import Rules
from snapshots.segments.codec import PYTHON_CODEC, SegmentCodec
from snapshots.segments.rows import RowPacker

GROUP: Final = "kafka_delay_router.kernel"

INTERFACE: Final = 1
"""Version of the interface that this module needs. The entry point names its own."""

SWITCH: Final = "DELAY_ROUTER_KERNEL"

HOME: Final = Path(__file__).parents[1]
"""The folder, or zip, that this code lies in."""


class Decider(Protocol):
    """A decider of records in columns, by one set of rules."""

    def decide(self, batch: Any, start: int, dues_ms: Any, rows: list[Any], ids: list[tuple[int, bytes]]) -> int:
        """Decide from a record on; return the place of the first record that Python has to decide, or behind the last.

        Due times and rows are put into their places, and the numbers of records with ids, with the ids, into ``ids``.
        """


class Native(Protocol):
    """The object behind the entry point."""

    @property
    def interface(self) -> int:
        """Version of the interface."""

    @property
    def home(self) -> Path:
        """The folder, or zip, of the code that it works with."""

    def why_not(self, environ: Mapping[str, str]) -> str:
        """Say why it cannot be used in a process with this environment; return "" where it can."""

    @property
    def codec(self) -> SegmentCodec:
        """The codec of segments."""

    def decider(self, rules: Rules, packer: RowPacker, *, packs: bool) -> Decider | None:
        """Return a decider for these rules, which packs rows if ``packs``; None where Python decides all records."""

    def batch(self, timestamps_ms: Any, keys: Any, values: Any, header_ends: Any, names: Any, contents: Any) -> Any:
        """Collect records for a decider: arrays of 64 bits, and Arrow columns as ``(places, content, is_null)``."""


@dataclass(frozen=True, slots=True)
class TaskKernel:
    """The kernel of a task: native code, or Python and the reason."""

    native: Native | None
    why_not: str = ""

    @property
    def name(self) -> str:
        """Name of the kernel in the report of a job."""
        return "native" if self.native is not None else f"python, since {self.why_not}"

    @property
    def codec(self) -> SegmentCodec:
        """The codec of segments."""
        return PYTHON_CODEC if self.native is None else self.native.codec


def asked(environ: Mapping[str, str]) -> str:
    """Return the driver's choice of a kernel, to be sent to the tasks; raise ConfigError for an unknown word."""
    given = environ.get(SWITCH, "")
    if given not in {"", "on", "off"}:
        raise ConfigError(f"{SWITCH}={given}: write off or on")
    return given


def chosen(driver: str = "") -> TaskKernel:
    """Return the kernel of this process, given the driver's choice; the entry points are looked up once."""
    return _off("the driver") if driver == "off" else _of_process()


def told(names: Iterable[str]) -> str:
    """Join the names of the tasks' kernels in one line.

    >>> told(["native", "native"])
    'native'
    >>> told(["native", "python, since it is not there", "native"])
    'native in 2 tasks; python, since it is not there in 1'
    """
    counts = Counter(names).most_common()
    if len(counts) == 1:
        return counts[0][0]
    return "; ".join(f"{name} in {count}{' tasks' * (not at)}" for at, (name, count) in enumerate(counts))


@cache
def _of_process() -> TaskKernel:
    return found(entry_points(group=GROUP), os.environ)


def found(offers: Iterable[EntryPoint], environ: Mapping[str, str]) -> TaskKernel:
    """Return the kernel of the first usable entry point; without one, the first reason."""
    if environ.get(SWITCH) == "off":
        return _off("the executor")
    reasons = []
    for offer in offers:
        try:
            native: Native = offer.load()
        except (ImportError, AttributeError) as error:
            reasons.append(f"it cannot be loaded ({error})")
            continue
        if not (why_not := _why_not(native, environ)):
            return TaskKernel(native)
        reasons.append(why_not)
    return TaskKernel(None, reasons[0] if reasons else "the wheel of the router is not installed for this Python")


def _why_not(native: Native, environ: Mapping[str, str]) -> str:
    if native.interface != INTERFACE:
        return f"what is installed is of another version (interface {native.interface}, not {INTERFACE})"
    if native.home != HOME.resolve():
        return f"what is installed is not where the code of the job comes from ({native.home}, {HOME})"
    return native.why_not(environ)


def _off(where: str) -> TaskKernel:
    return TaskKernel(None, f"it is switched off by {SWITCH}=off on {where}")

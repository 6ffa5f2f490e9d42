"""Native code for what a task does with every record, where the Python of an executor has it.

It is the router's kernel. A wheel that was built with it says so by an *entry point*, and a task looks for that: what
runs on executors imports nothing of the router. Where there is none, as with the rooms of ``make spark-zip`` alone, a
task does the same in Python; both give the same bytes, and a job says at its end which it was.

Decisions, with what was rejected
---------------------------------
* *An entry point.* Rejected: to import ``sidecar.kernel`` where it can be found, for a job would depend on the router
  in every way but by name; compiled modules of a room of their own, since half of what they do is the router's; to send
  it along from the driver, which sends a name, and the executor has to find what is behind it all the same.
* *From the same place* as the code of the job. A zip in front of an installed wheel has modules of its own, of another
  version some day, which the kernel of the wheel would be mixed with. Rejected: to compare versions, which a zip has
  not, and which are alike while something is being developed.
* *The driver's word travels.* DELAY_ROUTER_KERNEL=off there holds for all tasks, and in the environment of an executor
  for that one. Rejected: the executor's alone, which is set in another way on each kind of cluster.
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
from index.rules import Rules
from snapshots.codec import PYTHON_CODEC, SegmentCodec
from snapshots.rows import RowPacker

GROUP: Final = "kafka_delay_router.kernel"

INTERFACE: Final = 1
"""Of what is asked for here. The entry point says which one it has."""

SWITCH: Final = "DELAY_ROUTER_KERNEL"

HOME: Final = Path(__file__).parents[1]
"""Where this code is: a folder, or a zip."""


class Decider(Protocol):
    """Decides records that lie as columns, by one set of rules."""

    def decide(self, batch: Any, start: int, dues_ms: Any, rows: list[Any], ids: list[tuple[int, bytes]]) -> int:
        """Decide from a record on: the place of the first that is for Python to decide, or behind the last.

        Due times and rows are put into their places, and the numbers of records with ids, with these, into ``ids``.
        """


class Native(Protocol):
    """What is behind the entry point."""

    @property
    def interface(self) -> int:
        """Which interface this is."""

    @property
    def home(self) -> Path:
        """The folder, or zip, in which the code is that it works with."""

    def why_not(self, environ: Mapping[str, str]) -> str:
        """Why it cannot be used in a process with this environment; empty where it can."""

    @property
    def codec(self) -> SegmentCodec:
        """What encodes and decodes segments."""

    def decider(self, rules: Rules, packer: RowPacker, *, packs: bool) -> Decider | None:
        """What decides by these rules, and packs rows if ``packs``; None where Python decides all records."""

    def batch(self, timestamps_ms: Any, keys: Any, values: Any, header_ends: Any, names: Any, contents: Any) -> Any:
        """Records for a decider: arrays of 64 bits, and columns of ``(places, content, is_null)`` as in Arrow."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a task works with: native code, or Python and why."""

    native: Native | None
    why_not: str = ""

    @property
    def name(self) -> str:
        """As a job tells it."""
        return "native" if self.native is not None else f"python, since {self.why_not}"

    @property
    def codec(self) -> SegmentCodec:
        """What encodes and decodes segments."""
        return PYTHON_CODEC if self.native is None else self.native.codec


def asked(environ: Mapping[str, str]) -> str:
    """What the driver was told of the kernel, to be sent to the tasks; ConfigError for a word that means nothing."""
    given = environ.get(SWITCH, "")
    if given not in {"", "on", "off"}:
        raise ConfigError(f"{SWITCH}={given}: write off or on")
    return given


def chosen(driver: str = "") -> Kernel:
    """What this process works with, if the driver was told so; the entry points are looked at once."""
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
def _of_process() -> Kernel:
    return found(entry_points(group=GROUP), os.environ)


def found(offers: Iterable[EntryPoint], environ: Mapping[str, str]) -> Kernel:
    """The kernel of one of some entry points; the first reason why not, where none can be used."""
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
            return Kernel(native)
        reasons.append(why_not)
    return Kernel(None, reasons[0] if reasons else "the wheel of the router is not installed for this Python")


def _why_not(native: Native, environ: Mapping[str, str]) -> str:
    if native.interface != INTERFACE:
        return f"what is installed is of another version (interface {native.interface}, not {INTERFACE})"
    if native.home != HOME.resolve():
        return f"what is installed is not where the code of the job comes from ({native.home}, {HOME})"
    return native.why_not(environ)


def _off(where: str) -> Kernel:
    return Kernel(None, f"it is switched off by {SWITCH}=off on {where}")

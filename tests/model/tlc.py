"""Runs TLC, the model checker of TLA+, on the models of this folder."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from sidecar.dev.local_kafka import maven
from tests.support import java_programs

_HERE: Final = Path(__file__).parent
_LONGEST_S: Final = 600
_HOLDS, _IS_VIOLATED = 0, 12
_VIOLATED: Final = re.compile(r"Invariant (\w+) is violated")
_STATES: Final = re.compile(r"(\d+) distinct states found, 0 states left on queue")

_STEPS: Final = """INIT Init
NEXT Next
SYMMETRY Alike
CHECK_DEADLOCK FALSE"""


class Model(Protocol):
    """The size of a model, and the mistake of its router; every order of steps of this size is played."""

    @property
    def module(self) -> str:
        """The name of the model's file."""

    @property
    def text(self) -> str:
        """The configuration file of TLC."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The transactions of a lane: records that leave, and the progress of its partitions."""

    module = "Lane"
    partitions: Sequence[str] = ("p",)
    records: int = 2
    times: int = 2
    owners: Sequence[str] = ("a", "b")
    epochs: int = 2
    wrong: str = "none"

    @property
    def text(self) -> str:
        """The configuration file of TLC."""
        return f"""{_STEPS}
INVARIANTS Once NotEarly NumbersTell
CONSTANTS
  Partitions = {{{", ".join(self.partitions)}}}
  Owners = {{{", ".join(self.owners)}}}
  Records = {self.records}
  Times = {self.times}
  Epochs = {self.epochs}
  Wrong = "{self.wrong}"
"""


@dataclass(frozen=True, slots=True)
class Note:
    """The take-overs of one partition, and the notes of the lanes that may write its state."""

    module = "Note"
    owners: Sequence[str] = ("a", "b")
    epochs: int = 3
    writes: int = 5
    wrong: str = "none"

    @property
    def text(self) -> str:
        """The configuration file of TLC."""
        return f"""{_STEPS}
INVARIANTS OneWriter Named
CONSTANTS
  Owners = {{{", ".join(self.owners)}}}
  Epochs = {self.epochs}
  Writes = {self.writes}
  Wrong = "{self.wrong}"
"""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check: the violated guarantee, empty if all hold, and the number of distinct states."""

    violated: str
    states: int


def check(model: Model, directory: Path) -> Checked:
    """Play a model until a guarantee is violated, or to its end. Skip the test without Java or Maven."""
    with java_programs.or_skip("TLC"):
        jars = java_programs.libraries("model", _HERE / "pom.xml")
        java = str(maven.java().path)
    shutil.copy(_HERE / f"{model.module}.tla", directory)
    (directory / f"{model.module}.cfg").write_text(model.text)
    call = [java, "-Xmx2g", "-XX:+UseParallelGC", "-cp", f"{jars}/*", "tlc2.TLC", "-workers", "auto", model.module]
    done = subprocess.run(call, cwd=directory, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
    assert done.returncode in (_HOLDS, _IS_VIOLATED), done.stdout
    violated, states = _VIOLATED.search(done.stdout), _STATES.search(done.stdout)
    return Checked(violated[1] if violated else "", int(states[1]) if states else 0)

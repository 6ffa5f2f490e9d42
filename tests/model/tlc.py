"""Runs TLC, the model checker of TLA+, on the model of a lane."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sidecar.dev.local_kafka import maven
from tests.support import java_programs

_HERE: Final = Path(__file__).parent
_LONGEST_S: Final = 600
_HOLDS, _IS_VIOLATED = 0, 12
_VIOLATED: Final = re.compile(r"Invariant (\w+) is violated")
_STATES: Final = re.compile(r"(\d+) distinct states found, 0 states left on queue")


@dataclass(frozen=True, slots=True)
class Lane:
    """The size of the model, and the mistake of its router; every order of steps of this size is played."""

    partitions: Sequence[str] = ("p",)
    records: int = 2
    times: int = 2
    owners: Sequence[str] = ("a", "b")
    epochs: int = 2
    wrong: str = "none"

    @property
    def text(self) -> str:
        """The configuration file of TLC."""
        return f"""INIT Init
NEXT Next
SYMMETRY Alike
CHECK_DEADLOCK FALSE
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
class Checked:
    """The result of a check: the violated guarantee, empty if all hold, and the number of distinct states."""

    violated: str
    states: int


def check(lane: Lane, directory: Path) -> Checked:
    """Play the model until a guarantee is violated, or to its end. Skip the test without Java or Maven."""
    with java_programs.or_skip("TLC"):
        jars = java_programs.libraries("model", _HERE / "pom.xml")
        java = str(maven.java().path)
    shutil.copy(_HERE / "Lane.tla", directory)
    (directory / "Lane.cfg").write_text(lane.text)
    call = [java, "-Xmx2g", "-XX:+UseParallelGC", "-cp", f"{jars}/*", "tlc2.TLC", "-workers", "auto", "Lane"]
    done = subprocess.run(call, cwd=directory, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
    assert done.returncode in (_HOLDS, _IS_VIOLATED), done.stdout
    violated, states = _VIOLATED.search(done.stdout), _STATES.search(done.stdout)
    return Checked(violated[1] if violated else "", int(states[1]) if states else 0)

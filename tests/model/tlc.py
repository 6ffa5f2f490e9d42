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

_IMPOSSIBLE: Final = re.compile(r"^<(.+)>: 0:0$", re.MULTILINE)

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
    def guarantees(self) -> Sequence[str]:
        """The names of the guarantees in the model's file."""

    @property
    def constants(self) -> str:
        """The constants in the configuration file of TLC."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The transactions of one partition: records that leave, and the progress."""

    module = "Partition"
    guarantees = ("Once", "NotEarly", "NumbersTell")
    records: int = 2
    times: int = 2
    owners: Sequence[str] = ("a", "b")
    epochs: int = 2
    wrong: str = "none"

    @property
    def constants(self) -> str:
        """The constants in the configuration file of TLC."""
        return f"""
  Owners = {{{", ".join(self.owners)}}}
  Records = {self.records}
  Times = {self.times}
  Epochs = {self.epochs}
  Wrong = "{self.wrong}"
"""


@dataclass(frozen=True, slots=True)
class Lanes:
    """The take-overs of the partitions that share a lane, and the transactions of the lanes."""

    module = "Lanes"
    guarantees = ("Once", "NumbersTell", "Named")
    partitions: Sequence[str] = ("p", "q")
    records: int = 1
    owners: Sequence[str] = ("a", "b")
    take_overs: int = 2
    wrong: str = "none"

    @property
    def constants(self) -> str:
        """The constants in the configuration file of TLC."""
        return f"""
  Partitions = {{{", ".join(self.partitions)}}}
  Owners = {{{", ".join(self.owners)}}}
  Records = {self.records}
  TakeOvers = {self.take_overs}
  Wrong = "{self.wrong}"
"""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check: the violated guarantee, empty if all hold, and the number of distinct states."""

    violated: str
    states: int


def check(model: Model, directory: Path, *guarantees: str) -> Checked:
    """Play a model until one of these guarantees is violated, of all if none is named, or to its end.

    Skip the test without Java or Maven.
    """
    played = _play(model, directory, guarantees or model.guarantees)
    violated, states = _VIOLATED.search(played), _STATES.search(played)
    return Checked(violated[1] if violated else "", int(states[1]) if states else 0)


def impossible_steps(model: Model, directory: Path) -> Sequence[str]:
    """Play a model to its end, and return the places of the steps that no state allows. Skip the test as ``check``."""
    return _IMPOSSIBLE.findall(_play(model, directory, model.guarantees, "-coverage", "60"))


def _play(model: Model, directory: Path, guarantees: Sequence[str], *options: str) -> str:
    with java_programs.or_skip("TLC"):
        jars = java_programs.libraries("model", _HERE / "pom.xml")
        java = str(maven.java().path)
    shutil.copy(_HERE / f"{model.module}.tla", directory)
    config = f"{_STEPS}\nINVARIANTS {' '.join(guarantees)}\nCONSTANTS{model.constants}"
    (directory / f"{model.module}.cfg").write_text(config)
    tlc = [java, "-Xmx2g", "-XX:+UseParallelGC", "-cp", f"{jars}/*", "tlc2.TLC", "-workers", "auto"]
    call = [*tlc, *options, model.module]
    done = subprocess.run(call, cwd=directory, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
    assert done.returncode in (_HOLDS, _IS_VIOLATED), done.stdout
    return done.stdout

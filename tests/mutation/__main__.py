"""Judges a sample of mutants: ``python -m tests.mutation [N]``."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Final, NamedTuple

import click
from coverage import CoverageData

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build" / "mutation"
GENERATOR: Final = BUILD / "venv" / "bin" / "python"
TESTS: Final = (
    "tests/unit/index",
    "tests/unit/snapshots",
    "tests/unit/sidecar/engine",
    "tests/unit/test_examples.py",
    "tests/simulation/test_playbook.py",
    "tests/simulation/test_simulation.py",
)
JUDGED: Final = ("index", "sidecar/engine")
LONGEST_S: Final = 300
_PYTEST: Final = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider")
_SURVIVED, _KILLED, _NO_TESTS = 0, 1, 5

_RC: Final = f"""[run]
data_file = {BUILD}/coverage
source = {",".join(JUDGED)}
dynamic_context = test_function
"""


@dataclass(frozen=True, slots=True)
class MutantModule:
    """One mutated module: the changed line, the operator of cosmic-ray, and the whole source."""

    path: str
    line: int
    operator: str
    source: str

    @property
    def module(self) -> str:
        """The name by which the module is imported."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def room(self) -> str:
        """The folder of the module."""
        return str(Path(self.path).parent)


class Judgement(NamedTuple):
    """The mutant, and its fate: killed, survived, or not counted (None)."""

    mutant: MutantModule
    is_killed: bool | None


Covering = Mapping[str, Mapping[int, Sequence[str]]]
"""The tests that run each line, by file and line."""


@click.command()
@click.argument("number", type=click.IntRange(1), default=300)
@click.option("--seed", type=int, help="Draw the mutants of this seed, instead of fresh ones.")
@click.option("--among", multiple=True, default=JUDGED, help="Mutate only files below this path; repeat for several.")
def main(number: int, seed: int | None, among: Sequence[str]) -> None:
    """Judge NUMBER mutants of index and sidecar/engine, and print the score of each folder."""
    seed = SystemRandom().getrandbits(32) if seed is None else seed
    began_s = time.monotonic()
    covering = _covering()
    click.echo(f"the tests have run with coverage in {time.monotonic() - began_s:.0f} s; seed {seed}")
    mutants = list(_mutants(seed, number, among))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        judged = list(pool.map(partial(_judge, covering), mutants))
    for mutant, _ in (each for each in judged if each.is_killed is False):
        changed = mutant.source.splitlines()[mutant.line - 1].strip()
        click.echo(f"survived: {mutant.path}:{mutant.line} {mutant.operator}: {changed}")
    _print_scores(judged)
    click.echo(
        f"{(time.monotonic() - began_s) / 60:.1f} minutes; again: python -m tests.mutation {number} --seed {seed}"
    )


def _print_scores(judged: Sequence[Judgement]) -> None:
    counted = [each for each in judged if each.is_killed is not None]
    total, killed = Counter[str](), Counter[str]()
    for mutant, is_killed in counted:
        for room in (mutant.room, "all"):
            total[room] += 1
            killed[room] += bool(is_killed)
    for room in [*sorted(total.keys() - {"all"}), "all"]:
        score = killed[room] / total[room] if total[room] else 0.0
        click.echo(f"{room:28} {killed[room]:4} of {total[room]:4} killed  {score:6.1%}")
    click.echo(f"{len(judged) - len(counted)} more could not be imported")


def _covering() -> Covering:
    """Run the tests once, and return the tests that run each line; a test that fails ends it."""
    BUILD.mkdir(parents=True, exist_ok=True)
    rc = BUILD / "coveragerc"
    rc.write_text(_RC)
    run = [sys.executable, "-m", "coverage", "run", f"--rcfile={rc}", "-m", *_PYTEST[2:], *TESTS]
    subprocess.run(run, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    data = CoverageData(str(BUILD / "coverage"))
    data.read()
    tests = {
        path: {line: sorted(filter(None, map(_node_id, contexts)), key=_order) for line, contexts in by_line.items()}
        for path in data.measured_files()
        if (by_line := data.contexts_by_lineno(path))
    }
    return {str(Path(path).relative_to(ROOT)): by_line for path, by_line in tests.items()}


def _order(node_id: str) -> tuple[bool, str]:
    """Order tests of one unit before the simulation, which takes longer."""
    return node_id.startswith("tests/simulation"), node_id


def _node_id(context: str) -> str:
    """Return the name of a test for pytest, from its dotted name; empty for the code outside tests."""
    parts = context.split(".")
    for length in range(len(parts) - 1, 0, -1):
        file = "/".join(parts[:length]) + ".py"
        if (ROOT / file).is_file():
            return "::".join([file, *parts[length:]])
    return ""


def _mutants(seed: int, number: int, among: Sequence[str]) -> Iterator[MutantModule]:
    files = sorted(str(path.relative_to(ROOT)) for below in among for path in _files_below(ROOT / below))
    call = [str(GENERATOR), str(Path(__file__).with_name("generate.py")), str(seed), str(number), *files]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise click.ClickException(f"no mutants could be made: {done.stderr[-2_000:]}")
    for line in done.stdout.splitlines():
        yield MutantModule(**json.loads(line))


def _files_below(path: Path) -> Iterator[Path]:
    return path.rglob("*.py") if path.is_dir() else iter([path])


def _judge(covering: Covering, mutant: MutantModule) -> Judgement:
    tests = _tests_of(covering.get(mutant.path, {}), mutant.line)
    if not tests:
        return Judgement(mutant, is_killed=False)
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        source = Path(scratch) / Path(mutant.path).name
        source.write_text(mutant.source, encoding="utf-8")
        environ = {**os.environ, "MUTANT_MODULE": mutant.module, "MUTANT_FILE": str(source)}
        call = [*_PYTEST, "-p", "tests.mutation.replacing", f"--basetemp={scratch}/base", *tests]
        try:
            ended = subprocess.run(call, cwd=ROOT, env=environ, capture_output=True, timeout=LONGEST_S, check=False)
        except subprocess.TimeoutExpired:
            return Judgement(mutant, is_killed=True)
    if ended.returncode in (_SURVIVED, _NO_TESTS):
        return Judgement(mutant, is_killed=False)
    # A negative code is a signal: the mutant has ended the process.
    return Judgement(mutant, is_killed=True if ended.returncode == _KILLED or ended.returncode < 0 else None)


def _tests_of(by_line: Mapping[int, Sequence[str]], line: int) -> Sequence[str]:
    """Return the tests that run a line; all tests of the file for a line that runs when the file is imported."""
    # A line inside a statement is known by the first line of the statement.
    first = max((known for known in by_line if known <= line), default=None)
    if first is None:
        return []
    return by_line[first] or sorted({test for tests in by_line.values() for test in tests}, key=_order)


if __name__ == "__main__":
    main()

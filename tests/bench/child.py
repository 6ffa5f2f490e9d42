"""Runs work in a separate process: arguments as JSON on the command line, the result as JSON on standard output.

The loops must not share an interpreter lock with anything else; the router does not either.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.bench.results import BenchmarkFailed

ROOT: Final = Path(__file__).parents[2]


def start(module: str, **arguments: object) -> subprocess.Popen[str]:
    """Start ``python -m module`` with ``arguments``."""
    command = [sys.executable, "-m", module, json.dumps(arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], timeout_s: float) -> dict[str, Any]:
    """Wait for the result of a started process; kill it after the timeout."""
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise BenchmarkFailed(f"{process.args!r} did not end in {timeout_s:.0f} s") from error
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise BenchmarkFailed(f"{process.args!r} ended with {process.returncode}; its message is above")
    result: dict[str, Any] = json.loads(output)
    return result


def run(module: str, timeout_s: float, **arguments: object) -> dict[str, Any]:
    """Start a process and wait for its result."""
    return finish(start(module, **arguments), timeout_s)


def arguments() -> dict[str, Any]:
    """Return the arguments of this process, if ``start`` has started it."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    return given


def answer(**result: object) -> None:
    """Print the result of this process."""
    json.dump(result, sys.stdout)

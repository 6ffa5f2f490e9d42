"""How long a person, or a shell that completes, waits for ``delay-router`` before it does anything.

Each call is a process of its own, as in a terminal; the median of several. What a command then waits for at the brokers
is not in it, so commands that work on the cluster are called for their help, which loads what their options need.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from tests.bench.context import Context
from tests.bench.results import BenchmarkFailed, Row, at_most

RUNS: Final = 7
WITHIN_MS: Final = 400
TIMEOUT_S: Final = 60

_COMPLETION: Final = {"_DELAY_ROUTER_COMPLETE": "bash_complete", "COMP_CWORD": "1"}

CALLS: Final[dict[str, tuple[list[str], dict[str, str]]]] = {
    "--version": (["--version"], {}),
    "--help": (["--help"], {}),
    "completion of a command": ([], {**_COMPLETION, "COMP_WORDS": "delay-router st"}),
    "completion of a topic": ([], {**_COMPLETION, "COMP_WORDS": "delay-router status orders", "COMP_CWORD": "2"}),
    "config": (["config"], {}),
    "send --help": (["send", "--help"], {}),
    "status --help": (["status", "--help"], {}),
}
"""Arguments and environment of each call."""


def commands(context: Context) -> Iterator[Row]:
    """Measure how long each kind of call takes from its start to its end."""
    topics = '[{"name": "orders.delay", "default_target": "orders"}]'
    configuration = {
        "DELAY_ROUTER__KAFKA__BOOTSTRAP_SERVERS": context.bootstrap,
        "DELAY_ROUTER__DELAY_TOPICS": topics,
    }
    for name, (arguments, environ) in CALLS.items():
        taken_ms = sorted(_took_ms(arguments, {**os.environ, **configuration, **environ}) for _ in range(RUNS))
        yield Row(
            "commands",
            f"a command starts: {name}",
            round(statistics.median(taken_ms)),
            "ms",
            goal=at_most(WITHIN_MS),
            detail=f"{taken_ms[0]:.0f} to {taken_ms[-1]:.0f} ms in {RUNS} runs",
        )


def _took_ms(arguments: list[str], environ: dict[str, str]) -> float:
    began_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "sidecar", *arguments], env=environ, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    took_ms = (time.perf_counter() - began_s) * 1_000
    if done.returncode:
        raise BenchmarkFailed(f"delay-router {' '.join(arguments)} ended with {done.returncode}: {done.stderr[:500]!r}")
    return took_ms

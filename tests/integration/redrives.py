"""Runs redrives as processes, in transactions of few records; a redrive may die at a commit."""

import sys
from typing import Literal

_PROGRAM = """
import os, signal, sys
from sidecar.kafka.writing import transactions
from sidecar.operations.rejected import redriving
from sidecar.cli.program import main
moment, at, commits, commit = sys.argv[1], int(sys.argv[2]), [0], transactions.commit
def killed(producer):
    commits[0] += 1
    if commits[0] == at and moment == "before":
        producer.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    commit(producer)
    if commits[0] == at and moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)
transactions.commit = killed
redriving.IN_ONE_TRANSACTION = 10
sys.argv = ["delay-router", "rejected", "redrive", *sys.argv[3:]]
main()
"""


def redrive_call(*options: str, killed: Literal["before", "after", "never"] = "never", at: int = 0) -> list[str]:
    """Return the command line of a redrive that kills itself around its commit number ``at``, counted from 1."""
    return [sys.executable, "-c", _PROGRAM, killed, str(at), *options]

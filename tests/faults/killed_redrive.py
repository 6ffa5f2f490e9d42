"""Runs a redrive that is killed before it commits, on schedules that were moved and rejected."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.integration.scenario import Stage, now_ms

_KILLED: Final = """
import os, signal, sys
from sidecar.cli.program import main
from sidecar.kafka.writing import transactions
from sidecar.operations.rejected import producer
made = producer.RenewableProducer
def patient(settings, sink):
    return made({**settings, "transaction.timeout.ms": 300_000}, sink)
def killed(producer):
    producer.flush()
    os.kill(os.getpid(), signal.SIGKILL)
producer.RenewableProducer = patient
transactions.commit = killed
main()
"""


def reject_moved(stage: Stage, delay: str, count: int) -> None:
    """Let a running router move schedules to a time that is past, and reject them as expired."""
    for number in range(count):
        name = b"moved-%d" % number
        wishes = (("deliver-after", b"PT1H"), ("deliver-expire-after", b"1"), ("deliver-id", name))
        stage.post(delay, *wishes, value=name)
    stage.flush()
    past = b"%d" % (now_ms() - 60_000)
    for number in range(count):
        stage.post(delay, ("deliver-move", b"moved-%d" % number), ("deliver-at", past), value=b"control")
    stage.flush()
    stage.wait_records(f"{delay}.rejected", count)


def redrive_and_die(config: Path, delay: str) -> None:
    """Drive all rejected records, and die with everything written and nothing committed."""
    arguments = ["rejected", "redrive", delay, "--config", str(config)]
    call = [sys.executable, "-c", _KILLED, *arguments]
    killed = subprocess.run(call, capture_output=True, text=True, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr

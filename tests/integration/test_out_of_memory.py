"""Tests that a worker which runs out of memory at any step takes over again, without loss or duplicates."""

import ctypes
import time
from dataclasses import replace
from random import Random

import pytest
from structlog.testing import capture_logs

from sidecar.config.model import Config
from sidecar.engine.limits import LIMITS
from tests.faults.stage import SMALL_BUCKETS
from tests.integration.one_worker import one_worker
from tests.integration.scenario import Load, Stage, wait_until

TIMES = 8


def _run_out(thread_id: int) -> None:
    """Raise MemoryError in the thread, at the next step in its Python code."""
    hit = ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(MemoryError))
    assert hit == 1, "the worker's thread has ended"


@pytest.mark.timeout(300)
def test_at_any_step(stage: Stage, rng: Random) -> None:
    delay = stage.delay("delay", 1, default_target=stage.target("out"), **SMALL_BUCKETS)
    config = Config.model_validate(
        {
            "kafka": {"bootstrap.servers": stage.bootstrap},
            "router": {"group_id": stage.group_id, "policies_topic": "", "status_topic": ""},
            "delay_topics": [stage.delays[delay]],
        }
    )
    # Tracebacks for a terminal take seconds each.
    with (
        capture_logs(),
        one_worker(config, replace(LIMITS, look_again_s=0.2)) as worker,
        Load(stage, [delay], rng, a_second=400, delays_ms=(0, 4_000)) as load,
    ):
        for _ in range(TIMES):
            wait_until(lambda: worker.status.ready, "it serves")
            time.sleep(rng.uniform(0, 0.3))
            assert worker.ident is not None
            # Errors come in groups: the handler of the first meets the next.
            for _ in range(3):
                _run_out(worker.ident)
                time.sleep(rng.uniform(0, 0.05))
            time.sleep(0.5)
            assert worker.is_alive()
        load.finish()
        stage.settle(timeout_s=90)

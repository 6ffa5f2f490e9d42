"""Tests of a router that is killed again and again: each restart takes its partitions back at once."""

import time
from random import Random

import pytest

from sidecar.dev.audit import AuditedRecord
from tests.integration.scenario import Load, Stage, now_ms, released_due_ms, released_late_ms, wait_until

KILLS = 3
SESSION_S = 120
READY_WITHIN_S = 60.0
"""A restart takes 3 s. Half a session is far above that, and far below the wait for a dead member."""


def due_after(stage: Stage, target: str, from_ms: int) -> list[AuditedRecord]:
    return [record for record in stage.records(target) if released_due_ms(record) > from_ms]


@pytest.mark.timeout(300)
def test_kills_do_not_add_up(stage: Stage, rng: Random) -> None:
    """Without instance names, each kill could leave a member that the group waits for as long as a session."""
    out = stage.target()
    delay = stage.delay(default_target=out)
    router = stage.router(instance_id="", session_timeout=f"{SESSION_S}s")
    with router, Load(stage, [delay], rng, a_second=50, delays_ms=(100, 2_500)) as load:
        router.start_and_wait()
        for _ in range(KILLS):
            time.sleep(rng.uniform(1.0, 2.0))
            router.kill()
            router.start()
        restarted_ms = now_ms()
        router.wait_ready(READY_WITHIN_S)
        ready_ms = now_ms()
        wait_until(lambda: len(due_after(stage, out, ready_ms)) > 50, "releases on time", READY_WITHIN_S)
        load.finish()
        stage.settle()
        late_ms = [released_late_ms(record) for record in due_after(stage, out, ready_ms)]
        print(f"ready after {ready_ms - restarted_ms} ms; {len(late_ms)} records, {max(late_ms)} ms late at most")
        assert router.stop() == 0

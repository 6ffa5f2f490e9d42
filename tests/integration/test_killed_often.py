"""A router that is killed again and again: each restart takes its partitions back at once."""

import time
from random import Random

import pytest

from sidecar.audit import Record
from tests.integration.scenario import Load, Stage, header, now_ms

KILLS = 3
SESSION_S = 30
READY_WITHIN_S = 15.0
"""A restart takes 3 s; half a session is far above that, and nobody who waits for one is ready by then."""

SOON_S = 5.0
"""After the last restart; what is due later is on time."""


def due_ms(record: Record) -> int:
    return int(header(record, "delay-due") or b"0")


@pytest.mark.timeout(120)
def test_kills_do_not_add_up(stage: Stage, rng: Random) -> None:
    """Each of them would leave a member to be waited for, for as long as a session."""
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
        router.wait_ready(60)
        ready_s = (now_ms() - restarted_ms) / 1_000
        assert ready_s < READY_WITHIN_S
        time.sleep(max(0.0, SOON_S + 1.5 - ready_s))
        load.finish()
        stage.settle()
        timed = [record for record in stage.records(out) if due_ms(record) > restarted_ms + SOON_S * 1_000]
        late_ms = [record.timestamp_ms - due_ms(record) for record in timed]
        print(f"ready after {ready_s:.1f} s; after {SOON_S:.0f} s {len(timed)} records, {max(late_ms)} ms late at most")
        assert max(late_ms) < 1_000, "250 ms where nothing else runs on the machine"
        assert router.stop() == 0

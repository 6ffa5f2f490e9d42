"""The router's wall clock is set back and forward while it runs (``clock_shim.c``), its broker's is not."""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.faults.stage import SMALL_BUCKETS, FaultStage, settled
from tests.integration.scenario import Load, wait_until

SHIM = Path(__file__).with_name("clock_shim.c")
COMPILER = shutil.which("cc")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler for the library that shifts the clock (Debian: gcc)"),
]


class Clock:
    """What the wall clock of a process that is started from now on says."""

    def __init__(self, directory: Path, environ: pytest.MonkeyPatch) -> None:
        library = directory / "clock_shim.so"
        subprocess.run([str(COMPILER), "-shared", "-fPIC", "-O1", "-o", str(library), str(SHIM), "-ldl"], check=True)
        self._file = directory / "shift"
        self.shift(0)
        environ.setenv("LD_PRELOAD", str(library))
        environ.setenv("SHIFT_FILE", str(self._file))

    def shift(self, seconds: int) -> None:
        """Set it to the real time plus these seconds, at once."""
        replaced = self._file.with_suffix(".new")
        replaced.write_text(f"{seconds}\n")
        replaced.replace(self._file)


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(tmp_path, monkeypatch)


@pytest.mark.parametrize("shift_s", [-20, 0])
def test_a_wait_lasts_as_long_by_a_clock_that_is_behind(shift_s: int, clock: Clock) -> None:
    """Of the shim: were it not so, a client would wait for nothing, spin, and take each answer for late."""
    clock.shift(shift_s)
    waits = (
        "import time; from confluent_kafka import Consumer; began_s, shown_s = time.monotonic(), time.time();"
        " Consumer({'group.id': 'g', 'log_level': 0}).poll(0.3); print(time.monotonic() - began_s, shown_s)"
    )
    done = subprocess.run([sys.executable, "-c", waits], check=True, capture_output=True, text=True)
    waited_s, shown_s = map(float, done.stdout.split())
    assert waited_s >= 0.3
    assert shown_s - time.time() < shift_s + 1


def test_a_clock_that_is_set_back_delays_and_breaks_nothing(clock: Clock, lone: FaultStage, rng: Random) -> None:
    out = lone.target()
    delay = lone.delay(default_target=out, **SMALL_BUCKETS)
    with lone.router() as router, Load(lone, [delay], rng, delays_ms=(0, 5_000)) as load:
        router.start_and_wait()
        for seconds in (-15, -3600, -5):
            before = len(lone.records(out))
            clock.shift(seconds)
            time.sleep(4)
            clock.shift(0)
            _wait_for_more(lone, out, before)
        router.kill()
        clock.shift(-20)
        router.start_and_wait()
        time.sleep(2)
        clock.shift(0)
        load.finish()
        report = settled(lone)
        assert report.early == 0
        assert router.stop() == 0


def test_a_clock_that_is_set_forward_releases_each_record_once(clock: Clock, lone: FaultStage, rng: Random) -> None:
    """Early by real time, as the limits say; and what comes in afterwards is not held up for ever."""
    out = lone.target()
    delay = lone.delay(default_target=out, **SMALL_BUCKETS)
    with lone.router() as router, Load(lone, [delay], rng, delays_ms=(0, 20_000)) as load:
        router.start_and_wait()
        time.sleep(2)
        clock.shift(30)
        time.sleep(4)
        clock.shift(0)
        time.sleep(4)
        load.finish()

        def all_left() -> bool:
            report = lone.audit()
            return not report.pending and not report.lost

        wait_until(all_left, "the release of everything", 90)
        report = lone.audit()
        assert (report.lost, report.duplicated, report.altered) == (0, 0, 0), report.summary()
        assert report.early > 0, "the clock was not ahead, or nothing was due then"
        assert router.stop() == 0


def test_a_clock_that_is_set_back_and_right_again_all_the_time(clock: Clock, lone: FaultStage, rng: Random) -> None:
    """As where two services set it, and disagree."""
    out = lone.target()
    delay = lone.delay(default_target=out, **SMALL_BUCKETS)
    with lone.router() as router, Load(lone, [delay], rng, delays_ms=(0, 5_000)) as load:
        router.start_and_wait()
        before = len(lone.records(out))
        until_s = time.monotonic() + 12
        while time.monotonic() < until_s:
            clock.shift(rng.choice([0, 0, -1, -3, -60]))
            time.sleep(rng.uniform(0.02, 0.3))
        clock.shift(0)
        _wait_for_more(lone, out, before)
        load.finish()
        settled(lone)
        assert not router.events("partition_failed")
        assert router.stop() == 0


def _wait_for_more(stage: FaultStage, topic: str, than: int) -> None:
    wait_until(lambda: len(stage.records(topic)) > than, "releases after the clock is right again")

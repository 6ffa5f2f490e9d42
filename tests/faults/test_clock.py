"""Sets the router's wall clock back and forward while it runs (``clock_shim.c``); its broker's clock stays right."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import NewTopic

from sidecar.config import model as configuration
from sidecar.operations.desk import Operations
from sidecar.policies.policy import target_scope
from tests.faults.stage import SMALL_BUCKETS, FaultStage, settled
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, Header, Load, header, now_ms, wait_until
from tests.integration.stored_buckets import state

SHIM = Path(__file__).with_name("clock_shim.c")
NEAR, WITHIN, BEYOND, HELD = 50, 200, 60, 10
SERIES = 2
OCCURRENCES = 7
"""The number in an hour: six, one every ten minutes, and one of the series that skips missed occurrences."""

COMPILER = shutil.which("cc")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler for the library that shifts the clock (Debian: gcc)"),
]


class Clock:
    """The wall clock of processes that are started from now on."""

    def __init__(self, directory: Path, environ: pytest.MonkeyPatch) -> None:
        library = directory / "clock_shim.so"
        subprocess.run([str(COMPILER), "-shared", "-fPIC", "-O1", "-o", str(library), str(SHIM), "-ldl"], check=True)
        self._file = directory / "shift"
        self.shift(0)
        environ.setenv("LD_PRELOAD", str(library))
        environ.setenv("SHIFT_FILE", str(self._file))

    def shift(self, seconds: int) -> None:
        """Set the clock to the real time plus these seconds, at once."""
        replaced = self._file.with_suffix(".new")
        replaced.write_text(f"{seconds}\n")
        replaced.replace(self._file)


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(tmp_path, monkeypatch)


@pytest.mark.parametrize("shift_s", [-20, 0])
def test_a_wait_lasts_as_long_by_a_clock_that_is_behind(shift_s: int, clock: Clock) -> None:
    """Tests the shim: with another result a client would not wait, spin, and treat each answer as late."""
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
    """Records leave early by real time, within the documented limits; later records are not held up for ever."""
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
    """Two services that set the clock and disagree have this effect."""
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


class Kinds:
    """A delay topic with each kind of pending record: near, sealed, behind the jump, held, and of two series."""

    def __init__(self, stage: FaultStage) -> None:
        self.stage = stage
        self.out, self.closed = stage.target(), stage.target("closed")
        self.delay = stage.delay(
            default_target=self.out, allowed_targets=[self.closed], recurring=True, max_delay="1d", **SMALL_BUCKETS
        )
        self.policies = f"__{stage.word}.policies"
        stage.create([NewTopic(self.policies, 1, 1, config={"cleanup.policy": "compact", **APPEND_TIME})])

    def pause(self, router: RouterProcess, *, on: bool) -> None:
        operations = Operations.for_command(configuration.load(router.config, {}))
        operations.switch(target_scope(self.closed), "paused", on=on)

    def send(self, rng: Random) -> None:
        """Send all kinds, and wait until the state has the sealed and the held records."""
        closed: Header = ("deliver-to", self.closed.encode())
        self.stage.send_many(self.delay, [[_in_s(rng.randint(1_800, 3_000))] for _ in range(WITHIN)])
        beyond: Header = ("deliver-id", b"beyond")
        self.stage.send_many(self.delay, [[beyond, _in_s(rng.randint(7_200, 9_000))] for _ in range(BEYOND)])
        self.stage.send_many(self.delay, [[closed]] * HELD)
        self.stage.send_many(self.delay, [[closed, ("deliver-id", b"held"), _in_s(1_800)]] * HELD)
        each: Header = ("deliver-missed", b"all")
        self.stage.send(self.delay, ("deliver-id", b"all"), ("deliver-every", b"PT10M"), each, value=b"all")
        self.stage.send(self.delay, ("deliver-id", b"one"), ("deliver-every", b"PT5M"), value=b"one")

        def is_stored() -> bool:
            found = state(self.stage, self.delay)
            stored = sum(each.entries for each in found.buckets)
            return len(found.held) == HELD and stored == WITHIN + BEYOND + HELD + SERIES

        wait_until(is_stored, "buckets and held records")
        self.stage.send_many(self.delay, [[_in_s(2)] for _ in range(NEAR)])

    def cancelled(self, names: Sequence[bytes]) -> dict[bytes | None, int]:
        """Cancel schedules by these ids, and return the number of schedules in each receipt."""
        self.stage.send_many(self.delay, [[("deliver-cancel", name)] for name in names])
        receipts = self.stage.wait_records(f"{self.delay}.receipts", len(names))
        return {each.key: len(json.loads(each.value or b"")["cancelled"]) for each in receipts}

    def occurrences(self, value: bytes) -> list[int]:
        """Return the occurrence numbers of a series, in the order of the topic."""
        found = [each for each in self.stage.records(self.out) if each.value == value]
        return [int(header(each, "delay-occurrence") or b"") for each in found]


def _in_s(seconds: int) -> Header:
    return "deliver-at", b"%d" % (now_ms() + 1_000 * seconds)


@pytest.mark.timeout(300)
def test_an_hour_back_and_forward_with_every_kind_of_pending_record(
    clock: Clock, lone: FaultStage, rng: Random
) -> None:
    """An hour's records leave once each while the clock is ahead, early within the limits; the others stay."""
    kinds = Kinds(lone)
    with lone.router(policies_topic=kinds.policies) as router:
        kinds.pause(router, on=True)
        router.start_and_wait()
        kinds.send(rng)
        clock.shift(-3_600)
        time.sleep(3)
        router.kill()
        router.start_and_wait()
        assert len(lone.records(kinds.out)) in range(NEAR + 1), "released an hour early by a clock that is behind"
        clock.shift(0)
        lone.wait_records(kinds.out, NEAR)
        clock.shift(3_600)
        lone.wait_records(kinds.out, NEAR + WITHIN + OCCURRENCES)
        time.sleep(1)
        router.kill()
        router.start_and_wait()
        clock.shift(0)
        lone.send(kinds.delay, _in_s(1), value=b"after")
        wait_until(lambda: lone.records(kinds.out)[-1].value == b"after", "what is due by the right clock leaves")
        kinds.pause(router, on=False)
        lone.wait_records(kinds.closed, HELD)
        assert kinds.occurrences(b"all") == list(range(1, 7))
        assert kinds.occurrences(b"one") == [1], "the occurrences that were missed are skipped"
        assert len(lone.records(kinds.out)) == NEAR + WITHIN + OCCURRENCES + 1
        # Records that were held an hour ahead of their due time wait for it.
        found = kinds.cancelled([b"beyond", b"held", b"all", b"one"])
        assert found == {b"beyond": BEYOND, b"held": HELD, b"all": 1, b"one": 1}
        assert len(lone.records(kinds.closed)) == HELD
        report = lone.audit()
        assert (report.lost, report.duplicated, report.altered) == (0, 0, 0), report.summary()
        assert not router.events("partition_failed")
        assert router.stop() == 0


def _wait_for_more(stage: FaultStage, topic: str, than: int) -> None:
    wait_until(lambda: len(stage.records(topic)) > than, "releases after the clock is right again")

"""Runs faults of every kind at random, all the time, under a steady load: ``make soak MINUTES=n PARTITIONS=n LANES=n``.

Two routers share the partitions of a delay topic on three brokers, with a proxy in front of each. Each partition has a
producer of its own, or the partitions of a router share its lanes. A fault begins, lasts, is healed, and after a pause
the next begins; every fault must have had an effect. At the end the auditor counts. The closing lines state the
lateness of records in and out of faults, the time from each heal until lateness was low again, and whether memory,
files and threads of the routers stayed flat; the first router is never ended. The exit code is 1 if a guarantee was
broken.

Three brokers, because a single one that is killed while it writes commit markers may leave some out for ever
(KAFKA-20734: those of partitions that have no leader at that moment). A broker is healed when it is in sync again.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import click

from tests.faults.lateness import LOW_MS, Fault, Lateness
from tests.faults.proxy import ApiKey, Proxy
from tests.faults.stage import FENCED_S, SMALL_BUCKETS, FaultStage, Proxied, proxied
from tests.faults.usage import Usage
from tests.integration.scenario import Load, now_ms, wait_until

BROKERS = 3
LEADERS_MOVE_BACK = {"leader.imbalance.check.interval.seconds": "20"}
"""Instead of 300: a broker that was away leads again before the next fault hits it."""

A_SECOND = 50
"""The rate that three brokers, two routers, their proxies and this process sustain on two cores without lateness."""

SEAL_AGE = "5s"
DELAYS_MS = (0, 15_000)
PAUSES_S = {True: (12.5, 14.0), False: (15.5, 16.5)}
"""The pause between a heal and the next fault, by whether an owner was hit; recovery can be observed for as long. 180
faults an hour need one every 20 s. Some longer pauses show longer recoveries, and the lateness without any fault.
"""

REST_EVERY = 10
REST_S = 40.0
SAMPLE_EVERY_S = 5.0
WARM_UP_S = 30.0


class Soak:
    """One run; ``faults`` lists the past faults with their kinds and times."""

    def __init__(self, running: Proxied, directory: Path, rng: random.Random, partitions: int, lanes: int) -> None:
        self._running = running
        self._partitions = partitions
        self._rng = rng
        self.stage = FaultStage(running, directory)
        self.out = self.stage.target("out", 2)
        self.delay = self.stage.delay(
            "delay", partitions, default_target=self.out, **SMALL_BUCKETS | {"seal_age": SEAL_AGE}
        )
        settings = {"session_timeout": "3s", "lanes": lanes}
        self.routers = [self.stage.router(f"r{n}", instance_id=f"r{n}", **settings) for n in range(2)]
        self.faults: list[Fault] = []
        self.ready_ms = 0
        self.usage = Usage()

    def run(self, minutes: float) -> None:
        """Start the routers, then let one fault follow the other for this time."""
        load = Load(
            self.stage,
            [self.delay],
            self._rng,
            partitions=self._partitions,
            a_second=A_SECOND,
            delays_ms=DELAYS_MS,
        )
        with load:
            for router in self.routers:
                router.start_and_wait()
            # Brokers that have just started are slow, which is no lateness of the router.
            self._rest(WARM_UP_S)
            self.ready_ms = now_ms()
            end_s = time.monotonic() + minutes * 60
            while time.monotonic() < end_s:
                fault = self._one_fault()
                resting = len(self.faults) % REST_EVERY == 0
                self._rest(REST_S if resting else self._rng.uniform(*PAUSES_S[fault.owner_was_hit]))
        for router in self.routers:
            router.wait_ready()

    def _one_fault(self) -> Fault:
        kinds: dict[str, Callable[[], bool]] = {
            "kill -9 of a router": self._kill_router,
            "SIGSTOP of a router": self._stop_router,
            "SIGTERM of a router": self._end_router,
            "kill -9 of a broker": self._kill_broker,
            "SIGSTOP of a broker": self._stop_broker,
            "connections cut": self._cut,
            "silence on all lines": lambda: self._silence(self._running.proxies),
            "silence on one line": lambda: self._silence([self._rng.choice(self._running.proxies)]),
            "a slow line": self._slow,
            "answers to EndTxn lost": lambda: self._lose(ApiKey.END_TXN),
            "answers to Produce lost": lambda: self._lose(ApiKey.PRODUCE),
        }
        # A broker takes long to come back, so faults of brokers are rarer.
        kind = self._rng.choices(list(kinds), [1 if "broker" in name else 2 for name in kinds])[0]
        began_ms = now_ms()
        owner_was_hit = kinds[kind]()
        fault = Fault(kind, began_ms, now_ms(), owner_was_hit=owner_was_hit)
        self.faults.append(fault)
        click.echo(f"{len(self.faults):4} {kind}, {(fault.healed_ms - began_ms) / 1000:.1f} s")
        return fault

    def _kill_router(self) -> bool:
        router = self.routers[1]
        router.kill()
        time.sleep(self._rng.uniform(0, 3))
        router.start()
        return True

    def _end_router(self) -> bool:
        router = self.routers[1]
        router.stop()
        router.start()
        return True

    def _stop_router(self) -> bool:
        router = self._rng.choice(self.routers)
        router.pause()
        time.sleep(self._rng.uniform(1, 5))
        router.resume()
        return True

    def _kill_broker(self) -> bool:
        node = self._rng.choice(self._running.cluster.nodes)
        node.kill()
        time.sleep(FENCED_S + self._rng.uniform(0, 3))
        node.start()
        self._in_sync()
        return True

    def _stop_broker(self) -> bool:
        node = self._rng.choice(self._running.cluster.nodes)
        node.pause()
        time.sleep(self._rng.uniform(1, 9))
        node.resume()
        self._in_sync()
        return True

    def _in_sync(self) -> None:
        self._running.cluster.wait_ready()
        wait_until(lambda: not self.stage.behind(), "every replica in sync", 90.0)

    def _cut(self) -> bool:
        with self._seen("cut"):
            for _ in range(3):
                for proxy in self._running.proxies:
                    proxy.cut()
                time.sleep(0.3)
        return False

    def _silence(self, lines: Sequence[Proxy]) -> bool:
        with self._seen("held in silence"):
            for proxy in lines:
                proxy.fall_silent()
            time.sleep(self._rng.uniform(1, 5))
            self._running.heal()
        # Silence longer than a session has the effect of a kill.
        return True

    def _slow(self) -> bool:
        delay_s = self._rng.uniform(0.05, 0.5)
        with self._seen("delayed"):
            for proxy in self._running.proxies:
                proxy.delay_s = delay_s
            time.sleep(4)
            self._running.heal()
        return False

    def _lose(self, key: ApiKey) -> bool:
        name = f"lost answer to {key.name}"
        wanted = self._running.effects[name] + 2
        for proxy in self._running.proxies:
            proxy.lose_answers([key], 2)
        wait_until(lambda: self._running.effects[name] >= wanted, name)
        self._running.heal()
        return True

    @contextmanager
    def _seen(self, effect: str) -> Iterator[None]:
        before = self._running.effects[effect]
        yield
        assert self._running.effects[effect] > before, f"nothing was {effect}"

    def _rest(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self.usage.sample(self.routers)
            time.sleep(min(left_s, SAMPLE_EVERY_S))


@click.command()
@click.argument("minutes", type=click.FloatRange(min=0.5), default=5.0)
@click.option("--seed", type=int, help="Of the order of faults; printed by each run.")
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True, help="Of the delay topic.")
@click.option("--lanes", type=click.IntRange(0), default=0, show_default=True, help="Of each router; 0: none.")
def main(minutes: float, seed: int | None, partitions: int, lanes: int) -> None:
    """Run for MINUTES and say what came out."""
    chosen = seed if seed is not None else random.SystemRandom().getrandbits(32)
    click.echo(f"seed {chosen}")
    with (
        proxied(BROKERS, properties=LEADERS_MOVE_BACK) as running,
        tempfile.TemporaryDirectory(prefix="delay-router-soak-") as directory,
    ):
        soak = Soak(running, Path(directory), random.Random(chosen), partitions, lanes)
        with soak.routers[0], soak.routers[1]:
            soak.run(minutes)
            complaints = _conclude(soak)
    for complaint in complaints:
        click.echo(complaint)
    click.echo(f"{len(soak.faults)} passed, {len(complaints)} failed")
    sys.exit(int(bool(complaints)))


def _conclude(soak: Soak) -> list[str]:
    report = soak.stage.audit()
    deadline_s = time.monotonic() + 120
    while (report.pending or report.lost) and time.monotonic() < deadline_s:
        time.sleep(1)
        report = soak.stage.audit()
    complaints = [] if report.ok and not report.pending else [f"BROKEN: {report.summary()}"]
    if left_open := soak.stage.open_transactions():
        complaints.append(f"transactions are left open in {left_open}")
    complaints += soak.usage.complaints()
    lateness = Lateness(soak.stage.records(soak.out), soak.faults, soak.ready_ms)
    click.echo(f"{report.summary()}; {len(soak.faults)} faults")
    click.echo(f"late by p50 {_ms(lateness.outside, 50)}, p99 {_ms(lateness.outside, 99)} out of faults;"
               f" p50 {_ms(lateness.inside, 50)}, p99 {_ms(lateness.inside, 99)} in faults and 30 s after")  # fmt: skip
    for title, owner_was_hit, within_s in (("the owner", True, 30), ("the line", False, 15)):
        if seconds := lateness.recovery_s(owner_was_hit=owner_was_hit):
            click.echo(_recoveries(title, seconds, within_s))
    click.echo(soak.usage.summary())
    return complaints


def _recoveries(title: str, seconds: Sequence[float | None], within_s: int) -> str:
    known = sorted(each for each in seconds if each is not None)
    return (
        f"after faults of {title}: p99 below {LOW_MS} ms after {median(known or [0]):.0f} s in the median,"
        f" {max(known, default=0):.0f} s at most; within {within_s} s in"
        f" {sum(each <= within_s for each in known)} of {len(seconds)},"
        f" and in {len(seconds) - len(known)} the next fault came first"
    )


def _ms(values: Sequence[int], percent: int) -> str:
    return f"{values[min(len(values) - 1, len(values) * percent // 100)]} ms" if values else "-"


if __name__ == "__main__":
    main()

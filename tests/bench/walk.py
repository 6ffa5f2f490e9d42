"""Files and functions that one record visits: ``python -m tests.bench.walk [--list WALK]``, or ``make walk``.

A running router counts its calls in the seconds around an event (:mod:`tests.bench.walked`). Calls that ten idle
seconds make as well are left out, except for the restart. A room is a folder of ``sidecar``, a file beside these
folders, or the packages ``index`` and ``snapshots``. A move is a call in another room than the last call of the same
thread.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final, NamedTuple

import click
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from sidecar.dev.demo.router import RouterProcess
from sidecar.dev.local_kafka import BENCH_JVM, cluster
from tests.bench import machine, router, workload
from tests.bench.released import CONSUMER
from tests.bench.results import BenchmarkFailed
from tests.bench.walked import channel_of

IDLE_S: Final = 10.0
SETTLE_S: Final = 2.0
"""From an event to the end of its window: the transaction after it is committed and counted by then."""

DELAY_MS: Final = 300
FAR_MS: Final = 3_600_000
ID: Final = b"order-7"

Calls = Mapping[str, Sequence[str]]
"""Calls by thread, in order, each as ``FILE:FUNCTION``."""


class Walk(NamedTuple):
    """The calls that one event has caused."""

    name: str
    calls: Calls

    @property
    def functions(self) -> set[str]:
        """The functions that were called."""
        return {call for calls in self.calls.values() for call in calls}

    @property
    def files(self) -> set[str]:
        """The files of these functions."""
        return {function.partition(":")[0] for function in self.functions}

    @property
    def rooms(self) -> set[str]:
        """The rooms of these files."""
        return {room_of(file) for file in self.files}

    @property
    def moves(self) -> int:
        """The number of calls in another room than the call before, in each thread."""
        return sum(
            room_of(before) != room_of(after) for calls in self.calls.values() for before, after in pairwise(calls)
        )

    def without(self, functions: set[str]) -> "Walk":
        """Return the same without the calls of these functions, and without threads that made no other call."""
        left = {name: [call for call in calls if call not in functions] for name, calls in self.calls.items()}
        return Walk(self.name, {name: calls for name, calls in left.items() if calls})


def room_of(call: str) -> str:
    """Name the room of a function or file.

    >>> room_of("sidecar/engine/release/gate.py:Gate.hold"), room_of("sidecar/clock.py"),
    room_of("index/rules/rules.py") ('sidecar/engine/release', 'sidecar/clock.py', 'index')
    """
    parts = call.partition(":")[0].split("/")
    return parts[0] if parts[0] != "sidecar" else "/".join(parts[:2])


@contextmanager
def walked(process: RouterProcess) -> Iterator[Callable[[], Calls]]:
    """Run a router for the length of the block; give the function that ends a window and returns its calls."""
    process.module = "tests.bench.walked"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(channel_of(process.config)))
        listening.listen()
        process.start()
        channel, _ = listening.accept()
        with channel, channel.makefile("rw") as lines:

            def window() -> Calls:
                lines.write("\n")
                lines.flush()
                calls: Calls = json.loads(lines.readline())
                return calls

            process.wait_ready()
            yield window
            process.stop()
    channel_of(process.config).unlink()


def walks(bootstrap: str) -> Iterator[Walk]:
    """Walk with a record, a cancel and a restart."""
    with router.prepared(bootstrap) as made:
        with walked(made.process) as window:
            time.sleep(SETTLE_S)
            # The first of each kind loads and creates parts that later ones find.
            _send(bootstrap, made)
            _cancel(bootstrap, made)
            window()
            time.sleep(IDLE_S)
            idle = Walk("idle", window()).functions
            _send(bootstrap, made)
            yield Walk("deliver-at", window()).without(idle)
            _name(bootstrap, made)
            window()
            _cancel(bootstrap, made)
            yield Walk("deliver-cancel", window()).without(idle)
        with walked(made.process) as window:
            yield Walk("restart", window())


def _send(bootstrap: str, made: router.Router) -> None:
    headers = workload.headers(workload.now_ms() + DELAY_MS, made.target)
    _write_and_wait(bootstrap, made, headers, made.target)


def _name(bootstrap: str, made: router.Router) -> None:
    _write(bootstrap, made, [*workload.headers(workload.now_ms() + FAR_MS, made.target), ("deliver-id", ID)])
    time.sleep(SETTLE_S)


def _cancel(bootstrap: str, made: router.Router) -> None:
    _write_and_wait(bootstrap, made, [("deliver-cancel", ID)], f"{made.delay_topic}.receipts")


def _write(bootstrap: str, made: router.Router, headers: workload.Headers) -> None:
    producer = workload.ordered_producer(bootstrap, linger_ms=0)
    workload.produce(producer, made.delay_topic, headers)
    workload.flush(producer)


def _write_and_wait(bootstrap: str, made: router.Router, headers: workload.Headers, topic: str) -> None:
    """Write a record to the delay topic; wait until the router has written to ``topic``, and has counted that."""
    before = _end_of(bootstrap, topic)
    _write(bootstrap, made, headers)
    time.sleep(DELAY_MS / 1_000 + SETTLE_S)
    if _end_of(bootstrap, topic) == before:
        raise BenchmarkFailed(f"nothing was written to {topic}")


def _end_of(bootstrap: str, topic: str) -> int:
    consumer = Consumer(CONSUMER | {"bootstrap.servers": bootstrap})
    try:
        end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), workload.REQUEST_TIMEOUT_S)[1]
        return end
    finally:
        consumer.close()


@click.command()
@click.option("--list", "listed", help="Print the functions of this walk in their order.")
def main(listed: str | None) -> None:
    """Count the files and functions that a record, a cancel and a restart visit."""
    console = Console()
    table = Table("walk", "files", "functions", "rooms", "moves", "threads")
    with cluster(jvm=BENCH_JVM) as running:
        for walk in walks(running.bootstrap):
            counts = len(walk.files), len(walk.functions), len(walk.rooms), walk.moves, len(walk.calls)
            table.add_row(walk.name, *map(str, counts))
            if walk.name == listed:
                for thread, calls in walk.calls.items():
                    console.print(thread, *calls, sep="\n  ", markup=False, soft_wrap=True)
        console.print(machine.line(machine.describe(running.origin)), soft_wrap=True)
    console.print(table)


if __name__ == "__main__":
    main()

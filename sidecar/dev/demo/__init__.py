"""``delay-router demo``: a real Kafka, a real router, a few dozen orders, and a crash in the middle; and ``dev``.

``run`` plays the demo. ``orders`` makes the records, ``board`` keeps their progress and ``show`` displays it;
``kafka_side`` and ``router`` handle Kafka and the router process. The closing line comes from ``sidecar.dev.audit``,
which counts from the topics and shares no code with the router. :mod:`sidecar.dev.demo.dev` is ``delay-router dev``: a
Kafka and a router without the demo.

Begin with :mod:`sidecar.dev.demo.run`.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from confluent_kafka import KafkaException
from rich.console import Console

from sidecar.dev import local_kafka
from sidecar.dev.demo import dev
from sidecar.dev.demo.run import Demo


def main(orders: int, *, kill: bool) -> int:
    """Run the demo with so many orders and return its exit code; with ``kill`` the router is killed in the middle.

    0: every order was released once, on time or later; the orders that had to be rejected, cancelled, replaced or moved
    were; and the topics hold no other records. 1: any other outcome.
    """
    console = Console()
    try:
        with terminable():
            console.print("starting Kafka ...")
            with local_kafka.cluster() as kafka:
                shared = kafka.origin == "given"
                return Demo(kafka.bootstrap, console, count=orders, kill=kill, shared=shared).run()
    except local_kafka.KafkaUnavailable as error:
        print(error, file=sys.stderr)
    except KafkaException as error:
        print(f"the demo failed: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    return 1


def stay(port: int, console: Console) -> int:
    """Keep a Kafka and a router until Ctrl-C, their orderly end; return 0 then, and 1 when one of them cannot start."""
    with terminable():
        return dev.main(port, console)


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM and a closed terminal clean up as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the arguments that signal() passes
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

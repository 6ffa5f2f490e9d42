"""``delay-router demo``: a real Kafka, a real router, a few dozen orders, and a crash in the middle; and ``dev``.

``run`` plays the demo. ``orders`` makes the records, ``board`` keeps their progress and ``show`` displays it;
``kafka_side`` and ``router`` handle Kafka and the router process. The closing line comes from ``sidecar.dev.audit``,
which counts from the topics and shares no code with the router. :mod:`sidecar.dev.demo.dev` is ``delay-router dev``: a
Kafka and a router without the demo.

Begin with :mod:`sidecar.dev.demo.run`.
"""

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from confluent_kafka import KafkaException
from rich.console import Console

from sidecar.dev import local_kafka
from sidecar.dev.demo import dev
from sidecar.dev.demo.run import Demo

DEFAULT_ORDERS: Final = 30
MAX_ORDERS: Final = 1_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo with these command line options and return its exit code.

    0: every order was released once, on time or later; the orders that had to be rejected, cancelled, replaced or moved
    were; and the topics hold no other records. 1: any other outcome. Wrong options raise SystemExit(2).
    """
    given = _options(arguments)
    console = Console()
    try:
        with terminable():
            console.print("starting Kafka ...")
            with local_kafka.cluster() as kafka:
                shared = kafka.origin == "given"
                return Demo(kafka.bootstrap, console, count=given.orders, kill=given.kill, shared=shared).run()
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


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="delay-router demo",
        description="Start a Kafka and a router, send orders with delays of 0 to 10 s, cancel one and replace one, "
        "kill the router in the middle, and count their fates in the topics. "
        "KAFKA_BOOTSTRAP_SERVERS=HOST:PORT uses a running cluster, in topics of its own that are deleted at the end.",
    )
    parser.add_argument(
        "--orders", type=_count, default=DEFAULT_ORDERS, metavar="N", help=f"how many (default {DEFAULT_ORDERS})"
    )
    parser.add_argument("--no-kill", dest="kill", action="store_false", help="let the router live")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= MAX_ORDERS:
        raise argparse.ArgumentTypeError(f"1 to {MAX_ORDERS} orders can be sent, not {count}")
    return count


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

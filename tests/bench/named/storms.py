"""Measures the lateness of a record that is due at once, behind thousands of controls for one id."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from tests.bench import router, scatter, workload
from tests.bench.context import Context
from tests.bench.released import CONSUMER, READ_TIMEOUT_S
from tests.bench.results import BenchmarkFailed, Row, at_most
from tests.bench.router import Router

SCHEDULES: Final = 20_000
CANCELS: Final = 2_000
MOVES: Final = 3_000
ID: Final = b"customer-7"
BEHIND_CANCELS_MS: Final = 100
BEHIND_MOVES_MS: Final = 500

HeadersOf = Callable[[int], workload.Headers]


def storms(context: Context) -> Iterator[Row]:
    """Measure a record behind cancels for an id with many schedules, and one behind moves of one schedule."""
    far_ms = workload.now_ms() + scatter.HOUR_MS

    def cancel_of(number: int) -> workload.Headers:
        """Name a due time that a schedule has, and every other time one that no schedule has."""
        wanted_ms = far_ms + number if number % 2 else far_ms - 1 - number
        return [("deliver-cancel", ID), ("deliver-if-due", b"%d" % wanted_ms)]

    def move_of(number: int) -> workload.Headers:
        return [("deliver-move", ID), ("deliver-at", b"%d" % (far_ms + number))]

    late_ms = _late_ms(context, SCHEDULES, far_ms, CANCELS, cancel_of)
    name = f"a record behind {CANCELS:,} cancels for an id with {SCHEDULES:,} schedules"
    yield Row("storms", name, late_ms, "ms", goal=at_most(BEHIND_CANCELS_MS))
    late_ms = _late_ms(context, 1, far_ms, MOVES, move_of)
    yield Row("storms", f"a record behind {MOVES:,} moves", late_ms, "ms", goal=at_most(BEHIND_MOVES_MS))


def _late_ms(context: Context, schedules: int, far_ms: int, controls: int, control_of: HeadersOf) -> int:
    with router.running(context.bootstrap) as under:

        def schedule_of(number: int) -> workload.Headers:
            return [*workload.headers(far_ms + number, under.target), ("deliver-id", ID)]

        def storm_of(number: int) -> workload.Headers:
            return control_of(number) if number < controls else workload.headers(workload.now_ms(), under.target)

        workload.fill(context.bootstrap, under.delay_topic, schedules, schedule_of)
        scatter.wait_indexed(under, schedules, workload.now_ms() + scatter.lead_ms(schedules))
        workload.fill(context.bootstrap, under.delay_topic, controls + 1, storm_of)
        return _first_late_ms(context, under)


def _first_late_ms(context: Context, under: Router) -> int:
    """Return the lateness of the first released record. Raise BenchmarkFailed if none comes."""
    consumer = Consumer({"bootstrap.servers": context.bootstrap, **CONSUMER})
    consumer.assign([TopicPartition(under.target, 0, 0)])
    until_s = time.monotonic() + READ_TIMEOUT_S
    try:
        while time.monotonic() < until_s:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                headers: Any = dict(message.headers() or ())
                return message.timestamp()[1] - int(headers["delay-due"])
    finally:
        consumer.close()
    raise BenchmarkFailed(f"no record was released within {READ_TIMEOUT_S:.0f} s")

"""Measures the lateness of a record that is due at once, behind thousands of controls for one id."""

from collections.abc import Callable, Iterator
from typing import Final

from tests.bench import router, scatter, workload
from tests.bench.context import Context
from tests.bench.released import TargetReader
from tests.bench.results import Row, at_most

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
    dues_ms: list[int] = []
    with router.running(context.bootstrap) as under:

        def schedule_of(number: int) -> workload.Headers:
            return [*workload.headers(far_ms + number, under.target), ("deliver-id", ID)]

        def storm_of(number: int) -> workload.Headers:
            if number < controls:
                return control_of(number)
            dues_ms.append(workload.now_ms())
            return workload.headers(dues_ms[-1], under.target)

        # By one producer, which is connected when the storm begins: the record behind it is due when it is written.
        producer = workload.ordered_producer(context.bootstrap, workload.FILL_LINGER_MS)
        workload.write(producer, under.delay_topic, schedules, schedule_of)
        scatter.wait_indexed(under, schedules, workload.now_ms() + scatter.lead_ms(schedules))
        workload.write(producer, under.delay_topic, controls + 1, storm_of)
        reader = TargetReader(context.bootstrap, under.delay_topic, under.target)
        return reader.lateness(dues_ms, schedules + controls).sorted_ms[0]

"""Writes records with scattered due times, independent of their order in the log."""

from array import array
from collections.abc import Sequence
from typing import Final

from tests.bench import workload
from tests.bench.context import Context
from tests.bench.router import Router, Standing

# The time to write, index and seal before the first record is due: twice the expected time.
FIXED_LEAD_MS: Final = 8_000
PREPARED_PER_MS: Final = 40

# The records must be indexed this long before the first due time, so that the measurement excludes preparation.
QUIET_MS: Final = 500

LOOK_EVERY_MS: Final = 500
TELL_EVERY_MS: Final = 10_000
HOUR_MS: Final = 3_600_000


def lead_ms(count: int) -> int:
    """Return how long before the first due time to begin writing ``count`` records."""
    return FIXED_LEAD_MS + count // PREPARED_PER_MS


def due_times(context: Context, count: int, first_ms: int, spread_ms: int) -> Sequence[int]:
    """Return ``count`` random due times in [first_ms, first_ms + spread_ms)."""
    chance = context.random.random
    return array("q", (first_ms + int(chance() * spread_ms) for _ in range(count)))


def write(context: Context, router: Router, due_times_ms: Sequence[int]) -> None:
    """Write a record for each due time: the n-th record gets the n-th."""
    target = router.target
    workload.fill(
        context.bootstrap,
        router.delay_topic,
        len(due_times_ms),
        lambda number: workload.headers(due_times_ms[number], target),
    )


def write_ahead(context: Context, router: Router, count: int, spread_ms: int) -> tuple[Sequence[int], int]:
    """Write scattered records and wait until they are indexed. Return due times and the instant of the first."""
    first_ms = workload.now_ms() + lead_ms(count)
    due_times_ms = due_times(context, count, first_ms, spread_ms)
    write(context, router, due_times_ms)
    wait_indexed(router, count, first_ms - QUIET_MS)
    return due_times_ms, first_ms


def wait_indexed(router: Router, count: int, until_ms: int) -> Standing:
    """Wait until ``count`` records are indexed, committed or not."""
    # While no record is due, C is committed only every few seconds; the number of pending records is current.
    return router.wait_standing(
        f"indexed, {count} records", lambda at: at.cursor >= count or at.pending >= count, until_ms
    )


def wait_sealed(context: Context, router: Router, from_offset: int, until_ms: int) -> Standing:
    """Wait until everything below ``from_offset`` is sealed, or until an instant. Return the position reached."""
    told_ms = workload.now_ms()
    while (standing := router.standing()).sealed_to < from_offset and workload.now_ms() < until_ms:
        if workload.now_ms() - told_ms > TELL_EVERY_MS:
            told_ms = workload.now_ms()
            context.say(f"indexed to {standing.cursor:,}, sealed to {standing.sealed_to:,}")
        workload.sleep_until(min(workload.now_ms() + LOOK_EVERY_MS, until_ms))
    return standing

"""The router made as small as the runs are."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from tests.simulation.world import Clock

LEAD_MS = 25


@contextmanager
def small_and_soon(clock: Clock) -> Iterator[None]:
    """The constants of the router as small as the runs are, and a clock that the scheduler moves."""
    changed: dict[str, object] = {
        "index.pending.CHUNK_BITS": 4,
        "sidecar.buckets.lifecycle.time": clock,
        "sidecar.buckets.lifecycle.LEAD_MS": LEAD_MS,
        "sidecar.buckets.lifecycle.TOMBSTONES_AT_ONCE": 5,
        "sidecar.buckets.lifecycle.AGAIN_AFTER_S": 0.05,
        "sidecar.buckets.sealing.SEGMENTS_AT_ONCE": 2,
        "sidecar.buckets.sealing.AHEAD": 3,
        "sidecar.backfill.adopting.time": clock,
        "sidecar.backfill.adopting.SEAL_WITHIN_S": 0.2,
        "sidecar.backfill.adopting.AGAIN_AFTER_S": 0.05,
        "sidecar.buckets.loading.time": clock,
        "sidecar.buckets.loading.LEAD_MS": LEAD_MS,
        "sidecar.buckets.loading.RETRY_AFTER_S": 0.01,
        # A merge is done in one go when its turn comes, so its queue must take all of it.
        "sidecar.buckets.merging.QUEUED_SEGMENTS": 0,
        "sidecar.release.gate.MAX_HELD_RECORDS": 5,
    }
    with ExitStack() as stack:
        for name, value in changed.items():
            stack.enter_context(patch(name, value))
        yield

"""The router made as small as the runs are, and wrong where a run wants it."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from tests.simulation.world import Faults

LEAD_MS = 25
RARE_PLACES = ("adopt.", "merge.", "seal.")
TIMES = {"merge.after_manifest": 6}
"""Few merges of a run come to their end, so that each has to be worth it."""


@contextmanager
def small_and_soon(faults: Faults, wrong: Mapping[str, object]) -> Iterator[None]:
    """The constants of the router as small as the runs are; each place of its failpoints is one where it may die."""

    def passing(name: str) -> None:
        for _ in range(TIMES.get(name, 1)):
            faults.point(name, rare=name.startswith(RARE_PLACES))

    changed: dict[str, object] = {
        "index.pending.CHUNK_BITS": 4,
        "sidecar.failpoints.passing": passing,
        "sidecar.buckets.lifecycle.LEAD_MS": LEAD_MS,
        "sidecar.buckets.trimming.TOMBSTONES_AT_ONCE": 5,
        "sidecar.buckets.lifecycle.AGAIN_AFTER_S": 0.05,
        "sidecar.buckets.sealing.SEGMENTS_AT_ONCE": 2,
        "sidecar.buckets.merging.BYTES_AT_ONCE": 200,
        "sidecar.buckets.merge_reading.RUN_BYTES": 300,
        "sidecar.buckets.sealing.AHEAD": 3,
        "sidecar.buckets.sealing.CUT_ENTRIES": 12,
        "sidecar.buckets.sealing.WORTH_BYTES": 200,
        "sidecar.backfill.adopting.SEAL_WITHIN_S": 0.2,
        "sidecar.backfill.adopting.AGAIN_AFTER_S": 0.05,
        "sidecar.buckets.loading.LEAD_MS": LEAD_MS,
        "sidecar.buckets.loading.RETRY_AFTER_S": 0.01,
        # A merge is done in one go when its turn comes, so its queue must take all of it.
        "sidecar.buckets.merging.QUEUED": 0,
        "index.id_pages.LEAST_ROWS": 2,
        "sidecar.buckets.id_pages.WRITTEN_BYTES": 130,
        "sidecar.buckets.id_pages.WHOLE_BYTES": 200,
        "sidecar.buckets.id_pages.FEW": 2,
        "sidecar.buckets.trimming.EVERY_S": 0.02,
        "sidecar.buckets.loading.DROPPING_FOR_S": 0.0,
        "sidecar.partition.rounds.PROGRESS_EVERY_S": 0.02,
        "sidecar.partition.rounds.PROGRESS_CLEARANCE_S": 0.0,
        "sidecar.partition.tail.LOOK_WITHIN_S": 0.05,
        "sidecar.release.gate.MAX_HELD_RECORDS": 5,
        "sidecar.release.gate.RESUME_EVERY_S": 0.0,
        **wrong,
    }
    with ExitStack() as stack:
        for name, value in changed.items():
            stack.enter_context(patch(name, value))
        yield

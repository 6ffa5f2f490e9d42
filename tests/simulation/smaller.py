"""Limits of a router that are as small as the runs."""

from typing import Final

from sidecar.engine.limits import Limits

SMALL: Final = Limits(
    load_lead_ms=25,
    load_again_s=0.01,
    drop_for_s=0.0,
    seal_cut_entries=12,
    seal_ahead_segments=3,
    seal_worth_bytes=200,
    seal_segments=2,
    bucket_again_s=0.05,
    merge_bytes=200,
    merge_read_bytes=300,
    tombstones=5,
    trim_every_s=0.02,
    count_budget=8,
    page_rows=2,
    page_write_bytes=130,
    pages_whole_bytes=200,
    pages_apart=2,
    adopt_within_s=0.2,
    adopt_again_s=0.05,
    staged_within_s=0.05,
    progress_every_s=0.02,
    progress_clearance_s=0.0,
    held_records=5,
    yield_s=0.02,
    resume_every_s=0.0,
)

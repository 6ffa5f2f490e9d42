"""Intents protect the segments of a job, and segments that were trimmed are not staged."""

from types import SimpleNamespace
from typing import cast

import pytest

from index.named.id_pages import IdPageRef
from spark_backfill.buckets import staging
from spark_backfill.buckets.job import Job
from spark_backfill.buckets.staging import INTENT_LASTS_MS, RENEWED_EVERY_MS, Intents, refuse_trimmed
from spark_backfill.errors import JobError

NOW_MS = 1_800_000_000_000


class Clock:
    """A wall clock that is set by hand."""

    now_ms = NOW_MS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(staging, "_now_ms", lambda: clock.now_ms)
    return clock


@pytest.fixture
def intents(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Intents:
    monkeypatch.setattr(Intents, "_send", lambda *_: None)
    assert clock.now_ms == NOW_MS
    written = Intents("run", "d.delay-backfill", {}, {0: 7})
    written.write()
    return written


def test_intents_hold_until_they_expire(intents: Intents, clock: Clock) -> None:
    clock.now_ms += INTENT_LASTS_MS - 1
    assert intents.hold
    clock.now_ms += 1
    assert not intents.hold


def test_renewed_intents_hold_on(intents: Intents, clock: Clock) -> None:
    for _ in range(2 * INTENT_LASTS_MS // RENEWED_EVERY_MS):
        clock.now_ms += RENEWED_EVERY_MS + 1
        intents.renew()
    assert intents.hold


def test_intents_that_are_renewed_after_they_expired_hold_no_more(intents: Intents, clock: Clock) -> None:
    clock.now_ms += INTENT_LASTS_MS
    intents.renew()
    assert not intents.hold


def test_a_segment_that_was_trimmed_is_not_staged() -> None:
    buckets = [SimpleNamespace(partition=0), SimpleNamespace(partition=3)]
    job = cast("Job", SimpleNamespace(snapshots="d.delay-snapshots", slots=SimpleNamespace(buckets=buckets)))
    written: list[tuple[int, IdPageRef]] = [(0, _page(5)), (1, _page(40))]
    refuse_trimmed(job, {0: 5, 3: 40}, written)
    with pytest.raises(JobError, match=r"d\.delay-snapshots/3: offset 40, which the job wrote, was trimmed"):
        refuse_trimmed(job, {0: 5, 3: 41}, written)


def _page(record_offset: int) -> IdPageRef:
    return IdPageRef(bytes(16), 1, 40, record_offset)

"""Expiry: the limit that counts, and the time from which lateness is counted."""

import pytest

from index.pending.pending import Entry
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE, BY_KEY, KEEP_KEY, NO_EXPIRY, Reason, Schedule
from index.rules.rules import Rules
from sidecar.engine.payload.records import Scheduled
from sidecar.engine.release.expiry import NEVER_EXPIRES, Expiry

RULES = Rules("d", default_target="out")
BY_TARGET = Expiry(1_000, {"quick": 100, "patient": 0})


def entry(due_ms: int = 5_000, own_ms: int = NO_EXPIRY, targets: tuple[str, ...] = ("out",)) -> Entry[Scheduled]:
    schedule = Schedule(due_ms, targets, BY_KEY, KEEP_KEY, None, both_times=False, expire_after_ms=own_ms)
    return due_ms, 7, Scheduled(schedule, 1, Record(None, b"", (), 4_000))


@pytest.mark.parametrize(
    ("expiry", "given", "last_ms"),
    [
        (Expiry(1_000), entry(), 6_000),
        (Expiry(1_000), entry(AT_ONCE), 5_000),
        (NEVER_EXPIRES, entry(own_ms=50), 5_050),
        (BY_TARGET, entry(own_ms=5_000, targets=("quick",)), 10_000),
        (BY_TARGET, entry(targets=("quick",)), 5_100),
        (BY_TARGET, entry(targets=("out", "quick")), 5_100),
        (BY_TARGET, entry(targets=("patient", "out")), 6_000),
    ],
)
def test_one_millisecond_over_the_limit_is_too_late(expiry: Expiry, given: Entry[Scheduled], last_ms: int) -> None:
    assert expiry.refused([given], last_ms) == {}
    (rejection,) = expiry.refused([given], last_ms + 1).values()
    assert rejection.reason is Reason.EXPIRED


@pytest.mark.parametrize(
    ("expiry", "given"),
    [(NEVER_EXPIRES, entry()), (Expiry(1), entry(own_ms=0)), (BY_TARGET, entry(targets=("patient",)))],
)
def test_without_a_limit_nothing_is_too_late(expiry: Expiry, given: Entry[Scheduled]) -> None:
    assert expiry.refused([given], 1 << 60) == {}


@pytest.mark.parametrize(("raw", "own_ms"), [(b"PT2S", 2_000), (b"15", 15), (b"0", 0)])
def test_the_header_is_a_number_or_a_duration(raw: bytes, own_ms: int) -> None:
    decision = RULES.decide([("deliver-expire-after", raw)], 0)
    assert isinstance(decision, Schedule)
    assert decision.expire_after_ms == own_ms

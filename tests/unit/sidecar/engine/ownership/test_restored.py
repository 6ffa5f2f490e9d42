"""State rebuilt from the buckets that a job has staged: the furthest complete one, or a reason for its refusal."""

import pytest

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.buckets.retention import Kept
from index.errors import FormatError
from index.pending.progress import BEFORE_ALL, Position, Progress
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.engine.ownership.restored import kept_by_backfills, restored_from
from sidecar.engine.ports import Stored
from snapshots.state.staged import Intent, StagedBucket, encode_intent, encode_staged, intent_key, staged_key

RULES = Rules("d", default_target="out")


def staged(
    job: str,
    from_offset: int,
    to_offset: int,
    *,
    restores: bool = True,
    rules: Rules = RULES,
    topic_id: str = "id",
    empty: bool = False,
) -> StagedBucket:
    at = Position(50, from_offset)
    segments = () if empty else (SegmentRef(at, at, 1, 100, from_offset + 1_000, Placement.INLINE),)
    return StagedBucket(job, topic_id, rules, Manifest(0, from_offset, to_offset, None, segments), restores)


def records(*several: StagedBucket) -> list[Stored]:
    return [
        Stored(offset, staged_key(each.job, each.manifest.from_offset), encode_staged(each))
        for offset, each in enumerate(several, 7)
    ]


def test_contiguous_buckets_are_the_state() -> None:
    found, why = restored_from(
        records(staged("j", 40, 90), staged("j", 10, 40), staged("j", 90, 95, empty=True)),
        "id",
        (15, 95),
        (0, 2_000),
        RULES,
    )
    assert why == ""
    assert found is not None
    assert found.progress == Progress(95, BEFORE_ALL, 95, 0, 2, restored_to=95)
    assert found.history == RuleHistory.beginning(10, RULES)
    assert [(each.bucket_id, each.from_offset, each.built_from) for each in found.buckets] == [(0, 10, 10), (1, 40, 40)]
    assert [offset for _, offset in found.withdrawn] == [7, 8, 9]


def test_the_furthest_job_wins_and_all_are_withdrawn() -> None:
    several = records(staged("a", 0, 50), staged("b", 0, 60), staged("c", 1, 70), staged("d", 0, 9, restores=False))
    found, _ = restored_from(several, "id", (0, 70), (0, 2_000), RULES)
    assert found is not None
    assert found.progress.cursor == 60
    assert [offset for _, offset in found.withdrawn] == [7, 8, 9]


@pytest.mark.parametrize(
    ("several", "why"),
    [
        ([staged("j", 0, 50), staged("j", 51, 60)], "job j has staged cannot be used: there are gaps"),
        ([staged("j", 1, 50)], r"it covers \[1, 50\), and the delay topic holds \[0, 60\)"),
        ([staged("j", 0, 61)], r"it covers \[0, 61\), and the delay topic holds \[0, 60\)"),
        ([staged("j", 0, 50), staged("j", 50, 61)], r"it covers \[0, 61\), and the delay topic holds \[0, 60\)"),
        ([staged("j", 0, 50, topic_id="other")], "it read a delay topic with another id than id"),
        ([staged("j", 0, 50, rules=Rules("d"))], "it decided by other rules than those of the configuration"),
        ([staged("j", 0, 50, restores=False)], "^$"),
        ([], "^$"),
    ],
)
def test_what_makes_no_state_is_named(several: list[StagedBucket], why: str) -> None:
    found, told = restored_from(records(*several), "id", (0, 60), (0, 2_000), RULES)
    assert found is None
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(told)


def test_segments_that_are_gone_make_no_state() -> None:
    several = records(staged("j", 0, 50))
    for held in ((1_001, 2_000), (0, 1_000)):
        found, why = restored_from(several, "id", (0, 60), held, RULES)
        assert found is None
        assert "segments that it names are not in the snapshots topic" in why


def test_what_was_withdrawn_or_is_damaged_is_no_state() -> None:
    (one,) = records(staged("j", 0, 50))
    assert restored_from([one, one._replace(value=None)], "id", (0, 60), (0, 2_000), RULES) == (None, "")
    found, why = restored_from([one._replace(value=b"KDR")], "id", (0, 60), (0, 2_000), RULES)
    assert found is None
    assert "3 bytes are too few" in why


def test_what_must_not_be_trimmed() -> None:
    several = [
        *records(staged("j", 40, 50), staged("k", 30, 50, restores=False)),
        Stored(9, intent_key("l"), encode_intent(Intent("l", 1_020, 500))),
        Stored(10, intent_key("m"), encode_intent(Intent("m", 3, 499))),
    ]
    assert kept_by_backfills(several, 499) == Kept(30, 1_020)
    assert kept_by_backfills(several, 500) == Kept(30, 1_030)
    assert kept_by_backfills([], 0) == Kept(None, None)
    with pytest.raises(FormatError, match="intent/x"):
        kept_by_backfills([Stored(0, intent_key("x"), b"")], 0)

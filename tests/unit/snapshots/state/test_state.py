"""The state topic: the state that the fold makes of its records, and its refusals."""

import pytest

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.errors import FormatError
from index.pending.progress import BEFORE_ALL, Behind, Position, Progress, Skipped, start_of
from index.protocol.headers import PRESETS
from index.protocol.schedule import AT_ONCE
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from snapshots.envelope import Kind, kind_of, unwrap, wrap
from snapshots.proto import state_pb2
from snapshots.segments.manifest import encode_manifest, manifest_key
from snapshots.state.lane import LaneName
from snapshots.state.state import (
    PROGRESS_KEY,
    RULES_KEY,
    StoredState,
    encode_history,
    encode_progress,
    fold_state,
    writers_in,
)
from tests.support.paths import GOLDEN

GOLDEN_PROGRESS = (GOLDEN / "progress-v1.bin").read_bytes()
GOLDEN_RULES = (GOLDEN / "rules-v1.bin").read_bytes()
GOLDEN_STATE = StoredState(
    Progress(cursor=4711, watermark=Position(1_800_000_000_123, 4242), sealed_to=4000, number=99),
    "kq3pQmZTRxu6dGVVTm5eJw",
    RuleHistory.beginning(
        3500, Rules("orders.delay", default_target="orders", max_delay_ms=604_800_000, version=2)
    ).with_epoch(
        4100,
        Rules(
            "orders.delay",
            default_target="orders",
            allowed_targets=("orders", "billing.*"),
            max_delay_ms=86_400_000,
            aliases=PRESETS["etf1"],
            forbidden_targets=frozenset({"orders.delay.rejected"}),
            version=2,
        ),
    ),
)

A, B = (Rules("d", default_target=name) for name in "ab")
PROGRESS = Progress(cursor=10, watermark=Position(7, 3), sealed_to=4, number=2, next_bucket=3)
RULES = encode_history(RuleHistory.beginning(0, A))
STORED = [(PROGRESS_KEY, encode_progress(PROGRESS, "id")), (RULES_KEY, RULES)]


def manifest(bucket_id: int, from_offset: int, to_offset: int) -> Manifest:
    at = Position(50, from_offset)
    return Manifest(bucket_id, from_offset, to_offset, None, (SegmentRef(at, at, 1, 100, 0, Placement.INLINE),))


def bucket(bucket_id: int, from_offset: int, to_offset: int, key: bytes = b"") -> tuple[bytes, bytes]:
    return key or manifest_key(bucket_id), encode_manifest(manifest(bucket_id, from_offset, to_offset))


def test_what_version_1_wrote_is_read() -> None:
    assert fold_state([(PROGRESS_KEY, GOLDEN_PROGRESS), (RULES_KEY, GOLDEN_RULES)]) == GOLDEN_STATE


def test_what_is_written_is_version_1() -> None:
    assert encode_progress(GOLDEN_STATE.progress, GOLDEN_STATE.delay_topic_id) == GOLDEN_PROGRESS
    assert encode_history(GOLDEN_STATE.history) == GOLDEN_RULES


def test_the_key_of_recurring_schedules_is_in_the_progress() -> None:
    """A golden test: field 11, absent where nothing recurs."""
    signed = encode_progress(PROGRESS._replace(series_key=b"0123456789abcdef"), "id")
    assert signed[-18:] == b"\x5a\x100123456789abcdef"
    assert signed[13:-18] == encode_progress(PROGRESS, "id")[13:]


def test_how_many_cancelled_records_buckets_hold_is_in_the_progress() -> None:
    """A golden test: field 12, absent where there are none."""
    counted = encode_progress(PROGRESS._replace(cancelled=300), "id")
    assert counted[-3:] == b"\x60\xac\x02"
    assert counted[13:-3] == encode_progress(PROGRESS, "id")[13:]


def test_up_to_where_a_job_made_the_index_is_in_the_progress() -> None:
    """A golden test: field 14, absent where no job did."""
    restored = encode_progress(PROGRESS._replace(restored_to=300), "id")
    assert restored[-3:] == b"\x70\xac\x02"
    assert restored[13:-3] == encode_progress(PROGRESS, "id")[13:]


@pytest.mark.parametrize("name", ["progress-v1-bit-flipped.bin", "progress-v2-future.bin"])
def test_damaged_and_future_progress_is_refused_by_name(name: str) -> None:
    with pytest.raises(FormatError, match="record 'progress' of the state topic: "):
        fold_state([(PROGRESS_KEY, (GOLDEN / name).read_bytes()), (RULES_KEY, GOLDEN_RULES)])


def test_truncated_rules_are_refused_by_name() -> None:
    truncated = (GOLDEN / "rules-v1-truncated.bin").read_bytes()
    with pytest.raises(FormatError, match="record 'rules' of the state topic: "):
        fold_state([(PROGRESS_KEY, GOLDEN_PROGRESS), (RULES_KEY, truncated)])


@pytest.mark.parametrize(
    "progress",
    [
        start_of(0),
        start_of(2**63 - 1),
        Progress(5, BEFORE_ALL, 0, 1),
        Progress(2**63 - 1, Position(2**63 - 1, 2**63 - 1), 2**63 - 1, 2**63 - 1, 2**63 - 1),
        Progress(9, BEFORE_ALL, 0, 1, skipped=(Skipped(0, 1), Skipped(3, 9))),
        Progress(9, BEFORE_ALL, 0, 1, series_key=b"0123456789abcdef"),
        Progress(9, BEFORE_ALL, 0, 1, cancelled=1 << 40),
        Progress(9, BEFORE_ALL, 0, 1, restored_to=9),
    ],
)
def test_progress_comes_back_as_it_was(progress: Progress) -> None:
    first = RuleHistory.beginning(0, A)
    history = first.with_epoch(progress.cursor + 1, B) if progress.cursor < 2**62 else first
    records = [(RULES_KEY, encode_history(history)), (PROGRESS_KEY, encode_progress(progress, "topic-id"))]
    assert fold_state(records) == StoredState(progress, "topic-id", history)


CATCHING_UP = PROGRESS._replace(catching_up=(Behind(0, BEFORE_ALL), Behind(2, Position(7, 3))))


def test_watermarks_of_adopted_buckets_come_back() -> None:
    records = [(PROGRESS_KEY, encode_progress(CATCHING_UP, "id")), (RULES_KEY, RULES), bucket(0, 0, 1), bucket(2, 1, 4)]
    state = fold_state(records)
    assert state is not None
    assert state.progress == CATCHING_UP


@pytest.mark.parametrize(
    ("behind", "message"),
    [
        ((Behind(1, BEFORE_ALL),), "bucket 1 is catching up by the progress, and is not there"),
        ((Behind(0, Position(7, 4)),), "progress says W=.* and that buckets are behind it"),
        ((Behind(2, BEFORE_ALL), Behind(0, BEFORE_ALL)), "progress says W=.* and that buckets are behind it"),
    ],
)
def test_watermarks_that_cannot_be_are_refused(behind: tuple[Behind, ...], message: str) -> None:
    progress = PROGRESS._replace(catching_up=behind)
    records = [(PROGRESS_KEY, encode_progress(progress, "id")), (RULES_KEY, RULES), bucket(0, 0, 1), bucket(2, 1, 4)]
    with pytest.raises(FormatError, match=message):
        fold_state(records)


def test_an_empty_topic_holds_no_state() -> None:
    assert fold_state([]) is None


def test_a_later_record_wins() -> None:
    later = PROGRESS._replace(cursor=11, number=3)
    state = fold_state(
        [
            (PROGRESS_KEY, b"not even looked at"),
            (RULES_KEY, encode_history(RuleHistory.beginning(0, A))),
            (PROGRESS_KEY, encode_progress(later, "id")),
            (RULES_KEY, encode_history(RuleHistory.beginning(0, B))),
        ]
    )
    assert state == StoredState(later, "id", RuleHistory.beginning(0, B))


def test_a_tombstone_removes_and_a_record_after_it_counts() -> None:
    records = [(PROGRESS_KEY, encode_progress(PROGRESS, "id")), (RULES_KEY, RULES)]
    assert fold_state([*records, (PROGRESS_KEY, None), (RULES_KEY, None)]) is None
    assert fold_state([(RULES_KEY, None), *records]) is not None
    with pytest.raises(FormatError, match="the state topic lacks key b'progress': part of the state was lost"):
        fold_state([*records, (PROGRESS_KEY, None)])


def test_an_unknown_key_that_was_removed_says_nothing() -> None:
    records = [(PROGRESS_KEY, encode_progress(PROGRESS, "id")), (RULES_KEY, RULES)]
    assert fold_state([(b"backfill/0", b"of a newer router"), *records, (b"backfill/0", None)]) == fold_state(records)


def test_buckets_are_part_of_the_state_in_the_order_of_their_offsets() -> None:
    state = fold_state([bucket(2, 3, 4), bucket(0, 0, 2), bucket(1, 2, 3), *STORED, (manifest_key(1), None)])
    assert state is not None
    assert state.buckets == (manifest(0, 0, 2), manifest(2, 3, 4))


def test_a_later_manifest_of_a_bucket_wins() -> None:
    state = fold_state([bucket(0, 0, 2), *STORED, bucket(0, 1, 3)])
    assert state is not None
    assert state.buckets == (manifest(0, 1, 3),)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([(PROGRESS_KEY, encode_progress(PROGRESS, "id"))], "the state topic lacks key b'rules'"),
        ([(RULES_KEY, RULES)], "the state topic lacks key b'progress'"),
        ([(b"backfill/0", b"")], r"key 'backfill/0' in the state topic is not known here; upgrade the router"),
        ([(b"backfill/0", b""), (RULES_KEY, None)], "not known here"),
        ([(manifest_key(0), b"")], "the state topic lacks key b'progress'"),
        ([(manifest_key(0), b""), *STORED], "record 'bucket/0{20}' of the state topic: 0 bytes"),
        ([bucket(0, 0, 5, key=manifest_key(1)), *STORED], "record 'bucket/0{19}1' of .*holds the manifest of bucket 0"),
        ([bucket(0, 0, 3), bucket(1, 2, 4), *STORED], "buckets 0 and 1 overlap at offset 2"),
        ([bucket(0, 0, 5), *STORED], "bucket 0 ends beyond S=4"),
        ([bucket(3, 0, 4), *STORED], "a bucket has an id at or beyond the next one, 3"),
        (
            [bucket(0, 0, 4), STORED[0], (RULES_KEY, encode_history(RuleHistory.beginning(1, A)))],
            "records from 0 on need rules",
        ),
        ([(None, b"")], "key None in the state topic is not known here: no router writes a record without a key"),
        ([(b"x" * 10_000, b"")], r"^key 'x{40}'... of 10000 bytes in the state topic is not known here; upgrade"),
        ([(RULES_KEY, RULES), (PROGRESS_KEY, RULES)], "record 'progress' of the state topic: holds kind 2"),
        ([(PROGRESS_KEY, encode_progress(PROGRESS, "id")), (RULES_KEY, b"")], "record 'rules' of the state topic: 0"),
    ],
)
def test_refused(records: list[tuple[bytes | None, bytes | None]], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        fold_state(records)


@pytest.mark.parametrize(("sealed_to", "cursor"), [(5, 4), (-1, 4), (-2, -1)])
def test_progress_that_contradicts_itself_is_refused(sealed_to: int, cursor: int) -> None:
    value = encode_progress(Progress(cursor, BEFORE_ALL, sealed_to), "id")
    with pytest.raises(FormatError, match=f"S={sealed_to} and C={cursor}; S must be in 0..C"):
        fold_state([(PROGRESS_KEY, value), (RULES_KEY, RULES)])


@pytest.mark.parametrize(
    "skipped",
    [[Skipped(3, 3)], [Skipped(3, 2)], [Skipped(3, 5), Skipped(1, 2)], [Skipped(1, 4), Skipped(3, 5)], [Skipped(4, 7)]],
)
def test_skipped_ranges_that_cannot_be_are_refused(skipped: list[Skipped]) -> None:
    value = encode_progress(Progress(6, BEFORE_ALL, 0, skipped=tuple(skipped)), "id")
    with pytest.raises(FormatError, match="C=6 and that these ranges were skipped"):
        fold_state([(PROGRESS_KEY, value), (RULES_KEY, RULES)])


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([], "must rise and there must be one"),
        ([0, 3, 3], "must rise"),
        ([0, 4, 3], "must rise"),
        ([5], "start at 5, but records from 4 on need rules"),
    ],
)
def test_epochs_that_leave_a_doubt_are_refused(offsets: list[int], message: str) -> None:
    epochs = [state_pb2.RuleEpoch(from_offset=offset, rules=A.to_json()) for offset in offsets]
    value = wrap(Kind.RULES, state_pb2.RuleHistory(epochs=epochs).SerializeToString())
    with pytest.raises(FormatError, match=message):
        fold_state([(PROGRESS_KEY, encode_progress(PROGRESS, "id")), (RULES_KEY, value)])


@pytest.mark.parametrize("rules", [b"", b"{}", b"[" * 100_000, A.to_json() + b" ", b"\xff"])
def test_rules_that_cannot_be_read_are_refused_by_name(rules: bytes) -> None:
    body = state_pb2.RuleHistory(epochs=[state_pb2.RuleEpoch(from_offset=0, rules=rules)]).SerializeToString()
    with pytest.raises(FormatError, match="record 'rules' of the state topic: stored rules"):
        fold_state([(PROGRESS_KEY, encode_progress(PROGRESS, "id")), (RULES_KEY, wrap(Kind.RULES, body))])


def test_a_body_that_is_no_protobuf_is_refused_by_name() -> None:
    with pytest.raises(FormatError, match="record 'progress' of the state topic: "):
        fold_state([(PROGRESS_KEY, wrap(Kind.PROGRESS, b"\xff")), (RULES_KEY, RULES)])


LANE = LaneName("g.lane.0123456789abcdef.0", 3)


def test_progress_in_a_lane_names_it_and_is_refused_by_a_router_that_knows_none() -> None:
    value = encode_progress(PROGRESS, "id", lane=LANE)
    assert kind_of(value) is Kind.PROGRESS_IN_LANE
    with pytest.raises(FormatError, match="holds kind 13, not PROGRESS"):
        unwrap(Kind.PROGRESS, value)
    found = fold_state([(PROGRESS_KEY, value), (RULES_KEY, RULES)])
    assert found is not None
    assert (found.lane, found.progress, found.delay_topic_id) == (LANE, PROGRESS, "id")
    assert len(value) < len(encode_progress(PROGRESS, "id")) + 50


def test_the_lane_is_known_even_if_the_state_cannot_be_trusted() -> None:
    given_back = (PROGRESS_KEY, encode_progress(PROGRESS, "id"))
    in_lane = (PROGRESS_KEY, encode_progress(PROGRESS, "id", lane=LANE))
    assert writers_in([given_back, in_lane, (b"unknown", b"")]).lane == LANE
    assert writers_in([in_lane, given_back]).lane is None
    assert writers_in([in_lane, (PROGRESS_KEY, None)]).lane is None
    assert writers_in([(PROGRESS_KEY, b"damaged")]) == (None, frozenset())


@pytest.mark.parametrize("lane", [LaneName("", 1), LaneName("g.lane.0.0", 0)])
def test_a_lane_that_names_no_producer_is_refused(lane: LaneName) -> None:
    with pytest.raises(FormatError, match="names a lane without"):
        fold_state([(PROGRESS_KEY, encode_progress(PROGRESS, "id", lane=lane)), (RULES_KEY, RULES)])


@pytest.mark.parametrize(
    ("watermark", "behind", "left"),
    [
        (BEFORE_ALL, None, True),
        (Position(0, 7), None, True),
        (BEFORE_ALL, BEFORE_ALL, False),
        (BEFORE_ALL, Position(0, 3), True),
    ],
    ids=["nothing-else-has-left", "with-w-in-front", "in-an-adopted-bucket", "in-one-that-has-caught-up-so-far"],
)
def test_a_record_that_is_due_at_once_leaves_when_c_passes_it(
    watermark: Position, behind: Position | None, *, left: bool
) -> None:
    """A bucket that a backfill has made holds such records until its own watermark passes them."""
    catching_up = () if behind is None else (Behind(0, behind),)
    progress = start_of(0)._replace(
        cursor=10, watermark=watermark, sealed_to=10, next_bucket=1, catching_up=catching_up
    )
    state = StoredState(progress, "id", RuleHistory.beginning(0, A), buckets=(manifest(0, 0, 10),))
    assert state.has_left(AT_ONCE, 3) is left
    assert not state.has_left(AT_ONCE, 10)

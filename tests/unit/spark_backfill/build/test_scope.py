"""The offsets that a job takes on, and its refusals before it begins."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from index.buckets.bucket import Placement, SegmentRef
from index.buckets.bucket_rules import SealRules
from index.errors import FormatError
from index.pending.progress import BEFORE_ALL, Position, Progress
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from snapshots.state.staged import encode_staged
from snapshots.state.state import StoredState
from spark_backfill.buckets import sink
from spark_backfill.buckets.job import Job
from spark_backfill.buckets.plan import BucketRange, Slots
from spark_backfill.buckets.staging import staged_buckets
from spark_backfill.build.scope import Asked, ClusterFacts, index_ranges, rebuild_ranges
from spark_backfill.cluster import LogRange, Topic
from spark_backfill.errors import JobError
from spark_backfill.settings import DelayTopic, Settings
from spark_backfill.source import OffsetRange

RULES = Rules("d", default_target="t")
DELAY = DelayTopic(RULES, "d.s", "d.n", "d.r", "d.b", "d.q", SealRules())
SETTINGS = Settings({"bootstrap.servers": "a"}, "group", (DELAY,), "file")


def state(cursor: int, *, rules: Rules = RULES, topic_id: str = "id") -> StoredState:
    return StoredState(Progress(cursor, BEFORE_ALL, cursor), topic_id, RuleHistory.beginning(0, rules))


def known(logs: Mapping[int, tuple[int, int]], states: Mapping[int, StoredState | None] | None = None) -> ClusterFacts:
    ranges = {partition: LogRange(*log) for partition, log in logs.items()}
    return ClusterFacts(Topic("d", "id", len(logs)), ranges, {**dict.fromkeys(logs), **(states or {})})


def test_from_the_cursor_or_the_start_of_the_log_to_its_end() -> None:
    found = index_ranges(DELAY, known({0: (10, 90), 1: (0, 50), 2: (20, 60)}, {1: state(30), 2: state(5)}), Asked())
    assert found == [OffsetRange(0, 10, 90), OffsetRange(1, 30, 50), OffsetRange(2, 20, 60)]


def test_what_the_router_has_indexed_is_left_out() -> None:
    assert index_ranges(DELAY, known({0: (0, 40), 1: (7, 7)}, {0: state(40)}), Asked()) == []


def test_what_is_asked_for() -> None:
    asked = Asked(starts={0: 5}, ends={0: 30})
    assert index_ranges(DELAY, known({0: (0, 90)}), asked) == [OffsetRange(0, 5, 30)]


@pytest.mark.parametrize(
    ("asked", "states", "message"),
    [
        (Asked(ends={0: 91}), {}, "d/0: the log ends at offset 90, and 91 was asked for"),
        (Asked(starts={0: 9}), {}, "d/0: retention has removed the records below offset 10, and 9 was asked for"),
        (Asked(starts={0: 50}, ends={0: 40}), {}, "d/0: nothing lies between --from 50 and --to 40"),
        (Asked(ends={0: 40}), {0: state(40)}, "d/0: the router has indexed everything below 40, and --to is 40"),
        (Asked(), {0: state(20, topic_id="old")}, "d/0: the topic was deleted and created again"),
        (Asked(), {0: state(20, rules=Rules("d", "other"))}, "d/0: the router decides by other rules"),
    ],
)
def test_what_cannot_be_is_refused(asked: Asked, states: dict[int, StoredState | None], message: str) -> None:
    with pytest.raises(JobError, match=message):
        index_ranges(DELAY, known({0: (10, 90)}, states), asked)


def test_every_problem_is_named() -> None:
    with pytest.raises(JobError) as refused:
        index_ranges(DELAY, known({0: (10, 90), 1: (0, 5)}), Asked(starts={0: 3}, ends={1: 6}))
    assert [line[:4] for line in str(refused.value).splitlines()] == ["d/0:", "d/1:"]


def test_rebuild_is_for_lost_state_and_stopped_routers() -> None:
    logs = known({0: (10, 90), 1: (40, 40), 2: (0, 0)})
    assert rebuild_ranges(SETTINGS, DELAY, logs, []) == [OffsetRange(0, 10, 90), OffsetRange(1, 39, 40)]
    with pytest.raises(JobError, match=r"group group has members \(one\): stop the routers"):
        rebuild_ranges(SETTINGS, DELAY, logs, ["one"])
    with pytest.raises(JobError, match=r"state of partitions \[1\]: it is not lost"):
        rebuild_ranges(SETTINGS, DELAY, known({0: (0, 1), 1: (0, 1)}, {1: state(1)}), [])


def test_of_a_state_that_has_lost_a_part_all_is_rebuilt_and_nothing_indexed() -> None:
    logs = dataclasses.replace(known({0: (10, 90), 1: (0, 5)}), lost={0: "it lacks buckets 3"})
    assert rebuild_ranges(SETTINGS, DELAY, logs, []) == [OffsetRange(0, 10, 90), OffsetRange(1, 0, 5)]
    with pytest.raises(JobError, match=r"^d/0: it lacks buckets 3; to make the state anew: .* rebuild$"):
        index_ranges(DELAY, logs, Asked())


JOB = Job(
    name="j",
    run="r",
    kafka={},
    group_id="g",
    delay_topic="d",
    delay_topic_id="id",
    snapshots="d.n",
    backfill="d.b",
    rules_json=RULES.to_json(),
    seal_rules=SealRules(),
    slots=Slots((BucketRange(0, 0, 50), BucketRange(0, 50, 90)), ((Position(9, 0),), ())),
    slot_keys=(4, 5, 6),
    restores=False,
    report="",
)


def ref(first: tuple[int, int], last: tuple[int, int], record_offset: int) -> SegmentRef:
    return SegmentRef(Position(*first), Position(*last), 2, 100, record_offset, Placement.INLINE)


def test_segments_of_all_tasks_become_one_manifest_in_release_order() -> None:
    segments = [(0, ref((9, 1), (12, 0), 7)), (0, ref((20, 4), (21, 3), 5)), (0, ref((0, 2), (8, 49), 6))]
    one, two = staged_buckets(JOB, segments, [], {0: 2})
    assert [segment.record_offset for segment in one.manifest.segments] == [6, 7, 5]
    assert (one.manifest.needs_from, one.manifest.from_offset, one.manifest.to_offset) == (2, 0, 50)
    assert (two.manifest.segments, two.manifest.needs_from) == ((), None)
    for each in (one, two):
        assert encode_staged(each)
        assert (each.job, each.delay_topic_id, each.rules, each.restores) == ("j", "id", RULES, False)


def test_segments_that_overlap_are_never_staged() -> None:
    overlapping = [(0, ref((0, 2), (10, 49), 6)), (0, ref((9, 1), (12, 0), 7))]
    (broken, _) = staged_buckets(JOB, overlapping, [], {})
    with pytest.raises(FormatError, match="segment 0 ends at"):
        encode_staged(broken)


def test_the_transaction_of_a_job_never_fences_a_worker() -> None:
    workers = dataclasses.replace(JOB, delay_topic="x", name="orders.delay.0")
    # The transactional id of a worker is <group>.<delay topic>.<partition>, and no topic has a '~' in its name.
    assert workers.transactional_id == "g~x~orders.delay.0"


def test_what_may_be_staged_is_not_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken_back: list[object] = []
    monkeypatch.setattr(sink, "_tombstone", lambda _job, keys: taken_back.extend(keys))
    job = dataclasses.replace(JOB, report=str(tmp_path / "report"))
    written = sink.TaskOutput(keys=[(0, b"k")])
    sink.SegmentsWriter(job).abort([written, None])
    assert taken_back == [(0, b"k")]
    # The commit was requested, and its answer did not arrive.
    Path(job.report).touch()
    taken_back.clear()
    sink.SegmentsWriter(job).abort([written, None])
    assert taken_back == []

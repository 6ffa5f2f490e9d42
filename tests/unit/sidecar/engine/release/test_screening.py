"""The stages that a transaction passes before it begins."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import MethodType
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from index.errors import ClusterError, ClusterTrouble
from index.named.receipts import ControlOutcome, Receipt
from index.partition.batch import Batch
from index.partition.partition import PartitionIndex
from index.pending.pending import Entry
from index.pending.progress import Position, start_of
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE, BY_KEY, KEEP_KEY, Action, Control, KeepKey, Reason, Rejection, Schedule
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import LIMITS
from sidecar.engine.payload.records import Decide, Payload, Refused, Scheduled, scheduled_size, size_of
from sidecar.engine.ports import NO_DEMANDS, Demands, Target
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.moving import Moving
from sidecar.engine.release.occurring import Series
from sidecar.engine.release.plan import Plan, Screened
from sidecar.engine.release.querying import Querying
from sidecar.engine.release.rates import RateLimits, TargetLimit
from sidecar.engine.release.screening import (
    BATCH_BYTES,
    TOLD_AT_ONCE,
    ReadRecords,
    Screening,
    Stage,
    refused_by_target,
)
from sidecar.kafka.writing.target_directory import TargetDirectory
from sidecar.metrics import Metrics
from sidecar.zones import zone_of
from tests.support.hand_clock import HandClock

RULES = Rules("d", default_target="out", allowed_targets=("a", "b"))
MISSING = Rejection(Reason.TARGET_UNKNOWN, "Target topic b does not exist; create it first")
RECORD = Record(b"key", b"value", (), 1_000)
BAD = Refused(Rejection(Reason.INVALID_SCHEDULE, "not a time"), RECORD)


class Directory(TargetDirectory):
    """Knows the given targets, and notes the questions."""

    def __init__(self, **refusals: Rejection | None) -> None:
        self._refusals = refusals
        self.asked: list[set[str]] = []

    def resolve(self, names: Iterable[str], _known_for_s: float = 0) -> dict[str, Target]:
        self.asked.append(set(names))
        return {name: Target(4, self._refusals.get(name), 0.0) for name in self.asked[-1]}


class Away(TargetDirectory):
    """A cluster that does not answer."""

    def __init__(self) -> None:
        pass

    def resolve(self, names: Iterable[str], _known_for_s: float = 0) -> dict[str, Target]:
        raise ClusterError(ClusterTrouble.UNANSWERED, "no answer")


class Reader:
    """Holds the records that were not kept in memory."""

    def __init__(self, kept: dict[int, Record] | None = None) -> None:
        self._kept = kept or {}
        self.asked: list[Sequence[int]] = []

    def __call__(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        self.asked.append(offsets)
        return {offset: self._kept.get(offset) for offset in offsets}


def entry(
    offset: int, *targets: str, partition: int = BY_KEY, record: Record | None = RECORD, due_ms: int = 5_000
) -> Entry[Scheduled]:
    schedule = Schedule(due_ms, targets or ("out",), partition, KEEP_KEY, None, both_times=False)
    return due_ms, offset, Scheduled(schedule, 100, record)


def undecided(offset: int, record: Record) -> Schedule | Rejection:
    """Fail: no record is decided again."""
    raise AssertionError(f"{offset} decided again: {record}")


def stages(
    rules: Rules = RULES,
    directory: TargetDirectory | None = None,
    read: ReadRecords | None = None,
    decide: Decide = undecided,
    key: bytes = b"",
) -> Screening:
    clock = HandClock(1_000)
    context = PartitionContext(DelayTopicConfig(name="d", default_target="out"), 3, "g", Metrics(), clock)
    gate = Gate(RateLimits(clock.running_s, nullcontext()), LIMITS)
    return Screening(
        context,
        gate,
        RuleHistory.beginning(0, rules),
        directory or Directory(),
        read or Reader(),
        decide,
        compresses=True,
        series=Series(key, "d/3/", zone_of),
        moving=Moving(lambda _: {}, decide, key, "d/3/"),
        querying=Querying(PartitionIndex(start_of(0), scheduled_size), gate),
    )


def screen(leaving: Batch[Payload, Refused], *given: Any) -> Screened:
    return stages(*given).screen(Plan(leaving, [], [])).screened


def batch(
    *due: Entry[Scheduled], late: Sequence[Entry[Scheduled]] = (), rejected: Sequence[tuple[int, Refused]] = ()
) -> Batch[Payload, Refused]:
    return Batch([*late], [*due], list(rejected), start_of(0))


def names(stages: Sequence[Stage]) -> list[str]:
    return [cast("MethodType", stage).__name__ for stage in stages]


def offsets(screened: Screened) -> tuple[list[int], list[int], list[int]]:
    released = [offset for _, offset, _ in screened.released]
    return released, [offset for offset, _ in screened.rejected], screened.lost


def test_a_plain_record_meets_three_stages() -> None:
    screening = stages()
    assert names(screening.stages_for(Plan(batch(entry(1)), [], []))) == ["whole", "allowed", "in_time"]


def test_a_stage_is_listed_once_it_has_work() -> None:
    control = Control(Action.CANCEL, b"order-7")
    receipt = Receipt(9, control, ControlOutcome.CANCELLED, (Position(5_000, 1),), None, RECORD)
    screening, plan = stages(key=b"key"), Plan(replace(batch(entry(1)), receipts=[receipt]), [], [])
    screening.gate.use({"out": TargetLimit()})
    screening.gate.use_doubts({("out", 0): None})
    listed = ["moved", "whole", "allowed", "sure", "recurring", "in_time", "admitted", "routed"]
    assert names(screening.stages_for(plan)) == listed


def test_late_records_leave_before_due_ones_and_rejected_ones_are_kept() -> None:
    leaving = batch(entry(3), entry(1), late=[entry(7)], rejected=[(6, BAD)])
    screened = screen(leaving, RULES, Directory(), Reader(), undecided)
    assert offsets(screened) == ([7, 3, 1], [6], [])
    assert screened.rejected == [(6, BAD)]


def test_a_batch_asks_once_for_all_its_targets() -> None:
    directory = Directory()
    screen(batch(entry(1, "a"), entry(2, "a", "b"), late=[entry(3)]), RULES, directory, Reader(), undecided)
    assert directory.asked == [{"out", "a", "b"}]


def test_an_empty_batch_is_screened_to_nothing() -> None:
    assert offsets(screen(batch(), RULES, Directory(), Reader(), undecided)) == ([], [], [])


def test_a_missing_target_is_rejected_and_the_others_are_released() -> None:
    leaving = batch(entry(1, "a"), entry(2, "b"), entry(3), rejected=[(9, BAD)])
    screened = screen(leaving, RULES, Directory(b=MISSING), Reader(), undecided)
    assert offsets(screened) == ([1, 3], [9, 2], [])
    assert screened.rejected[1] == (2, Refused(MISSING, RECORD))


def test_a_record_with_several_targets_goes_to_all_or_to_none() -> None:
    screened = screen(batch(entry(1, "a", "b"), entry(2, "a")), RULES, Directory(b=MISSING), Reader(), undecided)
    assert offsets(screened) == ([2], [1], [])


def test_a_target_that_is_no_longer_allowed_is_rejected() -> None:
    screened = screen(
        batch(entry(1, "a"), entry(2)), Rules("d", default_target="out"), Directory(), Reader(), undecided
    )
    assert offsets(screened) == ([2], [1], [])
    (_, refused) = screened.rejected[0]
    assert refused.rejection.reason is Reason.TARGET_NOT_ALLOWED
    assert "a is no longer allowed for d" in refused.rejection.message


@pytest.mark.parametrize(
    ("partition", "released"), [(BY_KEY, True), (0, True), (3, True), (4, False), (2**31 - 1, False)]
)
def test_a_partition_that_the_target_does_not_have_is_rejected(partition: int, released: bool) -> None:
    screened = screen(batch(entry(1, "a", partition=partition), entry(2, "a")), RULES, Directory(), Reader(), undecided)
    assert offsets(screened) == (([1, 2], [], []) if released else ([2], [1], []))
    if not released:
        (_, refused) = screened.rejected[0]
        assert refused.rejection.reason is Reason.TARGET_UNKNOWN
        assert refused.rejection.message == (
            f"Target topic a has 4 partitions; deliver-partition {partition} is not one"
        )


def test_records_that_were_not_kept_are_read_again_in_the_order_of_the_log() -> None:
    again = {3: Record(b"3", None, (), 1), 8: Record(b"8", None, (), 1)}
    reader = Reader(again)
    leaving = batch(entry(8, record=None), entry(2), late=[entry(3, record=None)])
    screened = screen(leaving, RULES, Directory(), reader, undecided)
    assert reader.asked == [[3, 8]]
    assert [(offset, scheduled.record) for _, offset, scheduled in screened.released] == [
        (3, again[3]),
        (8, again[8]),
        (2, RECORD),
    ]


def test_nothing_is_read_again_when_everything_was_kept() -> None:
    reader = Reader()
    screen(batch(entry(1)), RULES, Directory(), reader, undecided)
    assert reader.asked == []


def test_a_record_that_retention_removed_is_lost_and_said_to_be() -> None:
    leaving = batch(entry(1, record=None), entry(2, record=None))
    screened = screen(leaving, RULES, Directory(), Reader({2: RECORD}), undecided)
    assert offsets(screened) == ([2], [], [1])


def test_lost_records_are_counted_and_a_hundred_of_them_named() -> None:
    screening = stages()
    gone = [entry(offset, record=None) for offset in range(7, 7 + TOLD_AT_ONCE + 1)]
    with capture_logs() as logs:
        screening.screen(Plan(batch(*gone), [], []))
    told = [(each["event"], each["count"], each["first_offset"], each["last_offset"]) for each in logs]
    assert told == [("records_lost", TOLD_AT_ONCE + 1, 7, 7 + TOLD_AT_ONCE)]
    assert logs[0]["offsets"] == [*range(7, 7 + TOLD_AT_ONCE)]
    registry = screening.context.metrics.registry
    assert registry.get_sample_value("delay_router_records_lost_total", {"topic": "d"}) == TOLD_AT_ONCE + 1


def test_a_record_read_again_may_be_rejected_with_what_it_held() -> None:
    leaving = batch(entry(1, "b", record=None))
    screened = screen(leaving, RULES, Directory(b=MISSING), Reader({1: RECORD}), undecided)
    assert screened.rejected == [(1, Refused(MISSING, RECORD))]
    assert offsets(screened) == ([], [1], [])


def test_when_the_cluster_does_not_answer_nothing_is_concluded() -> None:
    with pytest.raises(ClusterError):
        screen(batch(entry(1)), RULES, Away(), Reader(), undecided)


def test_refused_by_the_broker_moves_a_record_from_released_to_rejected() -> None:
    too_large = Rejection(Reason.RECORD_TOO_LARGE, "10 MB")
    screened = Screened([entry(1), entry(2)], [(6, BAD)], [5]).without({2: too_large, 77: too_large})
    assert offsets(screened) == ([1], [6, 2], [5])
    assert screened.rejected[1] == (2, Refused(too_large, RECORD))


def test_what_a_backfill_indexed_to_be_rejected_is_rejected() -> None:
    bare = Schedule(AT_ONCE, (), BY_KEY, KEEP_KEY, None, both_times=False)
    adopted = [(AT_ONCE, 3, Scheduled(bare, 100, RECORD)), (AT_ONCE, 4, Scheduled(bare, 0, None)), entry(5, due_ms=0)]
    decided: list[tuple[int, Record]] = []

    def decide(offset: int, record: Record) -> Rejection:
        decided.append((offset, record))
        return BAD.rejection

    screened = screen(batch(entry(6), late=adopted, rejected=[(9, BAD)]), RULES, Directory(), Reader(), decide)
    assert offsets(screened) == ([5, 6], [9, 3], [4])
    assert screened.rejected[1] == (3, BAD)
    assert decided == [(3, RECORD)]


class Demanding(Directory):
    """Targets that demand something of each record; the second answer differs if ``then`` is given."""

    def __init__(self, demands: Demands, then: Demands | None = None) -> None:
        super().__init__()
        self._says = [demands, demands if then is None else then]

    def resolve(self, names: Iterable[str], _known_for_s: float = 0) -> dict[str, Target]:
        self.asked.append(set(names))
        demands = self._says[min(len(self.asked), 2) - 1]
        return {name: Target(4, None, 0.0, demands if name == "a" else NO_DEMANDS) for name in names}


def asking(key: bytes | None, value: bytes | None, own_key: bytes | KeepKey | None = KEEP_KEY) -> Entry[Scheduled]:
    schedule = Schedule(5, ("a", "b"), BY_KEY, own_key, None, both_times=False)
    record = Record(key, value, (), 1_000)
    return 5, 1, Scheduled(schedule, size_of(record), record)


COMPACTED = Demands(key=True)


@pytest.mark.parametrize(
    ("key", "own_key", "refused"),
    [(None, KEEP_KEY, True), (b"", KEEP_KEY, False), (None, b"k", False), (b"k", None, True), (b"k", KEEP_KEY, False)],
)
def test_a_record_without_key_is_not_even_tried_on_a_compacted_target(
    key: bytes | None, own_key: bytes | KeepKey | None, *, refused: bool
) -> None:
    found = refused_by_target([asking(key, b"v", own_key)], RULES, Demanding(COMPACTED))
    assert bool(found) is refused
    if refused:
        assert found[1].reason is Reason.TARGET_DENIED
        assert "a is compacted" in found[1].message


def test_nothing_is_rejected_for_what_a_target_was_like_some_time_ago() -> None:
    directory = Demanding(COMPACTED, then=NO_DEMANDS)
    assert refused_by_target([asking(None, b"v")], RULES, directory) == {}
    assert len(directory.asked) == 2


@pytest.mark.parametrize(("more", "compresses", "refused"), [(0, False, False), (1, False, True), (1, True, False)])
def test_a_record_is_too_large_when_no_batch_of_it_could_be_small_enough(
    more: int, *, compresses: bool, refused: bool
) -> None:
    value = b"x" * (2_000 - BATCH_BYTES - len(b"key") + more)
    directory = Demanding(Demands(max_batch_bytes=2_000))
    found = refused_by_target([asking(b"key", value)], RULES, directory, compresses=compresses)
    assert [each.reason for each in found.values()] == [Reason.RECORD_TOO_LARGE] * refused

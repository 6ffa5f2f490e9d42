"""What of the delay partition itself is taken for written by the router."""

from typing import Any, Final, cast

from index.headers import Headers
from index.moving import moved_occurrence, moved_record
from index.occurrences import record_of
from index.orphans import NOTHING_WRITTEN, WHEN_INDEXED, Done, Hidden
from index.progress import Position, Progress
from index.record import Record
from index.recurring import Occurrence, Recurrence
from index.rule_history import RuleHistory
from index.rules import Rules
from index.schedule import Schedule
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.healing.evidence import Evidence
from sidecar.healing.hidden import Found, Read, ours
from sidecar.kafka.admin import Place
from snapshots.state import StoredState

DELAY: Final[Place] = ("d", 0)
KEY: Final = b"k" * 16
SENT_MS: Final = 1_700_000_000_000
DUE_MS: Final = SENT_MS + 60_000
RULES: Final = Rules("d", default_target="out", recurring=True)
SCHEDULE: Final = Record(b"k", b"v", [("deliver-after", b"PT1M"), ("deliver-id", b"7")], SENT_MS)
CONTROL: Final = Record(b"k", None, [("deliver-move", b"7"), ("deliver-at", b"%d" % (DUE_MS + 1))], SENT_MS)
SERIES: Final = Record(b"k", b"v", [("deliver-after", b"PT1M"), ("deliver-every", b"PT1M")], SENT_MS)
STATE: Final = StoredState(Progress(10, Position(DUE_MS, 5), 0, series_key=KEY), "id", RuleHistory.beginning(0, RULES))
DONE: Final = Done(STATE.progress)
SETTLED: Final = 20


def evidence() -> Evidence:
    """Of a partition with a schedule at 3, a series at 5, and controls at 8 and, not indexed yet, at 12."""
    nothing = cast("Any", None)
    made = Evidence(nothing, nothing, DelayTopicConfig(name="d", default_target="out"), 0, nothing)
    made._made_of |= {3: SCHEDULE, 5: SERIES, 8: CONTROL, 12: CONTROL, 4: None}
    return made


def found(*records: Record) -> list[Found]:
    return ours((Read(SETTLED + at, record, 0) for at, record in enumerate(records)), "d/0/")


def written_by_us(*records: Record) -> list[Hidden]:
    """What the router has written, as it is judged."""
    by = evidence()
    return [by.hidden(DONE, STATE, DELAY, each) for each in by._written_by_us(STATE, DELAY, found(*records), SETTLED)]


def moved(control: int) -> Record:
    schedule = RULES.decide(SCHEDULE.headers, SENT_MS)
    assert isinstance(schedule, Schedule)
    return moved_record(SCHEDULE, schedule, RULES.controls.role, f"d/0/{control}", DUE_MS + 1, SENT_MS)


def following(offset: int, key: bytes = KEY) -> Record:
    return record_of(SERIES, Occurrence(offset, 2, DUE_MS + 60_000), f"d/0/{offset}", key, SENT_MS)


def test_a_next_occurrence_is_judged_by_the_one_that_it_follows() -> None:
    assert written_by_us(following(5)) == [Hidden(5, DUE_MS)]


def test_what_was_spread_is_judged_by_when_it_was_to_leave() -> None:
    copy = Record(b"k", b"v", [("delay-due", b"%d" % DUE_MS), ("delay-spread", b"70"), ("delay-source", b"d/0/3")], 0)
    assert [each.due_ms for each in found(copy)] == [DUE_MS + 70]


def test_what_was_moved_is_judged_by_the_control() -> None:
    assert written_by_us(moved(8)) == [Hidden(8, WHEN_INDEXED)]
    recurrence = Recurrence(period_ms=60_000)
    again = moved_occurrence(SERIES, recurrence, 5, "d/0/8", DUE_MS + 1, KEY, SENT_MS)
    assert written_by_us(again) == [Hidden(8, WHEN_INDEXED)]


def test_a_control_that_is_not_indexed_has_not_moved_anything() -> None:
    assert [DONE.has_left(due_ms or 0, offset) for offset, due_ms in written_by_us(moved(12))] == [False]


def test_what_others_write_is_not_the_routers() -> None:
    passed_on: Headers = [("delay-due", b"%d" % DUE_MS), ("delay-source", b"d/0/3")]
    of_the_future: Headers = [("delay-source", b"d/0/%d" % (SETTLED + 5))]
    gone: Headers = [("delay-source", b"d/0/4")]
    others = [Record(b"k", b"v", headers, SENT_MS) for headers in (passed_on, of_the_future, gone)]
    assert written_by_us(*others, following(5, b"x" * 16)) == []


def test_what_only_ends_a_transaction_is_the_routers() -> None:
    touch = Record(b"t", None, [("delay-source", b"d/0/%d" % NOTHING_WRITTEN)], 0)
    assert [each.source_offset for each in written_by_us(touch)] == [NOTHING_WRITTEN]


def test_on_targets_nothing_is_left_out() -> None:
    passed_on = Record(b"k", b"v", [("delay-source", b"d/0/3")], SENT_MS)
    assert len(evidence()._written_by_us(STATE, ("out", 0), found(passed_on), SETTLED)) == 1

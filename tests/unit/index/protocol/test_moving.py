"""The record that takes the place of a schedule that was moved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.protocol.headers import PRESETS, Headers
from index.protocol.moving import moved_occurrence, moved_record
from index.protocol.occurrences import is_ours
from index.protocol.record import Record
from index.protocol.recurring import Occurrence, Recurrence, recurrence_of
from index.protocol.schedule import Schedule, schedule_of
from index.rules.rules import Rules

NOW_MS = 1_800_000_000_000
DUE_MS = NOW_MS + 60_000
RULES = Rules("d", default_target="out", allowed_targets=("a", "b"), recurring=True, version=6)
ETF1 = Rules("d", default_target="out", allowed_targets=("a",), aliases=PRESETS["etf1"], version=6)


def moved(rules: Rules, headers: Headers) -> tuple[Schedule, Schedule, Record]:
    """Return the schedule of a record, its schedule once it was moved, and the moved record."""
    before = schedule_of(rules.decide(headers, NOW_MS))
    assert before is not None
    record = moved_record(Record(b"k", None, headers, NOW_MS), before, rules.controls.role, "d/0/9", DUE_MS, NOW_MS)
    after = rules.decide(record.headers, NOW_MS)
    assert isinstance(after, Schedule)
    return before, after, record


OWN = st.lists(st.tuples(st.sampled_from(["trace", "delay-hops", "x"]), st.sampled_from([b"1", b"", None])))
ASKED = st.fixed_dictionaries(
    {},
    optional={
        "deliver-after": st.just(b"PT1S"),
        "Deliver-At": st.just(b"1800000001000"),
        "deliver-to": st.sampled_from([b"a", b"b"]),
        "DELIVER-KEY": st.sampled_from([b"", None, b"own"]),
        "deliver-partition": st.just(b"3"),
        "deliver-id": st.binary(max_size=20),
        "deliver-expire-after": st.sampled_from([b"0", b"PT1S", None]),
    },
)


@given(ASKED, OWN)
def test_everything_but_the_due_time_stays(asked: dict[str, bytes | None], own: Headers) -> None:
    headers = [*own, *asked.items()]
    before, after, record = moved(RULES, headers)
    assert after._replace(due_ms=0, both_times=False) == before._replace(due_ms=0, both_times=False)
    assert (after.due_ms, record.timestamp_ms, record.value) == (DUE_MS, NOW_MS, None)
    assert [each for each in record.headers if each[0] in ("trace", "delay-hops", "x")] == own


def test_what_it_asks_for_by_other_names_is_written_out() -> None:
    headers: Headers = [("scheduler-epoch", b"1800000001"), ("scheduler-target-topic", b"a"), ("h", b"1")]
    _, after, record = moved(ETF1, headers)
    assert after == RULES.decide(record.headers, NOW_MS)
    names = [name for name, _ in record.headers]
    assert names == ["h", "deliver-at", "deliver-to", "delay-source"]


@pytest.mark.parametrize("due_ms", [0, 5, 10**9, 63_072_000_123, 10**11, 10**14, 253_402_300_799_999, 10**18])
def test_a_due_time_is_taken_for_no_other_unit(due_ms: int) -> None:
    rules = Rules("d", default_target="out", version=6)
    before = rules.decide([("deliver-after", b"PT1S")], NOW_MS)
    assert isinstance(before, Schedule)
    record = moved_record(Record(None, None, [], NOW_MS), before, rules.controls.role, "d/0/9", due_ms, NOW_MS)
    after = rules.decide(record.headers, NOW_MS)
    assert isinstance(after, Schedule)
    assert after.due_ms == due_ms


def test_targets_stay_where_the_default_is_another_one_by_then() -> None:
    _, _, record = moved(RULES, [("deliver-after", b"PT1S")])
    later = Rules("d", default_target="b", allowed_targets=("out",)).decide(record.headers, NOW_MS)
    assert isinstance(later, Schedule)
    assert later.targets == ("out",)


def test_what_it_was_to_replace_is_not_replaced_again_and_it_tells_of_the_last_move_only() -> None:
    headers: Headers = [("deliver-id", b"a"), ("deliver-replace", b"true"), ("deliver-if-due", b"7")]
    _, _, record = moved(RULES, [*headers, ("delay-source", b"d/0/3")])
    assert isinstance(RULES.decide(record.headers, record.timestamp_ms), Schedule)
    assert [raw for name, raw in record.headers if name == "delay-source"] == [b"d/0/9"]


@pytest.mark.parametrize("number", [1, 3])
def test_an_occurrence_keeps_its_number_and_is_signed(number: int) -> None:
    record = Record(b"k", b"v", [("deliver-every", b"10s"), ("trace", b"1")], NOW_MS)
    if number > 1:
        earlier = Recurrence(period_ms=10_000, occurrence=Occurrence(5, number, NOW_MS))
        record = moved_occurrence(record, earlier, 8, "d/0/9", NOW_MS, b"key", NOW_MS)
    recurrence = recurrence_of(record.headers)
    assert isinstance(recurrence, Recurrence)
    again = moved_occurrence(record, recurrence, 8, "d/0/9", DUE_MS, b"key", NOW_MS)
    found = recurrence_of(again.headers)
    assert isinstance(found, Recurrence)
    assert found.occurrence == Occurrence(8 if number == 1 else 5, number, DUE_MS)
    assert is_ours(again, found, b"key")
    decided = RULES.decide(again.headers, NOW_MS)
    assert isinstance(decided, Schedule)
    assert decided.due_ms == DUE_MS

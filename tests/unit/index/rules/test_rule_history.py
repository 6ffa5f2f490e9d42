"""The history of rules, checked against a naive model: a list that names the rules of every offset."""

import dataclasses
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.buckets.retention import rules_needed_from
from index.errors import FormatError
from index.pending.progress import BEFORE_ALL, Position, Progress
from index.rules.rule_history import RuleEpoch, RuleHistory
from index.rules.rules import Rules

BY_NAME = {name: Rules("d", default_target=name) for name in "ABC"}
END = 40
"""The model knows each offset up to here."""


@given(
    st.integers(0, 5),
    st.sampled_from("ABC"),
    st.lists(st.tuples(st.integers(0, END - 1), st.sampled_from("ABC")), max_size=8),
)
def test_each_offset_is_decided_by_what_was_said_of_it_last(
    begins: int, first: str, changes: list[tuple[int, str]]
) -> None:
    history, model = RuleHistory.beginning(begins, BY_NAME[first]), [first] * END
    for from_offset, name in sorted(changes, key=lambda change: change[0]):
        history = history.with_epoch(begins + from_offset, BY_NAME[name])
        model[from_offset:] = [name] * (END - from_offset)
    assert [history.at(begins + offset) for offset in range(END)] == [BY_NAME[name] for name in model]
    assert history.in_force == BY_NAME[model[-1]] == history.last.rules
    assert history.from_offset == begins


_HISTORIES = st.lists(st.tuples(st.integers(0, END - 1), st.sampled_from("ABC")), min_size=1, unique_by=lambda e: e[0])


@given(_HISTORIES, st.integers(0, END), st.integers(0, END))
def test_where_an_epoch_ends_and_what_lies_in_one(written: list[tuple[int, str]], one: int, two: int) -> None:
    epochs = [RuleEpoch(offset, BY_NAME[name]) for offset, name in sorted(written)]
    history, lowest, highest = RuleHistory(tuple(epochs)), min(one, two), max(one, two)
    behind = [epoch.from_offset for epoch in epochs[1:] if epoch.from_offset > lowest]
    assert history.ends_at(lowest) == min(behind, default=None)
    alone = not any(offset <= highest for offset in behind)
    assert history.over(lowest, highest) == (history.at(lowest) if alone else None)


@given(_HISTORIES, st.integers(0, END + 2))
def test_what_is_forgotten_is_what_nobody_needs(written: list[tuple[int, str]], needed_from: int) -> None:
    history = RuleHistory(tuple(RuleEpoch(offset, BY_NAME[name]) for offset, name in sorted(written)))
    shorter = history.since(needed_from)
    assert [shorter.at(offset) for offset in range(needed_from, END)] == [
        history.at(offset) for offset in range(needed_from, END)
    ]
    assert shorter.epochs == history.epochs[-len(shorter.epochs) :]
    assert len(shorter.epochs) == 1 or shorter.epochs[1].from_offset > needed_from, "more is kept than is needed"


def test_it_never_changes() -> None:
    history = RuleHistory.beginning(3, BY_NAME["A"])
    assert history.with_epoch(7, BY_NAME["A"]) is history
    assert history.with_epoch(7, BY_NAME["B"]) != history
    assert history.epochs == (RuleEpoch(3, BY_NAME["A"]),)
    with pytest.raises(dataclasses.FrozenInstanceError):
        history.epochs = ()  # type: ignore[misc]


@pytest.mark.parametrize("offsets", [[], [0, 3, 3], [0, 4, 3]])
def test_epochs_that_do_not_rise_are_refused(offsets: list[int]) -> None:
    with pytest.raises(FormatError, match="must rise and there must be one"):
        RuleHistory(tuple(RuleEpoch(offset, BY_NAME["A"]) for offset in offsets))


def test_records_without_rules_are_told() -> None:
    history = RuleHistory.beginning(5, BY_NAME["A"])
    history.check(5)
    with pytest.raises(FormatError, match="start at 5, but records from 4 on need rules"):
        history.check(4)


@pytest.mark.parametrize(
    ("before", "sealed_to", "cursor", "rules", "after"),
    [
        pytest.param("0A", 4, 10, "A", "0A", id="the same rules"),
        pytest.param("0A", 4, 10, "B", "0A 10B", id="a change while records are pending"),
        pytest.param("0A", 10, 10, "B", "10B", id="a change with nothing pending"),
        pytest.param("0A 10B", 4, 10, "C", "0A 10C", id="a second change before C has moved"),
        pytest.param("0A 10B", 4, 10, "A", "0A 10A", id="back again before C has moved"),
        pytest.param("0A 10B", 4, 20, "A", "0A 10B 20A", id="back again later"),
        pytest.param("0A 10B 20C", 10, 30, "C", "10B 20C", id="an epoch that ends at S is dropped"),
        pytest.param("0A 10B 20C", 9, 30, "C", "0A 10B 20C", id="one that ends behind S is not"),
        pytest.param("0A 10B 20C", 30, 30, "C", "20C", id="the last one stays"),
        pytest.param("0A 10B 20C", 25, 30, "A", "20C 30A", id="a change that drops two"),
        pytest.param("5A", 5, 5, "B", "5B", id="a change before anything was read"),
    ],
)
def test_what_an_owner_writes(before: str, sealed_to: int, cursor: int, rules: str, after: str) -> None:
    progress = Progress(cursor, BEFORE_ALL, sealed_to)
    assert _next(_history(before), progress, rules) == _history(after)
    assert _next(_history(after), progress, rules) == _history(after), "not settled"


def test_rules_stay_while_a_bucket_holds_records_that_they_decided() -> None:
    progress, history = Progress(30, BEFORE_ALL, 30), _history("0A 10B 20C")
    assert _next(history, progress, "C", _bucket(25), _bucket(9)) == history
    assert _next(history, progress, "C", _bucket(25), _bucket(10)) == _history("10B 20C")
    assert _next(history, progress, "A", _bucket(29)) == _history("20C 30A")


def test_rules_stay_while_a_record_that_they_decided_is_held() -> None:
    progress, history = Progress(30, BEFORE_ALL, 30), _history("0A 10B 20C")
    assert _next(history, progress, "C", _bucket(25), held=[22, 9]) == history
    assert _next(history, progress, "A", held=[10]) == _history("10B 20C 30A")


def _next(
    history: RuleHistory, progress: Progress, rules: str, *buckets: Manifest, held: Sequence[int] = ()
) -> RuleHistory:
    return history.with_epoch(progress.cursor, BY_NAME[rules]).since(rules_needed_from(progress, buckets, held))


def _bucket(from_offset: int) -> Manifest:
    at = Position(50, from_offset)
    return Manifest(0, from_offset, from_offset + 1, None, (SegmentRef(at, at, 1, 100, 0, Placement.INLINE),))


def _history(written: str) -> RuleHistory:
    return RuleHistory(tuple(RuleEpoch(int(each[:-1]), BY_NAME[each[-1]]) for each in written.split()))

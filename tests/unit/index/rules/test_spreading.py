"""Bursts that are spread: evenly, the same on every replay, and never early."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.named.names import Names, hash_of
from index.named.receipts import receipt_of, receipt_value
from index.pending.progress import Position
from index.protocol.headers import Headers
from index.protocol.record import Record
from index.protocol.schedule import Action, Control
from index.protocol.times import INT64_MAX
from index.rules.rules import AT_ONCE, Rejection, Rules, Schedule, TargetRule
from index.rules.rules_by_column import decide_alike
from index.rules.spreading import MAX_SPREAD_MS, shift_ms
from index.rules.unreadable import decide

SENT_MS = 1_767_268_800_000
DUE_MS = SENT_MS + 3_600_000
SPREAD_MS = 30_000
AT: Headers = [("deliver-at", b"%d" % DUE_MS)]
RULES = Rules(
    *("d", "out", ("slow", "fast", "plain")),
    spread_ms=SPREAD_MS,
    target_rules=(TargetRule("slow", spread_ms=90_000), TargetRule("fast", spread_ms=0)),
    recurring=True,
)

_spreads_ms = st.integers(0, MAX_SPREAD_MS)
_offsets = st.integers(0, INT64_MAX)


def placed(headers: Headers, offset: int, rules: Rules = RULES) -> Schedule:
    decision, _ = decide(rules, Record(b"k", b"v", headers, SENT_MS), offset)
    assert isinstance(decision, Schedule), decision
    return decision


@given(start=st.integers(0, 2**62), count=st.integers(1, 3_000), slices=st.integers(1, 50))
def test_any_run_of_offsets_is_spread_evenly(start: int, count: int, slices: int) -> None:
    """Each slice of the span gets an equal share of the records, but for a handful, for any number of records."""
    spread_ms = slices * 10_000
    shares = [0] * slices
    for offset in range(start, start + count):
        shares[shift_ms(offset, spread_ms) * slices // spread_ms] += 1
    assert max(abs(share - count / slices) for share in shares) < 6


@given(offset=_offsets, spread_ms=_spreads_ms)
def test_it_is_within_the_span_and_always_the_same(offset: int, spread_ms: int) -> None:
    shifted_ms = shift_ms(offset, spread_ms)
    assert 0 <= shifted_ms < max(spread_ms, 1)
    assert shift_ms(offset, spread_ms) == shifted_ms


def test_the_shifts_are_those_that_are_stored_in_buckets() -> None:
    """A golden test: if the shifts change, decisions on replay differ from the entries in sealed buckets."""
    assert [shift_ms(offset, 30_000) for offset in (0, 1, 2, 3, 1_000, 4_711, 2**40, 2**63 - 1)] == [
        *(0, 18_541, 7_082, 25_623, 1_019),
        *(16_743, 8_728, 26_458),
    ]


@given(offset=_offsets, due_ms=st.integers(0, INT64_MAX), spread_ms=_spreads_ms)
def test_no_record_leaves_early_or_later_than_its_spread(offset: int, due_ms: int, spread_ms: int) -> None:
    rules = Rules("d", "out", spread_ms=spread_ms)
    # Times that only make sense in another unit are refused.
    decision = rules.placed(rules.decide([("deliver-at", b"%d" % due_ms)], SENT_MS), SENT_MS, offset)
    if isinstance(decision, Rejection):
        return
    assert isinstance(decision, Schedule)
    assert decision.asked_ms == due_ms <= decision.due_ms <= min(due_ms + max(spread_ms - 1, 0), INT64_MAX)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("deliver-at", b"0")],
        [("deliver-at", b"%d" % SENT_MS)],
        [("deliver-at", b"%d" % (SENT_MS - 1))],
        [("deliver-after", b"0")],
        [("deliver-cron", b"0 9 * * *")],
        [("deliver-cancel", b"id")],
        [("deliver-move", b"id"), *AT],
    ],
)
def test_what_leaves_at_once_or_is_no_schedule_is_not_spread(headers: Headers) -> None:
    decision, _ = decide(RULES, Record(b"k", b"v", headers, SENT_MS), 1)
    assert decision == RULES.decide(headers, SENT_MS)


def test_what_replaces_is_spread_like_any_other_schedule() -> None:
    headers: Headers = [("deliver-id", b"a"), *AT]
    decision, _ = decide(RULES, Record(b"k", b"v", [("deliver-replace", b"true"), *headers], SENT_MS), 1)
    assert decision == Control(Action.REPLACE, b"a", schedule=placed(headers, 1))
    assert placed(headers, 1).shift_ms > 0


def test_rules_that_release_at_once_spread_nothing() -> None:
    assert placed(AT, 1, replace(RULES, at_once=True)).due_ms == AT_ONCE


@pytest.mark.parametrize(
    ("targets", "spread_ms"),
    [
        ([], SPREAD_MS),
        ([b"plain"], SPREAD_MS),
        ([b"slow"], 90_000),
        ([b"fast"], 0),
        ([b"fast", b"plain"], SPREAD_MS),
        ([b"fast", b"slow", b"plain"], 90_000),
    ],
)
def test_the_largest_spread_of_its_targets_counts(targets: list[bytes], spread_ms: int) -> None:
    headers = [*AT, *(("deliver-to", target) for target in targets)]
    found = placed(headers, 1)
    assert (found.due_ms, found.shift_ms) == (DUE_MS + shift_ms(1, spread_ms), shift_ms(1, spread_ms))


def test_the_maximum_delay_is_that_of_what_was_asked_for() -> None:
    rules = replace(RULES, max_delay_ms=3_600_000)
    assert placed(AT, 1, rules).due_ms > DUE_MS


def test_rules_with_a_spread_are_refused_by_name_where_it_cannot_be() -> None:
    with pytest.raises(ValueError, match="spread_ms -1: expected 0"):
        replace(RULES, spread_ms=-1)
    with pytest.raises(ValueError, match=r"target_rules 'a': spread_ms 86400001: expected 0 \(none\) to 86400000"):
        replace(RULES, target_rules=(TargetRule("a", spread_ms=MAX_SPREAD_MS + 1),))
    assert not Rules("d", "out", target_rules=(TargetRule("a", spread_ms=0),)).spreads


def test_columns_leave_it_to_each_record() -> None:
    columns = [[raw] for _, raw in AT]
    assert decide_alike(RULES, ["deliver-at"], columns, [SENT_MS], [DUE_MS]) is None


def test_a_control_holds_for_what_was_asked_for() -> None:
    names = Names()
    leaves, plain = Position(DUE_MS + 500, 4), Position(DUE_MS + 500, 5)
    names.add(hash_of(b"a"), leaves, 500)
    names.add(hash_of(b"a"), plain)
    asked_ms = names.asked_ms([leaves, plain])
    assert asked_ms == {4: DUE_MS}
    nothing = Record(None, None, (), 0)
    told = receipt_of(9, Control(Action.CANCEL, b"a", DUE_MS), (leaves, plain), None, nothing, asked_ms)
    assert told.cancelled == (leaves,)
    assert b'"cancelled": [{"offset": 4, "due": %d}]' % DUE_MS in receipt_value(told)


def test_what_is_known_of_shifts_goes_with_its_record() -> None:
    names = Names()
    for offset in range(3):
        names.add(hash_of(b"a"), Position(DUE_MS + offset, offset), 500)
    names.sweep(lambda place: place.offset > 0)
    assert names.asked_ms([Position(DUE_MS, 0), Position(DUE_MS + 1, 1)]) == {1: DUE_MS - 499}
    names.freeze()
    names.add(hash_of(b"a"), Position(DUE_MS + 3, 3), 500)
    both = [Position(DUE_MS + 1, 1), Position(DUE_MS + 3, 3)]
    assert names.frozen_shifts_ms == {1: 500, 2: 500}
    assert names.asked_ms(both) == {1: DUE_MS - 499, 3: DUE_MS - 497}
    names.thaw()
    assert names.asked_ms(both) == {1: DUE_MS - 499, 3: DUE_MS - 497}
    names.freeze()
    names.discard_frozen()
    assert names.asked_ms(both) == {}
    names.look_up([hash_of(b"a")])
    names.lookup.found(range(3), [(hash_of(b"a"), Position(DUE_MS + 1, 1), 500)])
    assert names.asked_ms(both) == {1: DUE_MS - 499}
    names.look_up([hash_of(b"b")])
    assert names.asked_ms(both) == {}

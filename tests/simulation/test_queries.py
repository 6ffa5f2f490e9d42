"""Schedules that are cancelled by query, wherever they wait, each case played by a playbook."""

from dataclasses import replace
from typing import Any

import pytest

from index.buckets.bucket_rules import PlacementRule, SealRules
from index.named import queries
from index.protocol.schedule import Reason
from sidecar.engine.intake import intake
from tests.simulation.playbook import RULES, Playbook, nothing, query_receipt, receipt
from tests.simulation.world import START_MS

TO_X = {"target": "x"}
EVERY_SECOND = [("deliver-every", b"1000"), ("deliver-times", b"3")]


@pytest.fixture
def play() -> Playbook:
    return Playbook()


def test_each_schedule_in_front_that_matches_is_cancelled_and_no_other(play: Playbook) -> None:
    play.sends("a", after_ms=1_000, to="x")
    play.sends("b", after_ms=1_000, to="y")
    play.sends("c", after_ms=2_000, to="x")
    play.sends(where=TO_X)
    play.sends("d", after_ms=2_000, to="x")
    play.turn(now_ms=0).writes(query_receipt(matched=2))
    assert (play.status.pending, play.queries) == (2, 1)
    play.turn(now_ms=5_000).releases("b", "d").rejects(nothing)
    assert (play.status.pending, play.queries) == (0, 0)


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ({"due_from": START_MS + 2_000}, "a"),
        ({"due_to": START_MS + 2_000}, "bc"),
        ({"due_from": START_MS + 1_001, "due_to": START_MS + 3_000}, "ac"),
        ({"id_prefix": "order-"}, "c"),
        ({"id_prefix": "order-8"}, "ac"),
        ({"header": {"name": "customer", "value": "7"}}, "bc"),
        ({"id_prefix": "order-", "header": {"name": "customer", "value": "8"}}, "ac"),
        ({"target": "out", "due_to": START_MS + 1_000}, "abc"),
    ],
)
@pytest.mark.parametrize("budget", [100, 1])
def test_every_field_counts(play: Playbook, where: dict[str, Any], left: str, budget: int) -> None:
    play.counts_at_most(budget)
    play.sends("a", after_ms=1_000, id="order-7", headers=[("customer", b"7")])
    play.sends("b", after_ms=2_000, id="order-8", headers=[("customer", b"8")])
    play.sends("c", after_ms=3_000, headers=[("Customer", b"7"), ("customer", None)])
    play.sends(where=where)
    if budget > 1:
        play.turn(now_ms=0).writes(query_receipt(matched=3 - len(left)))
        assert play.status.pending == len(left)
    play.turn(now_ms=9_000).releases(*left)
    assert play.status.pending == 0


@pytest.mark.parametrize(
    "where",
    ["{}", {"traget": "x"}, {"target": ""}, {"due_from": "soon"}, {"id_prefix": "x" * 300}, {"target": "x" * 5_000}],
)
def test_a_predicate_that_cannot_be_followed_is_rejected_and_cancels_nothing(play: Playbook, where: Any) -> None:
    play.sends("a", after_ms=1_000, to="x")
    play.sends("query", where=where)
    play.turn(now_ms=1_000).writes().rejects("query", because=Reason.INVALID_SCHEDULE).releases("a")


@pytest.mark.parametrize("placement", ["inline", "pointer"])
def test_sealed_schedules_are_cancelled_also_by_the_next_owner(placement: PlacementRule) -> None:
    play = Playbook(seal_rules=SealRules(max_entries=3, placement=placement))
    for value, target in [("a", "x"), ("b", "y"), ("c", "x")]:
        play.sends(value, after_ms=60_000, to=target, headers=[("customer", b"7")])
    play.turn(now_ms=0).releases(nothing)
    assert play.buckets == 1
    play.restarts()
    play.sends(where={"target": "x", "header": {"name": "customer", "value": "7"}})
    play.turn(now_ms=1).writes(query_receipt(matched=2))
    assert (play.status.pending, play.queries) == (1, 1)
    play.restarts()
    play.turn(now_ms=2)
    assert (play.status.pending, play.queries) == (1, 1)
    play.turn(now_ms=60_000).releases("b")
    play.sends("d")
    play.turn(now_ms=60_001).releases("d")
    assert (play.status.pending, play.queries, play.buckets) == (0, 0, 0)


def test_more_schedules_than_may_be_counted_are_estimated(play: Playbook) -> None:
    play.counts_at_most(10)
    for number in range(100):
        play.sends(str(number), after_ms=1_000 + number, to="x" if number % 2 else "y")
    play.sends(where=TO_X)
    play.turn(now_ms=0).writes(query_receipt(estimated=50))
    assert play.status.pending == 50
    play.turn(now_ms=9_000).releases(*map(str, range(0, 100, 2)))
    assert play.status.pending == 0


def test_a_record_that_is_held_for_its_target_is_let_go(play: Playbook) -> None:
    play.pauses("x")
    play.sends("a", to="x", headers=[("customer", b"7")])
    play.sends("b", to="x")
    play.turn(now_ms=1)
    assert play.status.held == 2
    play.sends(where={"header": {"name": "customer", "value": "7"}})
    play.turn(now_ms=2).writes(query_receipt(matched=1))
    assert (play.status.held, play.status.pending) == (1, 1)
    play.pauses(nothing)
    play.turn(now_ms=3).releases("b")


def test_a_schedule_without_a_time_has_the_time_of_its_record(play: Playbook) -> None:
    play.pauses("out")
    play.sends("a")
    play.turn(now_ms=1_000)
    play.sends("b")
    play.turn(now_ms=1_000)
    play.sends(where={"due_from": START_MS + 1_000})
    play.turn(now_ms=1_001).writes(query_receipt(matched=1))
    play.pauses(nothing)
    play.turn(now_ms=1_002).releases("a")


def test_a_series_that_matches_ends(play: Playbook) -> None:
    play.sends("a", headers=EVERY_SECOND)
    play.sends("b", to="x", headers=EVERY_SECOND)
    play.turn(now_ms=1_000).releases("a", "b")
    play.sends(where=TO_X)
    play.turn(now_ms=1_500).writes(query_receipt(matched=1))
    play.turn(now_ms=9_000).releases("a", "a").rejects(nothing)
    assert play.status.pending == 0


def test_an_occurrence_that_lies_behind_the_query_is_named_and_cancelled(play: Playbook) -> None:
    play.sends("a", headers=EVERY_SECOND)
    play.turn(now_ms=999).releases(nothing)
    play.passes(now_ms=1_000)
    # The occurrence leaves first, and the next one is written behind the query.
    play.sends("query", where={"target": "out"})
    turn = play.turn(now_ms=9_000)
    seen = turn.receipts()
    assert seen in ([query_receipt(matched=1)], [query_receipt("a", matched=1)])
    turn.releases(*(["a"] if seen[0].cancelled else []))


def test_a_series_whose_occurrence_does_not_match_goes_on(play: Playbook) -> None:
    play.sends("a", headers=EVERY_SECOND)
    play.sends(where={"due_from": START_MS + 1_500})
    play.turn(now_ms=1_000).writes(query_receipt(matched=0)).releases("a")
    play.turn(now_ms=2_000).releases("a")
    play.turn(now_ms=3_000).releases("a")


def test_a_cancelled_schedule_is_not_found_by_its_id(play: Playbook) -> None:
    play.sends("a", after_ms=1_000, to="x", id="order-7")
    play.sends("b", after_ms=1_000, to="y", id="order-7")
    play.sends(where=TO_X)
    play.sends(cancel="order-7")
    play.turn(now_ms=0).writes(query_receipt(matched=1), receipt("cancelled", "b"))
    play.turn(now_ms=5_000).releases(nothing)
    assert play.status.pending == 0


def test_a_cancelled_schedule_cannot_be_moved_or_replaced(play: Playbook) -> None:
    play.sends("a", after_ms=1_000, id="order-7")
    play.sends(where={"id_prefix": "order"})
    play.sends(move="order-7", after_ms=2_000)
    play.sends("b", after_ms=3_000, id="order-7", replace=True)
    play.turn(now_ms=5_000).writes(
        query_receipt(matched=1), receipt("not-pending"), receipt("not-pending", due_ms=3_000)
    ).releases("b")


def test_a_moved_schedule_is_cancelled_in_its_new_form(play: Playbook) -> None:
    play.sends("a", after_ms=1_000, id="order-7")
    play.sends("b", after_ms=1_000, id="order-8")
    play.sends("c", move="order-7", after_ms=3_000)
    play.sends(where={"due_from": START_MS + 2_000})
    play.turn(now_ms=0).writes(receipt("moved", "a", due_ms=3_000), query_receipt("a", matched=1))
    play.turn(now_ms=9_000).releases("b")


def test_of_two_queries_the_first_counts_a_schedule(play: Playbook) -> None:
    play.sends("a", after_ms=1_000, to="x")
    play.sends(where=TO_X)
    play.sends("b", after_ms=1_000, to="x")
    play.sends(where=TO_X)
    play.turn(now_ms=0).writes(query_receipt(matched=1), query_receipt(matched=1))
    play.turn(now_ms=5_000).releases(nothing)
    assert (play.status.pending, play.queries) == (0, 0)


def test_a_spread_schedule_is_judged_by_the_time_it_asked_for() -> None:
    play = Playbook(rules=replace(RULES, spread_ms=60_000))
    for value, after_ms in [("a", 120_000), ("b", 120_000), ("c", 121_000)]:
        play.sends(value, after_ms=after_ms)
    play.sends(where={"due_to": START_MS + 121_000})
    play.turn(now_ms=0).writes(query_receipt(matched=2))
    play.turn(now_ms=200_000).releases("c")


def test_more_queries_than_there_may_be_are_rejected(play: Playbook, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (queries, intake):
        monkeypatch.setattr(module, "MOST_QUERIES", 2)
    play.sends("a", after_ms=1_000, to="x")
    for number in range(3):
        play.sends(f"query {number}", where={"id_prefix": "x"})
    play.turn(now_ms=0).writes(*[query_receipt(matched=0)] * 2).rejects("query 2", because=Reason.INVALID_SCHEDULE)
    play.turn(now_ms=1_000).releases("a")
    play.sends("query 3", where={"id_prefix": "x"})
    play.turn(now_ms=2_000).writes(query_receipt(matched=0)).rejects(nothing)


def test_a_query_is_forgotten_although_records_go_on_coming_in() -> None:
    play = Playbook(seal_rules=SealRules(max_entries=2, time_step_ms=2_000))
    in_force = []
    for second in range(60):
        # Some wait for twenty seconds and some for one, so buckets are sealed and merged all the time.
        for number, after_ms in enumerate([1_000, 20_000, 10_000, 20_000]):
            play.sends(f"{second} {number}", after_ms=after_ms, to="x" if number else "y")
        play.sends(where={"target": "y"})
        play.turn(now_ms=1_000 * second)
        in_force.append(play.queries)
    assert play.buckets > 1
    assert max(in_force[30:]) == 21, "one for each of the seconds that a record waits at most"


def test_a_query_waits_for_a_late_record_that_may_not_leave(play: Playbook) -> None:
    play.sends("late", after_ms=100)
    play.turn(now_ms=200).releases("late")
    play.sends("a", after_ms=1_000, to="x")
    play.sends(where=TO_X)
    play.sends("b", after_ms=1_000, to="x")
    play.turn(now_ms=500).writes(query_receipt(matched=1))
    play.turn(now_ms=2_000).releases("b")


def test_rejected_records_in_front_leave_first(play: Playbook) -> None:
    play.sends("a", headers=[("deliver-at", b"soon")])
    play.sends("b", after_ms=1_000, to="x")
    play.sends(where=TO_X)
    play.turn(now_ms=5_000).rejects("a", because=Reason.INVALID_SCHEDULE).writes(query_receipt(matched=1)).releases(
        nothing
    )
